"""Rows that workers write as Parquet themselves, so that they never pass through the JVM.

Each attempt of a task writes its own files, under unique names, and reports them in rows. Spark keeps the rows of one
attempt of each task and drops all others. Only files that the driver gets in such rows count. So a task that runs
again, or twice at once, only leaves some unused files.

These rows must never pass a shuffle. The names in them are random, and Spark does not know that. If it lost the output
of such a task, another attempt would write other names, and send them to tasks that have already ended: the files of
neither attempt would count, and nothing would notice. For the same reason, which task reads a file depends on nothing
that another attempt may read otherwise, such as a listing or an index: ``repartition`` by its name, never in turns.
Where it is known how much the tasks work through, their reports count it, and another sum fails the stage
(``StageOutput.expected``).
"""

from __future__ import annotations

import hashlib
import re
import uuid
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakefs_gc.engine.spark.workers import worker_store
from lakefs_gc.errors import CorruptFileError
from lakefs_gc.formats.parquet import footer_in
from lakefs_gc.storage.base import LISTING_SCHEMA, ObjectStore
from lakefs_gc.storage.location import StoreLocation

PART = StructType(
    [
        StructField("file", StringType(), nullable=False),
        StructField("rows", LongType(), nullable=False),
        StructField("size_bytes", LongType(), nullable=False),
    ]
)
"""A file that a worker wrote: its name in ``PartsFolder.folder``, its number of rows, the sum of their ``size``."""

_PART = pa.schema([("file", pa.string()), ("rows", pa.int64()), ("size_bytes", pa.int64())])
_DIGEST = re.compile(r"-([0-9a-f]{64})\.parquet\Z")
_FOOTER = re.compile(r"-([0-9a-f]{8})-[0-9a-f]{64}\.parquet\Z")
_ROWS_PER_FILE = 1_000_000
_ROWS_PER_GROUP = 250_000  # the least that a task of Spark reads


@dataclass(frozen=True)
class PartsFolder:
    """The folder in which workers write: a store, and the key of the folder, with its final slash."""

    store: StoreLocation
    folder: str


def write_parts(batches: Iterable[pa.RecordBatch], folder: PartsFolder) -> Iterator[pa.RecordBatch]:
    """Write batches of ``LISTING_SCHEMA`` in files of about a million rows. Yield a row of ``PART`` for each file."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS_PER_FILE:
            yield _write(held, folder)
            held, rows = [], 0
    if rows:
        yield _write(held, folder)


def write_table(table: pa.Table, folder: PartsFolder) -> list[str]:
    """Write a table of any columns as one file, and return its name; nothing for a table without rows."""
    return [_write_file(table, folder)] if table.num_rows else []


def _write_file(table: pa.Table, folder: PartsFolder) -> str:
    sink = pa.BufferOutputStream()
    # Addresses are all different, and no reader filters by them, so dictionaries and statistics are useless.
    pq.write_table(
        table,
        sink,
        compression="lz4",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,  # for Spark, which does not know the digest
        row_group_size=_ROWS_PER_GROUP,
    )
    content = sink.getvalue().to_pybytes()
    # Spark does not know the digest of the whole; before it reads the file, its footer is compared.
    footer, digest = zlib.crc32(footer_in(content)), hashlib.sha256(content).hexdigest()
    file = f"part-{uuid.uuid4().hex}-{footer:08x}-{digest}.parquet"
    worker_store(folder.store).put(folder.folder + file, content)
    return file


def footers_of_names(names: Iterable[str]) -> int:
    """Return the sum of the CRC-32 of the footers that these parts were written with, and 0 for one without it."""
    found = (_FOOTER.search(name) for name in names)
    return sum(int(footer[1], 16) for footer in found if footer)


def read_part(store: ObjectStore, key: str) -> bytes:
    """Return the content of a Parquet file of a stage. One that ``write_parts`` wrote has the digest in its name.

    Raises ``ObjectNotFoundError``, and ``CorruptFileError`` if it was read twice with another content: that may be an
    answer about another part of the same size and number of rows.
    """
    content = store.read(key)
    digest = _DIGEST.search(key)
    if digest is None or hashlib.sha256(content).hexdigest() == digest[1]:
        return content
    with store.open_read(key) as stream:
        content = stream.read()
    if hashlib.sha256(content).hexdigest() != digest[1]:
        raise CorruptFileError(
            key,
            "it has another content than it was written with",
            remedy="Start a new run, and find out what changes files in the workspace (work_url)",
        )
    return content


def _write(batches: list[pa.RecordBatch], folder: PartsFolder) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, LISTING_SCHEMA)
    file = _write_file(table, folder)
    size_bytes = pc.sum(table["size"], min_count=0).as_py()
    return pa.RecordBatch.from_pylist([{"file": file, "rows": table.num_rows, "size_bytes": size_bytes}], schema=_PART)
