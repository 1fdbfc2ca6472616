"""Entries, range data and the frame around them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lakefs_gc.errors import CorruptFileError
from lakefs_gc.formats.entry import (
    AddressType,
    Entry,
    decode_entry,
    decode_value,
    encode_entry,
    encode_value,
    entry_identity,
    to_ns,
)
from lakefs_gc.formats.range_data import RangeData, decode_range_data, encode_range_data
from lakefs_gc_tests.support import dumps
from lakefs_gc_tests.support.sample_tables import ENTRY


@pytest.mark.parametrize("path", dumps.tables("ranges"))
def test_identities_are_those_of_lakefs(path: str) -> None:
    _, rows = dumps.dump(path)
    assert [entry_identity(dumps.dumped_entry(row)).hex() for row in rows] == [row["identity_hex"] for row in rows]


def test_bytes_are_those_of_lakefs() -> None:
    # The value of the one entry of written/one-entry, as it stands in the file.
    data = bytes.fromhex("0a08646174612f612f6212060880f7c4d5061801220165 3001".replace(" ", ""))
    entry = Entry("data/a/b", AddressType.RELATIVE, 1, 1_790_000_000 * 10**9, "e")
    assert encode_entry(entry) == data
    assert decode_entry(data) == entry
    value = encode_value(entry_identity(entry), data)
    assert value[:2] == b"\x40\xb9"
    assert value in dumps.table_bytes(next(p for p in dumps.tables("ranges") if "/one-entry/" in p))


@pytest.mark.parametrize(
    "entry",
    [
        ENTRY,
        Entry("", AddressType.BY_PREFIX, 0, 0),
        Entry("s3://b/é", AddressType.FULL, -1, -1_500_000_000),
        Entry("x", AddressType.FULL, (1 << 63) - 1, to_ns(datetime(9999, 12, 31, tzinfo=UTC))),
    ],
)
def test_entries_survive_the_round_trip(entry: Entry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


def test_metadata_keeps_its_order() -> None:
    assert list(decode_entry(encode_entry(ENTRY)).metadata) == ["z", "a"]


def test_last_modified_is_cut_to_microseconds() -> None:
    assert ENTRY.last_modified == datetime(2026, 9, 21, 14, 13, 20, 123456, tzinfo=UTC)
    assert to_ns(ENTRY.last_modified) == 1_790_000_000_123_456_000


def test_fields_of_later_versions_are_ignored() -> None:
    later = bytes([99 << 3 & 0x7F | 0x80 | 0, 6, 5]) + b"\x45abcd" + b"\x41abcdefgh" + b"\x4a\x02hi"
    assert decode_entry(encode_entry(ENTRY) + later) == ENTRY


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b"\x0a\xff\x01", id="string past the end"),
        pytest.param(b"\x0a\x01\xff", id="not UTF-8"),
        pytest.param(b"\x18" + b"\xff" * 10, id="number without end"),
        pytest.param(b"\x18" + b"\xff" * 9 + b"\x7f", id="number over 64 bits"),
        pytest.param(b"\x18\x80", id="number cut short"),
        pytest.param(b"\x0b", id="group"),
        pytest.param(b"\x00\x00", id="field 0"),
        pytest.param(b"\x1a\x00", id="size as bytes"),
        pytest.param(b"\x08\x01", id="address as number"),
        pytest.param(b"\x30\x03", id="unknown address type"),
        pytest.param(b"\x12\x06\x10\x80\xa8\xd6\xb9\x07", id="two billion nanoseconds"),
        pytest.param(b"\x12\x0a\x08" + b"\xff" * 8 + b"\x7f", id="year 292 billion"),
    ],
)
def test_damaged_entries_are_refused(damage: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"^some-range: "):
        decode_entry(encode_entry(ENTRY) + damage, file="some-range")


@pytest.mark.parametrize("size", range(len(encode_value(b"i" * 32, b"data"))))
def test_truncated_values_are_refused(size: int) -> None:
    with pytest.raises(CorruptFileError):
        decode_value(encode_value(b"i" * 32, b"data")[:size])


def test_negative_lengths_are_refused() -> None:
    with pytest.raises(CorruptFileError, match="invalid length of its identity"):
        decode_value(b"\x01\x00")


def test_bytes_after_a_value_are_ignored() -> None:
    assert decode_value(encode_value(b"identity", b"data") + b"later") == (b"identity", b"data")


def test_range_data() -> None:
    data = RangeData(b"\xff\x00", b"\xff\x01", (1 << 64) - 1, 7)
    assert decode_range_data(encode_range_data(data)) == data
    assert encode_range_data(RangeData(b"k", b"k", 83, 1)) == bytes.fromhex("0a016b12016b18532001")
