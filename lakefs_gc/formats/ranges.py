"""Read ranges and metaranges: the committed content of a repository.

A commit names a metarange, a metarange lists ranges, and a range lists entries. Both are files ``_lakefs/<id>``, and
never change. Dumps of references (commits, branches, tags) are in the same folder and have the same format;
``table_kind`` distinguishes them.

Source: lakeFS ``pkg/graveler/committed``, ``pkg/catalog/catalog.proto``.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from lakefs_gc.errors import CorruptFileError, CorruptRangeError
from lakefs_gc.formats.entry import decode_value
from lakefs_gc.formats.range_data import decode_range_data
from lakefs_gc.formats.sstable import kernel
from lakefs_gc.formats.sstable.reader import BytesColumn, Table, TableProperties, opened

RANGE_SCHEMA = pa.schema(
    [
        pa.field("address", pa.string(), nullable=False),
        pa.field("address_type", pa.int8(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("last_modified", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
"""Columns of ``read_range``: the address as stored, an ``AddressType``, bytes, the time truncated to microseconds."""

METARANGE_SCHEMA = pa.schema(
    [
        pa.field("range_id", pa.string(), nullable=False),
        pa.field("min_key", pa.binary(), nullable=False),
        pa.field("max_key", pa.binary(), nullable=False),
        pa.field("entries", pa.int64(), nullable=False),
        pa.field("estimated_size", pa.int64(), nullable=False),
    ]
)
"""Columns of ``read_metarange``: the file name of the range, its first and last path, its entries, estimated bytes."""

_RANGE_ID = re.compile(rb"[0-9a-f]{64}")
_DESCRIPTIONS = 20_000
"""The most descriptions of ranges that are remembered, each of about 600 bytes."""


class TableKind(StrEnum):
    """The kind of a table below ``_lakefs/``."""

    RANGE = "range"
    METARANGE = "metarange"
    REFS = "refs"
    """A dump of commits, branches or tags, with either type."""
    OTHER = "other"


def table_kind(properties: TableProperties) -> TableKind:
    """Return the kind of the table with these properties."""
    if "entity" in properties.user:
        return TableKind.REFS
    kinds = {b"ranges": TableKind.RANGE, b"metaranges": TableKind.METARANGE}
    return kinds.get(properties.user.get("type", b""), TableKind.OTHER)


def known_kind(properties: TableProperties, file: str) -> TableKind:
    """Return the kind of the table with these properties. Raise ``CorruptRangeError`` if they do not state it."""
    kind = table_kind(properties)
    if kind is TableKind.OTHER:
        # A table that some lakeFS wrote without its type may be a range with objects that are in use.
        raise CorruptRangeError(
            file,
            "the file does not state whether it is a range",
            remedy="Find out which program wrote the file, and report it with the version of lakeFS. Nothing was "
            "deleted",
        )
    return kind


def read_range(data: Any, file: str, *, keys: bool = False, details: bool = False) -> pa.RecordBatch:
    """Return the entries of a range, as ``RANGE_SCHEMA``, in the order of their paths.

    ``data`` is ``TableData``: the content of the file, or its ``Table``.
    ``keys`` adds a column ``key: binary`` (the logical path), ``details`` adds ``e_tag: string`` and
    ``content_type: string``. Raise ``CorruptRangeError`` if the file is damaged, truncated, inconsistent or not a
    range.
    """
    table = _open(data, file, TableKind.RANGE)
    decoded = table.decoded
    rows, content_bytes = table.properties.entries, decoded.value_bytes
    addresses = BytesColumn(rows, content_bytes)
    address_types = np.empty(rows, np.int8)
    sizes = np.empty(rows, np.int64)
    times_us = np.empty(rows, np.int64)
    # Columns that were not requested get no memory: the kernel does not write them.
    e_tags, content_types = (BytesColumn(rows, content_bytes) if details else BytesColumn(0, 0) for _ in range(2))
    status, offset = kernel.decode_entries(
        decoded.content,
        decoded.spans,
        addresses.offsets,
        addresses.content,
        address_types,
        sizes,
        times_us,
        addresses.capacity,
        details,
        e_tags.offsets,
        e_tags.content,
        content_types.offsets,
        content_types.content,
    )
    table.check(status, offset)
    _check_count(table)
    columns = [
        addresses.string(file, "an address"),
        # ``pa.array`` of these three takes 18 µs, and this 5: a quarter of what a range takes beside its content.
        *(
            pa.Array.from_buffers(RANGE_SCHEMA.field(name).type, rows, [None, pa.py_buffer(values)])
            for name, values in (("address_type", address_types), ("size", sizes), ("last_modified", times_us))
        ),
    ]
    schema = RANGE_SCHEMA
    if keys:
        columns.append(decoded.keys().binary())
        schema = schema.append(pa.field("key", pa.binary(), nullable=False))
    if details:
        columns += [e_tags.string(file, "an ETag"), content_types.string(file, "a content type")]
        schema = schema.append(pa.field("e_tag", pa.string(), nullable=False))
        schema = schema.append(pa.field("content_type", pa.string(), nullable=False))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def read_metarange(data: Any, file: str) -> pa.RecordBatch:
    """Return the ranges of a metarange, as ``METARANGE_SCHEMA``, in the order of their keys.

    ``data`` is as for ``read_range``. Raise ``CorruptRangeError`` if the file is damaged, truncated, inconsistent or
    not a metarange.
    """
    table = _open(data, file, TableKind.METARANGE)
    pairs = table.pairs()
    _check_count(table)
    try:
        rows = [_described(*pair) for pair in zip(*(pairs[name].to_pylist() for name in ("key", "value")), strict=True)]
    except CorruptFileError as error:
        raise table.corrupt(error.facts["reason"]) from None
    columns = zip(*rows, strict=True) if rows else ((),) * len(METARANGE_SCHEMA)
    try:
        return pa.RecordBatch.from_pydict(
            dict(zip(METARANGE_SCHEMA.names, map(list, columns), strict=True)), schema=METARANGE_SCHEMA
        )
    except (pa.ArrowInvalid, OverflowError):
        raise table.corrupt("a range has an invalid size") from None


@lru_cache(_DESCRIPTIONS)
def _described(key: bytes, value: bytes) -> tuple[str, bytes, bytes, int, int]:
    """Return a row of ``METARANGE_SCHEMA``. Raise ``CorruptFileError``. Most commits share most of their ranges."""
    range_id, message = decode_value(value)
    described = decode_range_data(message)
    if not _RANGE_ID.fullmatch(range_id):
        raise CorruptFileError("value", f"{range_id[:80]!r} is not the id of a range")
    if described.max_key != key or described.min_key > key or described.count < 0:
        raise CorruptFileError("value", f"the description of range {range_id.decode()} is inconsistent")
    sizes = described.count, described.estimated_size_bytes
    return range_id.decode(), described.min_key, described.max_key, *sizes


def _open(data: Any, file: str, expected: TableKind) -> Table:
    table = opened(data, file)
    kind = table_kind(table.properties)
    if kind != expected:
        raise CorruptRangeError(file, f"expected a {expected}, but the table is of the kind {kind}")
    return table


def _check_count(table: Table) -> None:
    """Compare the number of entries with lakeFS's own count in the properties."""
    count = table.properties.user.get("count")
    if count is not None and count != b"%d" % table.properties.entries:
        raise table.corrupt(f"the table has {table.properties.entries} entries, but lakeFS recorded {count[:20]!r}")
