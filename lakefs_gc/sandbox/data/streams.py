"""Streams for the content of uploads and downloads."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO

from lakefs_gc.sandbox.problems import ApiError

_PIECE_BYTES = 1 << 20


class HashingReader(io.RawIOBase):
    """Reads another stream, and computes the size and the MD5 of the data."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.size_bytes = 0

    @property
    def e_tag(self) -> str:
        """Return the MD5 in hex: lakeFS's ETag of an upload."""
        return self._md5.hexdigest()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self._md5.update(data)
        self.size_bytes += len(data)
        return data

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)


class OpenedStream:
    """A stream of a store that is not bound to a ``with`` block: a response reads it in pieces, then closes it."""

    def __init__(self, manager: AbstractContextManager[BinaryIO]) -> None:
        """Enter the context manager. Its errors are not caught."""
        self._manager = manager
        self._stream = manager.__enter__()

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes, or no bytes at the end."""
        return self._stream.read(size)

    def skip(self, size: int) -> None:
        """Skip the next ``size`` bytes."""
        while size > 0 and (piece := self._stream.read(min(size, 1 << 20))):
            size -= len(piece)

    def close(self) -> None:
        """Close the stream."""
        self._manager.__exit__(None, None, None)


def pieces_of(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a stream in pieces."""
    while piece := stream.read(_PIECE_BYTES):
        yield piece


def pieces(stream: OpenedStream, first: int, size_bytes: int) -> Iterator[bytes]:
    """Yield ``size_bytes`` of a stream from the byte ``first`` on, in pieces. Close the stream at the end."""
    try:
        stream.skip(first)
        while size_bytes > 0 and (piece := stream.read(min(size_bytes, _PIECE_BYTES))):
            size_bytes -= len(piece)
            yield piece
    finally:
        stream.close()


def byte_range(header: str | None, size_bytes: int) -> tuple[int, int] | None:
    """Return the first and last byte of the header ``Range``, or None without the header. Raise ``ApiError`` 416."""
    if header is None:
        return None
    first, separator, last = header.removeprefix("bytes=").partition("-")
    if not header.startswith("bytes=") or not separator or not (first + last).isdecimal():
        raise _not_satisfiable()
    if not first:
        begin, end = max(size_bytes - int(last), 0), size_bytes - 1
    else:
        begin, end = int(first), min(int(last), size_bytes - 1) if last else size_bytes - 1
    if begin > end:
        raise _not_satisfiable()
    return begin, end


def _not_satisfiable() -> ApiError:
    return ApiError(416, "Requested Range Not Satisfiable")
