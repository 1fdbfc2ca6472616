"""The dumps of the golden SSTables, which lakeFS's own code wrote, as objects of this project."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from lakefs_gc.formats.entry import AddressType, Entry, to_ns
from lakefs_gc_tests.golden import golden_file, golden_files

_ADDRESS_TYPES = {
    "RELATIVE": AddressType.RELATIVE,
    "FULL": AddressType.FULL,
    "BY_PREFIX_DEPRECATED": AddressType.BY_PREFIX,
}


def tables(kind: str, *, entity: bool = False) -> list[str]:
    """Return the paths in ``formats`` of all recorded and written tables of a kind, ``ranges`` or ``metaranges``."""
    index = json.loads(golden_file("formats", "index.json"))
    return [
        item["file"]
        for item in index
        if item["type"] == kind and bool(item.get("entity")) == entity and item["file"] in golden_files("formats")
    ]


def table_bytes(path: str) -> bytes:
    return golden_file("formats", path)


def table_id(path: str) -> str:
    index = json.loads(golden_file("formats", "index.json"))
    return str(next(item["id"] for item in index if item["file"] == path))


def dump(path: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the header (table and user properties) and the rows of the dump of a table."""
    return parse_dump(golden_file("formats", str(PurePosixPath(path).with_suffix(".jsonl"))))


def parse_dump(content: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    header, *rows = (json.loads(line) for line in content.splitlines())
    return header, rows


def dumped_entry(row: dict[str, Any]) -> Entry:
    """Return the entry that a row of a range's dump shows."""
    return Entry(
        address=row["address"],
        address_type=_ADDRESS_TYPES[row["address_type"]],
        size_bytes=row["size"],
        last_modified_ns=dumped_time_ns(row["last_modified"]),
        e_tag=row["etag"],
        metadata=row.get("metadata") or {},
        content_type=row["content_type"],
    )


def dumped_time_ns(text: str) -> int:
    """Return the nanoseconds since 1970 of an RFC 3339 time in UTC with up to nine decimals."""
    match = re.fullmatch(r"([^.]+?)(?:\.(\d+))?Z", text)
    assert match, text
    return to_ns(datetime.fromisoformat(match[1]).replace(tzinfo=UTC)) + int((match[2] or "0").ljust(9, "0"))
