"""The temporary file in which PySpark passes Arrow batches to Java: nothing in it has a checksum.

Every later comparison of these rows is with what Java has read. So one flipped bit in this file may replace an address
in a mark, in what is referenced, or in the plan of a sweep.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa

from lakefs_gc.errors import CorruptFileError

T = TypeVar("T")


class CheckedFile:
    """Writes Arrow batches as PySpark's serializers do, and compares the file after it was read."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def dump_stream(self, batches: Iterable[pa.RecordBatch], stream: BinaryIO) -> None:
        """Write the batches, at least one of them, to a file."""
        sink, writer = _Digesting(stream, self._digest), None
        for batch in batches:
            writer = writer or pa.RecordBatchStreamWriter(sink, batch.schema)
            writer.write_batch(batch)
        if writer is not None:
            writer.close()

    def read_by(self, reader: Callable[[str], T], file: str) -> T:
        """Return what ``reader`` returns for the file. Raise ``CorruptFileError`` unless it has what was written."""
        found = reader(file)
        with Path(file).open("rb") as stream:
            read = hashlib.file_digest(stream, hashlib.sha256)
        if read.digest() != self._digest.digest():
            raise CorruptFileError(
                file,
                "it passes rows to Spark, and has another content than it was written with",
                remedy="Check the disk of spark.local.dir, then start a new run",
            )
        return found


class _Digesting(io.RawIOBase):
    """Writes to a file, and digests what is written."""

    def __init__(self, file: BinaryIO, digest: hashlib._Hash) -> None:
        self._file, self._digest = file, digest

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return self._file.write(data)
