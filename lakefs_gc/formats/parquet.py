"""Read and write whole Parquet files in memory: lakeFS's lists, the reports of a run, and the records beside them.

Each page that is written has a CRC-32, and if a page that is read has one, it must be right: a flipped bit in a page
may be another address.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakefs_gc.errors import CorruptFileError

_MAX_ROWS = 1 << 28
"""Far more rows than lakeFS or a collector writes into one file."""
_MAGIC_BYTES = 8  # length of the metadata, and PAR1


def read_strings(data: bytes, column: str, file: str) -> pa.StringArray:
    """Return one string column of a Parquet file, with all rows in one array.

    Raise ``CorruptFileError`` if the file cannot be parsed, or the column is missing, has another type, or contains
    nulls or invalid UTF-8.
    """
    with refusing(file):
        values = _read(data, [column], file).column(column)
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            raise CorruptFileError(file, f"the column {column!r} contains {values.type}, not strings")
        if values.null_count:
            raise CorruptFileError(file, f"{values.null_count} rows have no {column!r}")
        strings = pa.concat_arrays(values.cast(pa.string()).chunks) if values.num_chunks else pa.array([], pa.string())
        strings.validate(full=True)
    return strings


def has_column(data: bytes, column: str, file: str) -> bool:
    """Return whether a Parquet file has a column of this name. Raise ``CorruptFileError`` if it cannot be parsed."""
    with refusing(file):
        return column in pq.read_schema(pa.BufferReader(data)).names


def read_columns(data: bytes, schema: pa.Schema, file: str, *, optional: tuple[str, ...] = ()) -> pa.Table:
    """Return the columns of ``schema``, cast to it; columns of ``optional`` are null if the file lacks them.

    Raise ``CorruptFileError`` if the file cannot be parsed, or a column is missing, has another type, has nulls that
    the schema forbids, or contains invalid UTF-8.
    """
    with refusing(file):
        table = _read(data, [field.name for field in schema if field.name not in optional], file, optional)
        columns = [
            table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(len(table), field.type)
            for field in schema
        ]
        for field, column in zip(schema, columns, strict=True):
            stated = table[field.name].type if field.name in table.column_names else field.type
            if pa.types.is_timestamp(field.type) and getattr(stated, "unit", "") != field.type.unit:
                # One flipped bit makes microseconds of nanoseconds, and casting them gives a time of 1970.
                raise CorruptFileError(file, f"the column {field.name!r} contains {stated}, not {field.type}")
            if column.null_count and not field.nullable:
                raise CorruptFileError(file, f"{column.null_count} rows have no {field.name!r}")
        table = pa.Table.from_arrays(columns, schema=schema)
        table.validate(full=True)
    return table


def _read(data: bytes, names: list[str], file: str, optional: tuple[str, ...] = ()) -> pa.Table:
    parquet = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    existing = parquet.schema_arrow.names
    wanted = [*names, *(name for name in optional if name in existing)]
    for name in wanted:
        if existing.count(name) != 1:
            raise CorruptFileError(file, f"the column {name!r} is missing or repeated: {existing}")
    _check_rows(parquet.metadata, file)
    table = parquet.read(wanted)
    if len(table) != parquet.metadata.num_rows:
        raise CorruptFileError(file, f"the file has {len(table)} rows instead of {parquet.metadata.num_rows}")
    return table


def _check_rows(metadata: pq.FileMetaData, file: str) -> None:
    """Raise an error for impossible numbers of rows, because Arrow allocates memory for as many as a row group states.

    A flipped bit there could exhaust the memory. The metadata of columns is not checked here: for some damage to it
    Arrow ends the process, unless it is reading.
    """
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    if sum(rows) != metadata.num_rows:
        raise CorruptFileError(file, "the numbers of rows in its parts contradict each other")
    if any(not 0 <= count <= _MAX_ROWS for count in [*rows, metadata.num_rows]):
        raise CorruptFileError(file, f"impossible number of rows: {metadata.num_rows}")


def footer_in(data: bytes) -> bytes:
    """Return the footer of a Parquet file, with its length and the last magic bytes; ``data`` may be the end alone."""
    return data[-footer_size(data) :]


def footer_size(data: bytes) -> int:
    """Return the size in bytes that a file states for ``footer_in``."""
    return int.from_bytes(data[-_MAGIC_BYTES:][:4], "little") + _MAGIC_BYTES


@contextmanager
def refusing(file: str) -> Iterator[None]:
    """Convert all errors that Arrow raises for a damaged file, its own and Python's, to ``CorruptFileError``."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, KeyError) as error:
        # Arrow's message may have several lines, and quote the content of the file.
        reason = (str(error).splitlines() or [""])[0][:200]
        raise CorruptFileError(file, f"not a complete Parquet file: {reason}") from error


def parquet_bytes(batch: pa.RecordBatch, **options: Any) -> bytes:
    """Return a Parquet file of one batch, with checksums; the options are those of ``pyarrow.parquet.write_table``."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([batch]), sink, write_page_checksum=True, **options)
    content: bytes = sink.getvalue().to_pybytes()
    return content
