"""Put the store of a recording back: its files where they were recorded, stand-ins of the same size elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RecordedObject:
    """One object of the listing; ``file`` is its recorded content, None where only the size is known."""

    key: str
    size_bytes: int
    last_modified: datetime
    file: Path | None

    def content(self) -> bytes:
        return self.file.read_bytes() if self.file else bytes(self.size_bytes)


def recorded_objects(scenario: Path) -> Iterator[RecordedObject]:
    """The objects of a recorded namespace, directory markers left out."""
    for line in (scenario / "listing.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["key"].endswith("/"):
            continue
        file = scenario / "namespace" / row["key"]
        last_modified = datetime.fromisoformat(row["last_modified"])
        known = file.is_file() and file.stat().st_size == row["size"]
        yield RecordedObject(row["key"], row["size"], last_modified, file if known else None)


def restore_to_folder(scenario: Path, folder: Path) -> int:
    """Into a local folder, with the recorded times; the number of objects."""
    count = 0
    for recorded in recorded_objects(scenario):
        file = folder / recorded.key
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as out:
            if recorded.file:
                out.write(recorded.file.read_bytes())
            else:
                out.truncate(recorded.size_bytes)
        os.utime(file, (recorded.last_modified.timestamp(),) * 2)
        count += 1
    return count


def restore_to_s3(scenario: Path, client: Any, bucket: str, prefix: str) -> int:
    """Into a bucket, where the times are those of the upload; the number of objects."""

    def put(recorded: RecordedObject) -> None:
        client.put_object(Bucket=bucket, Key=prefix + recorded.key, Body=recorded.content())

    with ThreadPoolExecutor(16) as pool:
        return len(list(pool.map(put, recorded_objects(scenario))))
