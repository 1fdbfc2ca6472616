"""Uploads in parts: files of the sandbox's own folder until they are completed, so an aborted one leaves nothing."""

from __future__ import annotations

import hashlib
import io
import json
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from lakefs_gc.sandbox.gateway.problems import invalid_part, no_such_upload

MAX_PART_NUMBER = 10_000
_ID = re.compile(r"[0-9a-f]{32}")
_FACTS_FILE = "upload.json"


class Uploads:
    """The uploads in parts that were begun and are not over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, place: str, facts: Mapping[str, object]) -> str:
        """The id of a new upload to a place (bucket and key); ``facts`` are kept for its completion."""
        upload_id = secrets.token_hex(16)
        folder = self._folder / upload_id
        folder.mkdir(parents=True)
        (folder / _FACTS_FILE).write_text(json.dumps({"place": place, "facts": dict(facts)}))
        return upload_id

    def facts(self, upload_id: str, place: str) -> dict[str, object]:
        """What was kept at the beginning.  Raises ``S3Error`` 404 for an id that is not one of an upload to here."""
        if _ID.fullmatch(upload_id) is None:
            raise no_such_upload()
        try:
            kept = json.loads((self._folder / upload_id / _FACTS_FILE).read_text())
        except FileNotFoundError:
            raise no_such_upload() from None
        if kept["place"] != place:
            raise no_such_upload()
        facts: dict[str, object] = kept["facts"]
        return facts

    def put_part(self, upload_id: str, place: str, number: int, content: BinaryIO) -> str:
        """Keep a part, instead of an earlier one of that number; its MD5 in hex."""
        self.facts(upload_id, place)
        temporary = self._folder / upload_id / f"{secrets.token_hex(8)}.tmp"
        digest = hashlib.md5(usedforsecurity=False)
        with temporary.open("wb") as file:
            while piece := content.read(1 << 20):
                digest.update(piece)
                file.write(piece)
        for earlier in self._folder.joinpath(upload_id).glob(f"{number:05}-*"):
            earlier.unlink(missing_ok=True)
        temporary.rename(self._folder / upload_id / f"{number:05}-{digest.hexdigest()}")
        return digest.hexdigest()

    def open_parts(self, upload_id: str, place: str, parts: Sequence[tuple[int, str]]) -> tuple[BinaryIO, str]:
        """The content of these parts (number and MD5) in their order, and the ETag of the whole.

        Raises ``S3Error`` 400 unless they ascend and were all sent so.
        """
        self.facts(upload_id, place)
        numbers = [number for number, _ in parts]
        files = [self._folder / upload_id / f"{number:05}-{digest}" for number, digest in parts]
        are_md5 = all(_ID.fullmatch(digest) for _, digest in parts)
        if not parts or numbers != sorted(set(numbers)) or not are_md5 or not all(file.is_file() for file in files):
            raise invalid_part()
        digests = b"".join(bytes.fromhex(digest) for _, digest in parts)
        e_tag = f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"
        return cast(BinaryIO, io.BufferedReader(_Joined(files))), e_tag

    def end(self, upload_id: str, place: str) -> None:
        """Forget an upload, completed or aborted, and its parts."""
        self.facts(upload_id, place)
        shutil.rmtree(self._folder / upload_id)


class _Joined(io.RawIOBase):
    """Files, one after the other."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = iter(files)
        self._current: BinaryIO | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        while True:
            if self._current is None:
                file = next(self._files, None)
                if file is None:
                    return 0
                self._current = file.open("rb")
            data = self._current.read(len(view))
            if data:
                view[: len(data)] = data
                return len(data)
            self._current.close()
            self._current = None

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
        super().close()
