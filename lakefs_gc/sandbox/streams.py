"""Streams that an upload or a download passes through."""

from __future__ import annotations

import hashlib
import io
from contextlib import AbstractContextManager
from typing import BinaryIO


class HashingReader(io.RawIOBase):
    """Reads another stream, and knows the size and the MD5 of what was read."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.size_bytes = 0

    @property
    def e_tag(self) -> str:
        """The MD5 in hex: lakeFS's ETag of an upload."""
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
    """A stream of a store that outlives the ``with`` of its opening: a response reads it in pieces, then closes it."""

    def __init__(self, manager: AbstractContextManager[BinaryIO]) -> None:
        """Raises what the opening raises."""
        self._manager = manager
        self._stream = manager.__enter__()

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end."""
        return self._stream.read(size)

    def skip(self, size: int) -> None:
        """Leave out the next ``size`` bytes."""
        while size > 0 and (piece := self._stream.read(min(size, 1 << 20))):
            size -= len(piece)

    def close(self) -> None:
        """Close the stream."""
        self._manager.__exit__(None, None, None)
