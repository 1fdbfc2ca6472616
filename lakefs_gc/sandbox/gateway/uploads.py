"""Store the parts of multipart uploads in the sandbox's own folder until completion, so an aborted one leaves nothing.

An upload that is neither completed nor aborted is removed after ``_LIFETIME``, as by a lifecycle rule of a bucket.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, cast

from lakefs_gc.formats.entry import to_ns
from lakefs_gc.sandbox.clock import Clock
from lakefs_gc.sandbox.gateway.problems import invalid_part, no_such_upload

MAX_PART_NUMBER = 10_000
_LIFETIME = timedelta(days=7)
_ID = re.compile(r"[0-9a-f]{32}")
_FACTS_FILE = "upload.json"


@dataclass(frozen=True)
class Part:
    """A part that was sent. ``digest`` is its MD5 in hex."""

    number: int
    digest: str
    size_bytes: int
    last_modified_ns: int


@dataclass(frozen=True)
class Unfinished:
    """An upload that is neither completed nor aborted."""

    key: str
    upload_id: str
    begun_at_ns: int


class Uploads:
    """The multipart uploads that are neither completed nor aborted."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._forget_old()

    def begin(self, place: str, facts: Mapping[str, object]) -> str:
        """Begin an upload to a place (bucket and key), and return its id. ``facts`` are stored for its completion."""
        self._forget_old()
        upload_id = secrets.token_hex(16)
        folder = self._folder / upload_id
        folder.mkdir(parents=True)
        kept = {"place": place, "begun_at_ns": to_ns(self._clock()), "facts": dict(facts)}
        (folder / _FACTS_FILE).write_text(json.dumps(kept))
        return upload_id

    def facts(self, upload_id: str, place: str) -> dict[str, object]:
        """Return the stored facts. Raise ``S3Error`` 404 if this is not the id of an upload to this place."""
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

    def unfinished(self, bucket: str) -> Sequence[Unfinished]:
        """Return the uploads to a bucket, by key and id."""
        uploads = []
        for folder in self._folders():
            with suppress(FileNotFoundError):  # the upload ended meanwhile, or is about to begin
                kept = json.loads((folder / _FACTS_FILE).read_text())
                where, _, key = kept["place"].partition("/")
                if where == bucket:
                    uploads.append(Unfinished(key, folder.name, kept["begun_at_ns"]))
        return sorted(uploads, key=lambda upload: (upload.key, upload.upload_id))

    def put_part(self, upload_id: str, place: str, number: int, content: Iterable[bytes]) -> Part:
        """Store a part, and replace an earlier part with the same number."""
        self.facts(upload_id, place)
        folder = self._folder / upload_id
        temporary = folder / f"{secrets.token_hex(8)}.tmp"
        digest = hashlib.md5(usedforsecurity=False)
        try:
            with temporary.open("wb") as file:
                for piece in content:
                    digest.update(piece)
                    file.write(piece)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        for earlier in folder.glob(f"{number:05}-*"):
            earlier.unlink(missing_ok=True)
        part = temporary.rename(folder / f"{number:05}-{digest.hexdigest()}")
        return _part(part)

    def parts(self, upload_id: str, place: str) -> Sequence[Part]:
        """Return the parts that were sent, by number."""
        self.facts(upload_id, place)
        return [_part(file) for file in sorted(self._folder.joinpath(upload_id).glob("[0-9]*-*"))]

    def open_parts(self, upload_id: str, place: str, parts: Sequence[tuple[int, str]]) -> tuple[BinaryIO, str]:
        """Return the content of these parts (number and MD5) in their order, and the ETag of the whole.

        Raise ``S3Error`` 400 unless the numbers ascend and all parts were sent with these digests.
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
        """Remove a completed or aborted upload and its parts."""
        self.facts(upload_id, place)
        shutil.rmtree(self._folder / upload_id)

    def _forget_old(self) -> None:
        oldest_ns = to_ns(self._clock() - _LIFETIME)
        for folder in self._folders():
            with suppress(FileNotFoundError):
                if json.loads((folder / _FACTS_FILE).read_text())["begun_at_ns"] < oldest_ns:
                    shutil.rmtree(folder)

    def _folders(self) -> Sequence[Path]:
        return [folder for folder in self._folder.glob("*") if _ID.fullmatch(folder.name)]


def _part(file: Path) -> Part:
    number, _, digest = file.name.partition("-")
    facts = file.stat()
    return Part(int(number), digest, facts.st_size, facts.st_mtime_ns)


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
