"""Whole Parquet files in memory: lakeFS's lists, the reports of a run, and the records that are kept beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakefs_gc.errors import CorruptFileError

_MOST_ROWS = 1 << 28
"""Far more than lakeFS or a collector writes into one file."""


def read_strings(data: bytes, column: str, file: str) -> pa.StringArray:
    """One string column of a Parquet file, all rows in one array.

    Raises ``CorruptFileError`` when the file does not parse, or the column is missing, is no string, holds
    nulls or invalid UTF-8.
    """
    with _refusing(file):
        values = _read(data, [column], file).column(column)
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            raise CorruptFileError(file, f"the column {column!r} holds {values.type}, not strings")
        if values.null_count:
            raise CorruptFileError(file, f"{values.null_count} rows have no {column!r}")
        strings = pa.concat_arrays(values.cast(pa.string()).chunks) if values.num_chunks else pa.array([], pa.string())
        strings.validate(full=True)
    return strings


def has_column(data: bytes, column: str, file: str) -> bool:
    """Whether a Parquet file has a column of this name. Raises ``CorruptFileError`` when it does not parse."""
    with _refusing(file):
        return column in pq.read_schema(pa.BufferReader(data)).names


def read_columns(data: bytes, schema: pa.Schema, file: str, *, optional: tuple[str, ...] = ()) -> pa.Table:
    """The columns of ``schema``, cast to it; those of ``optional`` are null where the file does not have them.

    Raises ``CorruptFileError`` when the file does not parse, or a column is missing, is of another type, has nulls
    where the schema allows none, or holds invalid UTF-8.
    """
    with _refusing(file):
        table = _read(data, [field.name for field in schema if field.name not in optional], file, optional)
        columns = [
            table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(len(table), field.type)
            for field in schema
        ]
        for field, column in zip(schema, columns, strict=True):
            if column.null_count and not field.nullable:
                raise CorruptFileError(file, f"{column.null_count} rows have no {field.name!r}")
        table = pa.Table.from_arrays(columns, schema=schema)
        table.validate(full=True)
    return table


def _read(data: bytes, names: list[str], file: str, optional: tuple[str, ...] = ()) -> pa.Table:
    parquet = pq.ParquetFile(pa.BufferReader(data))
    there = parquet.schema_arrow.names
    wanted = [*names, *(name for name in optional if name in there)]
    for name in wanted:
        if there.count(name) != 1:
            raise CorruptFileError(file, f"there is no column {name!r}, or more than one: {there}")
    _check_rows(parquet.metadata, file)
    table = parquet.read(wanted)
    if len(table) != parquet.metadata.num_rows:
        raise CorruptFileError(file, f"{len(table)} rows instead of {parquet.metadata.num_rows}")
    return table


def _check_rows(metadata: pq.FileMetaData, file: str) -> None:
    """Arrow makes room for as many rows as a row group says: a flipped bit there may ask for all memory there is.

    Not looked at: what is said of columns. Arrow ends the process over some damage to it, unless it is reading.
    """
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    if sum(rows) != metadata.num_rows:
        raise CorruptFileError(file, "its parts do not agree on how many rows there are")
    if any(not 0 <= count <= _MOST_ROWS for count in [*rows, metadata.num_rows]):
        raise CorruptFileError(file, f"it cannot have {metadata.num_rows} rows")


@contextmanager
def _refusing(file: str) -> Iterator[None]:
    """Whatever Arrow raises over a file that is no Parquet: its own errors, and Python's over names and numbers."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, KeyError) as error:
        # Arrow's message may go on for lines, and quote what it read.
        reason = (str(error).splitlines() or [""])[0][:200]
        raise CorruptFileError(file, f"this is not a whole Parquet file: {reason}") from error


def parquet_bytes(batch: pa.RecordBatch, **options: Any) -> bytes:
    """A Parquet file of one batch; options as of ``pyarrow.parquet.write_table``."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([batch]), sink, **options)
    content: bytes = sink.getvalue().to_pybytes()
    return content
