"""Read the Parquet files of a stage, and verify that they are complete.

Spark silently skips a file that is missing from a folder, and a file that is empty. The references in such a file would
be lost, and their objects would be deleted. So a stage records its files and their sizes, and its rows are counted from
the footers of the files, as this machine reads them, when it was written and before Spark reads it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakefs_gc.engine.spark.compat import arrow_schema
from lakefs_gc.engine.spark.local_rows import struct_of
from lakefs_gc.engine.spark.parts import read_part
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.errors import CorruptFileError
from lakefs_gc.formats.parquet import read_columns
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered

_FOOTER_BYTES = 64 * 1024
_READS_ALL_PAGES = {
    "parquet.page.verify-checksum.enabled": "true",
    "parquet.filter.columnindex.enabled": "false",
    "parquet.filter.dictionary.enabled": "false",
    "parquet.filter.bloom.enabled": "false",
}
"""Options of Spark's Parquet reader. Its writer adds a checksum to each page, but none to an index of the pages. With
one flipped bit there, a filter omits rows that it should pass, and each join filters.
"""
_MAGIC_BYTES = 8  # length of the metadata, and PAR1
_READS_AT_ONCE = 16


def read_parquet(spark: SparkSession, schema: StructType | str, folder_url: str, names: Iterable[str]) -> DataFrame:
    """Return files below a folder as a DataFrame. Names of folders between them (``column=value``) become columns.

    A missing or corrupt file fails the query, whatever the cluster's settings are. Raises ``SparkFailedError`` if Spark
    cannot reach the folder.
    """
    strict = spark.read.options(ignoreMissingFiles="false", ignoreCorruptFiles="false", **_READS_ALL_PAGES)
    urls = (f"{folder_url}/{name}" for name in names)
    with driver_errors():  # Spark looks for the files now
        return strict.option("basePath", folder_url).schema(schema).parquet(*urls)


def read_table(store: ObjectStore, keys: Iterable[str], schema: StructType | str) -> pa.Table:
    """Return Parquet files with the columns of ``schema``, in the driver.

    Raise ``ObjectNotFoundError`` and ``CorruptFileError``.
    """
    fields = arrow_schema(struct_of(schema))
    read = [read_columns(read_part(store, key), fields, key) for key in keys]
    return pa.concat_tables(read) if read else fields.empty_table()


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
    content = _read_end(store, key)
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
    needed = int.from_bytes(end[-_MAGIC_BYTES:][:4], "little") + _MAGIC_BYTES
    if needed > len(end) == _FOOTER_BYTES:
        end = store.read_end(key, needed)
    return end[-needed:]


def _parsed(end: bytes, key: str) -> pq.FileMetaData:
    try:
        return pq.read_metadata(pa.BufferReader(end))
    except (pa.ArrowException, OSError) as error:
        raise CorruptFileError(
            key, f"not a complete Parquet file: {str(error)[:200]}", remedy="Start a new run"
        ) from None
