"""Read the Parquet files of a stage, and verify that they are complete.

Spark silently skips a file that is missing from a folder, and a file that is empty. The references in such a file would
be lost, and their objects would be deleted. So a stage records its files and their sizes. Its rows are counted from the
footers of the files, as this machine reads them, when it was written, before Spark reads it, and as it is read here.

No checksum of a page covers a footer. With one flipped bit there, a column seems to have no nulls. Then each reader
takes the marks of nulls for the first value, and omits the last one. So the sum of the CRC-32 of the footers is
recorded, too, and what Spark has written is read back once, and compared by a sum over its rows (``row_sum``).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakefs_gc.engine.spark.compat import arrow_schema
from lakefs_gc.engine.spark.local_rows import struct_of
from lakefs_gc.engine.spark.parts import read_part
from lakefs_gc.engine.spark.workers import driver_errors, worker_store
from lakefs_gc.errors import CorruptFileError
from lakefs_gc.formats.parquet import footer_in, footer_size, read_columns, read_strings
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.location import StoreLocation

_FOOTER_BYTES = 64 * 1024
_READS_ALL_PAGES = {
    "parquet.page.verify-checksum.enabled": "true",
    "parquet.filter.columnindex.enabled": "false",
    "parquet.filter.dictionary.enabled": "false",
    "parquet.filter.bloom.enabled": "false",
    "parquet.filter.stats.enabled": "false",
}
"""Options of Spark's Parquet reader. Its writer adds a checksum to each page, but none to an index of the pages. With
one flipped bit there, a filter omits rows that it should pass, and each join filters.
"""
_READS_AT_ONCE = 16
_LOW_28_BITS = 0x0FFF_FFFF
"""Of a hash: so the sum of 10¹⁰ rows fits into 64 bits."""


@dataclass(frozen=True)
class StageFiles:
    """The Parquet files of a stage, by their keys in the store of the workspace, and the sums over them.

    ``stage`` is for errors. ``footers`` is that of the manifest, and 0 if it is unknown.
    """

    store: StoreLocation
    keys: tuple[str, ...]
    rows: int = 0
    footers: int = 0
    stage: str = ""

    def strings(self, column: str) -> Iterator[pa.StringArray]:
        """Yield a column, file by file, in a worker. Raises ``ObjectNotFoundError`` and ``CorruptFileError``."""
        for key, content in self._contents(worker_store(self.store)):
            yield read_strings(content, column, key)

    def table(self, store: ObjectStore, schema: StructType | str) -> pa.Table:
        """Return all rows with the columns of ``schema``, in the driver. Raises as ``strings``."""
        fields = arrow_schema(struct_of(schema))
        tables = [read_columns(content, fields, key) for key, content in self._contents(store)]
        return pa.concat_tables(tables) if tables else fields.empty_table()

    def _contents(self, store: ObjectStore) -> Iterator[tuple[str, bytes]]:
        """Yield each key and content, and at the end raise ``CorruptFileError`` if they are not what was written."""
        read = FilesRead()
        for key in self.keys:
            content = read_part(store, key)
            read.add(content, key)
            yield key, content
        self.refuse_others(read)

    def refuse_others(self, read: FilesRead) -> None:
        """Raise ``CorruptFileError`` if what was read is not what was written."""
        if (read.rows, read.footers) != (self.rows, self.footers or read.footers):
            raise CorruptFileError(
                self.stage,
                f"it was written with {self.rows:,} rows, and has {read.rows:,}, or its files have other footers",
                remedy="Start a new run, and find out what changes files in the workspace (work_url)",
            )


@dataclass
class FilesRead:
    """The number of rows of the files that were read, and the sum of the CRC-32 of their footers."""

    rows: int = 0
    footers: int = 0

    def add(self, content: bytes, key: str) -> None:
        """Count a whole file, or its end. Raises ``CorruptFileError``."""
        rows, checksum = _facts_of(footer_in(content), key)
        self.rows += rows
        self.footers += checksum


def row_sum(columns: Sequence[str], where: Column | None = None) -> Column:
    """Return an aggregate that is the same for the same rows, in any order; null for no rows."""
    number = F.xxhash64(*columns).bitwiseAND(F.lit(_LOW_28_BITS))
    return F.sum(number if where is None else F.when(where, number))


def read_parquet(spark: SparkSession, schema: StructType | str, folder_url: str, names: Iterable[str]) -> DataFrame:
    """Return files below a folder as a DataFrame. Names of folders between them (``column=value``) become columns.

    A missing or corrupt file fails the query, whatever the cluster's settings are. Raises ``SparkFailedError`` if Spark
    cannot reach the folder.
    """
    strict = spark.read.options(ignoreMissingFiles="false", ignoreCorruptFiles="false", **_READS_ALL_PAGES)
    urls = (f"{folder_url}/{name}" for name in names)
    with driver_errors():  # Spark looks for the files now
        return strict.option("basePath", folder_url).schema(schema).parquet(*urls)


def data_files(store: ObjectStore, folder: str) -> dict[str, int]:
    """Return name to size in bytes of each data file below ``folder`` (with its final slash)."""
    files = {}
    for batch in store.list(folder):
        for address, size_bytes in zip(batch["address"].to_pylist(), batch["size"].to_pylist(), strict=True):
            name = address.removeprefix(folder)
            if not any(part.startswith((".", "_")) for part in name.split("/")):
                files[name] = size_bytes
    return files


def rows_in(store: ObjectStore, keys: Iterable[str]) -> int:
    """Return the total number of rows of Parquet files, from their footers.

    Raises ``ObjectNotFoundError`` and ``CorruptFileError``.
    """
    return footers_of(store, keys)[0]


def footers_of(store: ObjectStore, keys: Iterable[str]) -> tuple[int, int]:
    """Return the total number of rows of Parquet files, from their footers, and the sum of the CRC-32 of these.

    No page's checksum covers a footer, and Spark omits a row group that has a negative number of rows, or seems to lie
    elsewhere, without an error.
    Raises ``ObjectNotFoundError`` and ``CorruptFileError``.
    """
    found = [facts for _, facts in map_unordered(lambda key: _footer_of(store, key), keys, _READS_AT_ONCE)]
    return sum(rows for rows, _ in found), sum(checksum for _, checksum in found)


def _footer_of(store: ObjectStore, key: str) -> tuple[int, int]:
    return _facts_of(_read_end(store, key), key)


def _facts_of(content: bytes, key: str) -> tuple[int, int]:
    footer = _parsed(content, key)
    rows = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    # The manifest of an earlier version has no checksum of this.
    if sum(rows) != footer.num_rows or any(number < 0 for number in rows):
        raise CorruptFileError(key, "the numbers of rows in its parts contradict each other", remedy="Start a new run")
    return int(footer.num_rows), zlib.crc32(content)


def read_footer(store: ObjectStore, key: str) -> pq.FileMetaData:
    """Return the footer of a Parquet file, without reading its rows.

    Raises ``ObjectNotFoundError`` and ``CorruptFileError``.
    """
    return _parsed(_read_end(store, key), key)


def _read_end(store: ObjectStore, key: str) -> bytes:
    end = store.read_end(key, _FOOTER_BYTES)
    if footer_size(end) > len(end) == _FOOTER_BYTES:
        end = store.read_end(key, footer_size(end))
    return footer_in(end)


def _parsed(end: bytes, key: str) -> pq.FileMetaData:
    try:
        return pq.read_metadata(pa.BufferReader(end))
    except (pa.ArrowException, OSError) as error:
        raise CorruptFileError(
            key, f"not a complete Parquet file: {str(error)[:200]}", remedy="Start a new run"
        ) from None
