"""Read the rows of inventory files as rows of a listing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.orc as orc
import pyarrow.parquet as pq

from lakefs_gc.errors import CorruptFileError
from lakefs_gc.storage.base import LISTING_SCHEMA, ObjectStore
from lakefs_gc.storage.listing.inventory import read_verified
from lakefs_gc.storage.listing.inventory_manifest import Inventory, InventoryFile, Kind
from lakefs_gc.storage.urls import BucketFolder, bucket_folder

_TIME = LISTING_SCHEMA.field("last_modified").type
_LONGEST_REPORT = timedelta(days=7)
"""How much later than the begin of a report an object in it may be: reports of large buckets take days."""
_BLOCK_BYTES = 8 * 1024**2

_COLUMNS: dict[Kind, dict[str, tuple[str, ...]]] = {
    "s3": {"name": ("key",), "size": ("size",), "time": ("last_modified_date",), "bucket": ("bucket",)},
    "azure": {"name": ("Name",), "size": ("Content-Length",), "time": ("Last-Modified", "LastModified"), "bucket": ()},
    # "updated" also changes with an object's metadata, so an object may only appear newer than it is.
    "gcs": {"name": ("name",), "size": ("size",), "time": ("updated", "timeCreated"), "bucket": ("bucket",)},
}
"""The columns of each fact, by kind; the first that a file has is used."""

_ONLY_IF: dict[Kind, dict[str, str]] = {
    "s3": {"is_latest": "true", "is_delete_marker": "false"},
    "azure": {"IsCurrentVersion": "true", "Deleted": "false", "hdi_isfolder": "false", "Snapshot": ""},
    "gcs": {"timeDeleted": ""},
}
"""The rows that are current objects, by kind: each of these columns, if a file has it, has this value or is empty."""

_COME_WITH: dict[Kind, dict[str, tuple[str, ...]]] = {
    "s3": {"version_id": ("is_latest", "is_delete_marker")},
    "azure": {"VersionId": ("IsCurrentVersion",)},
    "gcs": {},
}
"""Columns of reports that may have several versions of an object, and those that then tell which one is current."""


def read_inventory_file(
    store: ObjectStore, inventory: Inventory, file: InventoryFile, namespace: str
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield, for each part of one data file, the number of its records and those that are objects in a namespace.

    Batches have ``LISTING_SCHEMA``, with addresses relative to the namespace (a URL). Older versions, delete markers,
    deleted objects, snapshots, folders and directory markers are omitted, and so is a version that is not known to be
    current: an object that a listing omits is looked up. Raise ``CorruptFileError`` if the file differs from its
    manifest, cannot be parsed, lacks a column, or has a row without size or time.
    """
    data = read_verified(store, file)
    folder = bucket_folder(namespace)
    try:
        for table in _tables(data, inventory, file):
            yield table.num_rows, _objects(table, inventory, file, folder)
    except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError) as error:
        raise CorruptFileError(file.key, f"cannot be parsed as {inventory.file_format} ({error})") from error


def _tables(data: bytes, inventory: Inventory, file: InventoryFile) -> Iterator[pa.RecordBatch]:
    source = pa.BufferReader(data)
    if inventory.file_format == "parquet":
        parquet = pq.ParquetFile(source)
        yield from parquet.iter_batches(columns=_wanted(parquet.schema_arrow.names, inventory.kind))
        return
    if inventory.file_format == "orc":
        stripes = orc.ORCFile(source)
        columns = _wanted(stripes.schema.names, inventory.kind)
        for number in range(stripes.nstripes):
            yield stripes.read_stripe(number, columns=columns)
        return
    stream = pa.CompressedInputStream(source, "gzip") if data[:2] == b"\x1f\x8b" else source
    # All columns as text: Arrow would infer a type from the first block, and later blocks may differ.
    names = list(inventory.columns) or _header(data, inventory)
    yield from arrow_csv.open_csv(
        stream,
        read_options=arrow_csv.ReadOptions(
            block_size=_BLOCK_BYTES, column_names=names, skip_rows=0 if inventory.columns else 1
        ),
        parse_options=arrow_csv.ParseOptions(delimiter=inventory.delimiter, newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=_wanted(names, inventory.kind),
            strings_can_be_null=False,
        ),
    )


def _header(data: bytes, inventory: Inventory) -> list[str]:
    source: Any = pa.BufferReader(data)
    if data[:2] == b"\x1f\x8b":
        source = pa.CompressedInputStream(source, "gzip")
    first_line = source.read(65536).split(b"\n")[0].decode("utf-8-sig").strip()
    return [name.strip().strip('"') for name in first_line.split(inventory.delimiter)]


