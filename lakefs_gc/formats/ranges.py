"""Ranges and metaranges: the committed content of a repository.

A commit names a metarange, which lists ranges, which list entries; both are files ``_lakefs/<id>``, and never change.
Dumps of references (commits, branches, tags) lie in the same folder and look alike; ``table_kind`` tells them apart.

Source: lakeFS ``pkg/graveler/committed``, ``pkg/catalog/catalog.proto``.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from lakefs_gc.errors import CorruptFileError, CorruptRangeError
from lakefs_gc.formats.entry import decode_value
from lakefs_gc.formats.range_data import decode_range_data
from lakefs_gc.formats.sstable import kernel
from lakefs_gc.formats.sstable.reader import BytesColumn, Table, TableProperties

RANGE_SCHEMA = pa.schema(
    [
        pa.field("address", pa.string(), nullable=False),
        pa.field("address_type", pa.int8(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("last_modified", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
"""Columns of ``read_range``: the address as stored, an ``AddressType``, bytes, the time cut to microseconds."""

METARANGE_SCHEMA = pa.schema(
    [
        pa.field("range_id", pa.string(), nullable=False),
        pa.field("min_key", pa.binary(), nullable=False),
        pa.field("max_key", pa.binary(), nullable=False),
        pa.field("entries", pa.int64(), nullable=False),
        pa.field("estimated_size", pa.int64(), nullable=False),
    ]
)
"""Columns of ``read_metarange``: the range's file name, its first and last path, its entries, bytes as estimated."""

_RANGE_ID = re.compile(rb"[0-9a-f]{64}")


class TableKind(StrEnum):
    """What a table below ``_lakefs/`` holds."""

    RANGE = "range"
    METARANGE = "metarange"
    REFS = "refs"
    """A dump of commits, branches or tags, of either type."""
    OTHER = "other"


def table_kind(properties: TableProperties) -> TableKind:
    """What the table with these properties holds."""
    if "entity" in properties.user:
        return TableKind.REFS
    kinds = {b"ranges": TableKind.RANGE, b"metaranges": TableKind.METARANGE}
    return kinds.get(properties.user.get("type", b""), TableKind.OTHER)


def known_kind(properties: TableProperties, file: str) -> TableKind:
    """What the table with these properties holds. Raises ``CorruptRangeError`` for one that does not say."""
    kind = table_kind(properties)
    if kind is TableKind.OTHER:
        # One that some lakeFS wrote without its type may be a range, whose objects are in use.
        raise CorruptRangeError(
            file,
            "it does not say whether it is a range",
            remedy="nothing was deleted; find out what wrote the file, and report it with the version of lakeFS",
        )
    return kind


def read_range(data: Any, file: str, *, keys: bool = False, details: bool = False) -> pa.RecordBatch:
    """The entries of a range, as ``RANGE_SCHEMA``, in the order of their paths.

    ``keys`` adds a column ``key: binary`` (the logical path), ``details`` adds ``e_tag: string`` and
    ``content_type: string``.

    Raises ``CorruptRangeError`` when the file is damaged, cut short, inconsistent or no range.
    """
    table = _open(data, file, TableKind.RANGE)
    layout = table.layout()
    rows, content_bytes = layout.rows, layout.content_bytes
    addresses = BytesColumn(rows, content_bytes)
    address_types = np.empty(rows, np.int8)
    sizes = np.empty(rows, np.int64)
    times_us = np.empty(rows, np.int64)
    # Columns that nobody asked for get no memory: the kernel leaves them alone.
    key_column = BytesColumn(rows, layout.key_bytes) if keys else BytesColumn(0, 0)
    e_tags, content_types = (BytesColumn(rows, content_bytes) if details else BytesColumn(0, 0) for _ in range(2))
    status, offset, found = kernel.decode_range(
        *layout.source,
        addresses.offsets,
        addresses.content,
        address_types,
        sizes,
        times_us,
        addresses.capacity,
        keys,
        key_column.offsets,
        key_column.content,
        key_column.capacity,
        details,
        e_tags.offsets,
        e_tags.content,
        content_types.offsets,
        content_types.content,
    )
    table.check_end(status, offset, found)
    _check_count(table)
    columns = [
        addresses.string(file, "an address"),
        pa.array(address_types),
        pa.array(sizes),
        pa.array(times_us).view(pa.timestamp("us", tz="UTC")),
    ]
    schema = RANGE_SCHEMA
    if keys:
        columns.append(key_column.binary())
        schema = schema.append(pa.field("key", pa.binary(), nullable=False))
    if details:
        columns += [e_tags.string(file, "an ETag"), content_types.string(file, "a content type")]
        schema = schema.append(pa.field("e_tag", pa.string(), nullable=False))
        schema = schema.append(pa.field("content_type", pa.string(), nullable=False))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def read_metarange(data: Any, file: str) -> pa.RecordBatch:
    """The ranges of a metarange, as ``METARANGE_SCHEMA``, in the order of their keys.

    Raises ``CorruptRangeError`` when the file is damaged, cut short, inconsistent or no metarange.
    """
    table = _open(data, file, TableKind.METARANGE)
    pairs = table.pairs()
    _check_count(table)
    columns: dict[str, list[Any]] = {name: [] for name in METARANGE_SCHEMA.names}
    for key, value in zip(pairs["key"].to_pylist(), pairs["value"].to_pylist(), strict=True):
        try:
            range_id, message = decode_value(value, file=file)
            described = decode_range_data(message, file=file)
        except CorruptFileError as error:
            raise table.corrupt(error.facts["reason"]) from None
        if not _RANGE_ID.fullmatch(range_id):
            raise table.corrupt(f"{range_id[:80]!r} is no id of a range")
        if described.max_key != key or described.min_key > key or described.count < 0:
            raise table.corrupt(f"range {range_id.decode()} is described inconsistently")
        columns["range_id"].append(range_id.decode())
        columns["min_key"].append(described.min_key)
        columns["max_key"].append(described.max_key)
        columns["entries"].append(described.count)
        columns["estimated_size"].append(described.estimated_size_bytes)
    try:
        return pa.RecordBatch.from_pydict(columns, schema=METARANGE_SCHEMA)
    except (pa.ArrowInvalid, OverflowError):
        raise table.corrupt("a range has an impossible size") from None


def _open(data: Any, file: str, expected: TableKind) -> Table:
    table = Table(data, file)
    kind = table_kind(table.properties)
    if kind != expected:
        raise CorruptRangeError(file, f"this is no {expected} but a table of another kind ({kind})")
    return table


def _check_count(table: Table) -> None:
    """lakeFS counts for itself, beside the table's own count."""
    count = table.properties.user.get("count")
    if count is not None and count != b"%d" % table.properties.entries:
        raise table.corrupt(f"{table.properties.entries} entries, but lakeFS wrote {count[:20]!r} of them")
