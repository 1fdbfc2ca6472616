"""The addresses of staged objects that lakeFS prepares for a run.

``_lakefs/retention/gc/uncommitted/<run id>/uncommitted/<xid>``: Parquet files, one for each page of the preparation,
with the address of each staged entry, relative to the namespace, and the time of the entry in seconds.

Source: lakeFS ``pkg/catalog/catalog.go`` (``UncommittedParquetObject``),
``pkg/catalog/gc_write_uncommitted.go``.
"""

from __future__ import annotations

import pyarrow as pa

from lakefs_gc.formats.parquet import parquet_bytes, read_strings

UNCOMMITTED_SCHEMA = pa.schema([pa.field("address", pa.string(), nullable=False)])
"""The column of uncommitted addresses, relative to the namespace; an address may be repeated."""

UNCOMMITTED_FILE_SCHEMA = pa.schema(
    [
        pa.field("physical_address", pa.string(), nullable=False),
        pa.field("creation_date", pa.int64(), nullable=False),
    ]
)
"""Columns of the file: the address relative to the namespace, seconds since 1970."""


def read_uncommitted(data: bytes, file: str) -> pa.RecordBatch:
    """Return the addresses of one page, as ``UNCOMMITTED_SCHEMA``; a page without rows is valid.

    Raise ``CorruptFileError`` unless the file is a complete Parquet file with a ``physical_address`` in each row.
    """
    addresses = read_strings(data, "physical_address", file)
    return pa.RecordBatch.from_arrays([addresses], schema=UNCOMMITTED_SCHEMA)


def write_uncommitted(batch: pa.RecordBatch) -> bytes:
    """Return a page of ``UNCOMMITTED_FILE_SCHEMA`` rows, in the Parquet that lakeFS writes: GZIP, format version 1."""
    return parquet_bytes(batch.cast(UNCOMMITTED_FILE_SCHEMA), compression="gzip", version="1.0")
