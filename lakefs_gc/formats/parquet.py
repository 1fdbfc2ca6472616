"""Whole Parquet files with a column of addresses, in memory: lakeFS's lists, and the reports of a run."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakefs_gc.errors import CorruptFileError


def read_strings(data: bytes, column: str, file: str) -> pa.StringArray:
    """One string column of a Parquet file, all rows in one array.

    Raises ``CorruptFileError`` when the file does not parse, or the column is missing, is no string, holds
    nulls or invalid UTF-8.
    """
    try:
        parquet = pq.ParquetFile(pa.BufferReader(data))
        if column not in parquet.schema_arrow.names:
            raise CorruptFileError(file, f"there is no column {column!r}, only {parquet.schema_arrow.names}")
        table = parquet.read([column])
        values = table.column(column)
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            raise CorruptFileError(file, f"the column {column!r} holds {values.type}, not strings")
        if values.null_count:
            raise CorruptFileError(file, f"{values.null_count} rows have no {column!r}")
        if len(values) != parquet.metadata.num_rows:
            raise CorruptFileError(file, f"{len(values)} rows instead of {parquet.metadata.num_rows}")
        strings = pa.concat_arrays(values.cast(pa.string()).chunks) if values.num_chunks else pa.array([], pa.string())
        strings.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        # Arrow's message may go on for lines, and quote what it read.
        reason = str(error).splitlines()[0][:200]
        raise CorruptFileError(file, f"this is not a whole Parquet file: {reason}") from error
    return strings


def parquet_bytes(batch: pa.RecordBatch, **options: Any) -> bytes:
    """A Parquet file of one batch; options as of ``pyarrow.parquet.write_table``."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([batch]), sink, **options)
    content: bytes = sink.getvalue().to_pybytes()
    return content