def _wanted(names: list[str], kind: Kind) -> list[str]:
    facts = [name for choice in _COLUMNS[kind].values() for name in choice]
    return [name for name in names if name in facts or name in _ONLY_IF[kind] or name in _COME_WITH[kind]]


def _objects(
    table: pa.RecordBatch, inventory: Inventory, file: InventoryFile, namespace: BucketFolder
) -> pa.RecordBatch:
    kind = inventory.kind
    _check_columns(table.schema.names, inventory, file)
    table = table.filter(_current(table, kind))
    names = _column(table, kind, "name", file)
    if kind == "s3" and inventory.file_format == "csv":
        names = _url_decoded(names)
    folder = namespace.root
    if kind == "azure":
        folder = f"{namespace.bucket}/{namespace.root}"
    elif _COLUMNS[kind]["bucket"][0] in table.schema.names and table.num_rows:
        buckets = pc.unique(_column(table, kind, "bucket", file)).to_pylist()
        if buckets != [namespace.bucket]:
            raise CorruptFileError(
                file.key, f"the file has rows of the bucket {sorted(map(str, buckets))}, not of {namespace.bucket!r}"
            )
    inside = pc.and_not(pc.starts_with(names, folder), pc.ends_with(names, "/"))
    table, names = table.filter(inside), names.filter(inside)
    addresses = pc.utf8_slice_codeunits(names, start=len(folder))
    columns = [addresses, _column(table, kind, "size", file), _column(table, kind, "time", file)]
    if any(column.null_count for column in columns) or (inventory.file_format == "csv" and _any_empty(columns)):
        raise CorruptFileError(
            file.key, "an object has no size or no time. Add both fields to the inventory's configuration"
        )
    times = _times(columns[2])
    newest = pc.max(times).as_py()
    if newest is not None and newest > inventory.began_at + _LONGEST_REPORT:
        # Times in another unit than the file says: every object would look new, and none would be collected.
        raise CorruptFileError(
            file.key,
            f"an object has the time {newest.isoformat()}, long after the report, which began at "
            f"{inventory.began_at.isoformat()}",
        )
    return pa.RecordBatch.from_arrays([columns[0], columns[1].cast(pa.int64()), times], schema=LISTING_SCHEMA)


def _check_columns(names: list[str], inventory: Inventory, file: InventoryFile) -> None:
    """Raise ``CorruptFileError`` if a column is missing that tells current objects of the bucket from other rows."""
    implied = (column for name, columns in _COME_WITH[inventory.kind].items() if name in names for column in columns)
    for name in (*inventory.needed, *implied):
        if name not in names:
            raise _no_column(file, name)


def _current(table: pa.RecordBatch, kind: Kind) -> pa.BooleanArray:
    """Select the rows that are current objects."""
    shown = pa.repeat(True, table.num_rows)
    for name, value in _ONLY_IF[kind].items():
        if name in table.schema.names:
            shown = pc.and_(shown, pc.is_in(_text(table, name), pa.array([value, ""])))
    if kind == "azure" and "VersionId" in table.schema.names:
        # Azure's listings say IsCurrentVersion of current versions only, so an empty value may be any other version.
        is_version = pc.not_equal(_text(table, "VersionId"), "")
        shown = pc.and_not(shown, pc.and_not(is_version, pc.equal(_text(table, "IsCurrentVersion"), "true")))
    return shown


def _text(table: pa.RecordBatch, name: str) -> pa.StringArray:
    return pc.utf8_lower(pc.fill_null(table[name].cast(pa.string()), ""))


def _url_decoded(names: pa.Array) -> pa.Array:
    """Decode the URL encoding that S3 uses in CSV files and listings: a space is ``+``."""
    decoded = [unquote_to_bytes(name.replace(b"+", b" ")) for name in names.cast(pa.binary()).to_pylist()]
    return pa.array(decoded, pa.binary()).cast(pa.string())


def _column(table: pa.RecordBatch, kind: Kind, fact: str, file: InventoryFile) -> pa.Array:
    choice = _COLUMNS[kind][fact]
    for name in choice:
        if name in table.schema.names:
            return table[name]
    raise _no_column(file, choice[0])


def _no_column(file: InventoryFile, name: str) -> CorruptFileError:
    return CorruptFileError(
        file.key,
        f"the file has no column {name}",
        remedy="Add the field to the inventory's configuration, or list the store itself",
    )


def _any_empty(columns: list[pa.Array]) -> bool:
    return any(pc.any(pc.equal(column, ""), min_count=0).as_py() for column in columns[1:])


def _times(values: pa.Array) -> pa.Array:
    """Convert text (ISO 8601), timestamps of any unit, or milliseconds since 1970 to microseconds in UTC."""
    if pa.types.is_integer(values.type):
        values = values.cast(pa.int64()).cast(pa.timestamp("ms"))
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(_TIME)
    return values.cast(_TIME)
