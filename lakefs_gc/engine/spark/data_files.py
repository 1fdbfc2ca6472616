"""Read the Parquet files of a stage, and verify that they are complete.

Spark silently skips a file that is missing from a folder, and a file that is empty. The references in such a file would
be lost, and their objects would be deleted. So a stage records its files and their sizes, and its rows are counted from
the footers of the files, as this machine reads them, when it was written and before Spark reads it.
"""

from __future__ import annotations

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
_VERIFY = "parquet.page.verify-checksum.enabled"
"""An option of Spark's Parquet reader. Spark's writer adds a checksum to each page anyway."""
_MAGIC_BYTES = 8  # length of the metadata, and PAR1
_READS_AT_ONCE = 16


def read_parquet(spark: SparkSession, schema: StructType | str, folder_url: str, names: Iterable[str]) -> DataFrame:
    """Return files below a folder as a DataFrame. Names of folders between them (``column=value``) become columns.

    A missing or corrupt file fails the query, whatever the cluster's settings are. Raises ``SparkFailedError`` if Spark
    cannot reach the folder.
    """
    strict = spark.read.options(ignoreMissingFiles="false", ignoreCorruptFiles="false").option(_VERIFY, "true")
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
    return sum(rows for _, rows in map_unordered(lambda key: _rows_in(store, key), keys, _READS_AT_ONCE))


def _rows_in(store: ObjectStore, key: str) -> int:
    footer = read_footer(store, key)
    rows = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    # Spark reads nothing, and says nothing, where the number of a row group is negative.
    if sum(rows) != footer.num_rows or any(number < 0 for number in rows):
        raise CorruptFileError(key, "the numbers of rows in its parts contradict each other", remedy="Start a new run")
    return int(footer.num_rows)


def read_footer(store: ObjectStore, key: str) -> pq.FileMetaData:
    """Return the footer of a Parquet file, without reading its rows.

    Raises ``ObjectNotFoundError`` and ``CorruptFileError``.
    """
    end = store.read_end(key, _FOOTER_BYTES)
    needed = int.from_bytes(end[-_MAGIC_BYTES:][:4], "little") + _MAGIC_BYTES
    if needed > len(end) == _FOOTER_BYTES:
        end = store.read_end(key, needed)
    try:
        return pq.read_metadata(pa.BufferReader(end))
    except (pa.ArrowException, OSError) as error:
        raise CorruptFileError(
            key, f"not a complete Parquet file: {str(error)[:200]}", remedy="Start a new run"
        ) from None
