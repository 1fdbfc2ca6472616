"""The Parquet files of a stage: which they are, and that they hold what was written.

Spark passes over a file that is gone from a folder, and over one that is empty, without a word.  A reference in it
would be gone with it, and what it refers to would be deleted.  So a stage knows its files and their sizes, and its rows
are counted where they lie: in the footers of the files, as this machine sees them.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakefs_gc.errors import CorruptFileError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered

_FOOTER_BYTES = 64 * 1024
_MAGIC_BYTES = 8  # length of the metadata, and PAR1
_READS_AT_ONCE = 16


def read_parquet(spark: SparkSession, schema: StructType | str, folder_url: str, names: Iterable[str]) -> DataFrame:
    """Files below a folder as a DataFrame; names of folders between them (``column=value``) are columns, too.

    What a cluster's settings say of files that are missing or corrupt is void.
    """
    strict = spark.read.option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")
    urls = (f"{folder_url}/{name}" for name in names)
    return strict.option("basePath", folder_url).schema(schema).parquet(*urls)


def data_files(store: ObjectStore, folder: str) -> dict[str, int]:
    """Name below ``folder`` (with its final slash) to size in bytes of each file that is data."""
    files = {}
    for batch in store.list(folder):
        for address, size_bytes in zip(batch["address"].to_pylist(), batch["size"].to_pylist(), strict=True):
            name = address.removeprefix(folder)
            if not any(part.startswith((".", "_")) for part in name.split("/")):
                files[name] = size_bytes
    return files


def rows_in(store: ObjectStore, keys: Iterable[str]) -> int:
    """How many rows Parquet files have together, by their footers.

    Raises ``ObjectNotFoundError`` and ``CorruptFileError``.
    """
    return sum(rows for _, rows in map_unordered(lambda key: _rows_in(store, key), keys, _READS_AT_ONCE))


def _rows_in(store: ObjectStore, key: str) -> int:
    end = store.read_end(key, _FOOTER_BYTES)
    needed = int.from_bytes(end[-_MAGIC_BYTES:][:4], "little") + _MAGIC_BYTES
    if needed > len(end) == _FOOTER_BYTES:
        end = store.read_end(key, needed)
    try:
        rows: int = pq.read_metadata(pa.BufferReader(end)).num_rows
    except (pa.ArrowException, OSError) as error:
        raise CorruptFileError(
            key, f"not a complete Parquet file: {str(error)[:200]}", remedy="start a new run"
        ) from None
    return rows
