"""Ranges and metaranges: what lakeFS's own code reads from them, and nothing when they are damaged."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest

from lakefs_gc.errors import CorruptRangeError
from lakefs_gc.formats import protobuf
from lakefs_gc.formats.entry import decode_entry, decode_value, encode_entry, encode_value, entry_identity
from lakefs_gc.formats.ranges import (
    METARANGE_SCHEMA,
    RANGE_SCHEMA,
    TableKind,
    known_kind,
    read_metarange,
    read_range,
    table_kind,
)
from lakefs_gc.formats.sstable.crc32c import masked_crc32c
from lakefs_gc.formats.sstable.reader import Table, read_pairs, read_properties
from lakefs_gc.formats.sstable.table_writer import write_range, write_table
from lakefs_gc_tests.golden import golden_file, golden_files
from lakefs_gc_tests.support import dumps
from lakefs_gc_tests.support.sample_tables import ENTRY, with_block

RANGES = dumps.tables("ranges")
METARANGES = dumps.tables("metaranges")
REFS = dumps.tables("ranges", entity=True) + dumps.tables("metaranges", entity=True)


def check_range_against_dump(data: bytes, rows: list[dict[str, Any]]) -> None:
    entries = [dumps.dumped_entry(row) for row in rows]
    batch = read_range(data, "f", keys=True, details=True)
    assert batch.schema.names == [*RANGE_SCHEMA.names, "key", "e_tag", "content_type"]
    batch.validate(full=True)
    assert batch["address"].to_pylist() == [entry.address for entry in entries]
    assert batch["address_type"].to_pylist() == [entry.address_type for entry in entries]
    assert batch["size"].to_pylist() == [entry.size_bytes for entry in entries]
    assert batch["last_modified"].cast(pa.int64()).to_pylist() == [e.last_modified_ns // 1000 for e in entries]
    assert batch["e_tag"].to_pylist() == [entry.e_tag for entry in entries]
    assert batch["content_type"].to_pylist() == [entry.content_type for entry in entries]
    keys = batch["key"].to_pylist()
    assert [key for key, row in zip(keys, rows, strict=True) if isinstance(row["key"], str)] == [
        row["key"].encode() for row in rows if isinstance(row["key"], str)
    ]
    assert read_range(data, "f").equals(batch.select(RANGE_SCHEMA.names))


@pytest.mark.parametrize("path", RANGES)
def test_recorded_ranges(path: str) -> None:
    _, rows = dumps.dump(path)
    check_range_against_dump(dumps.table_bytes(path), rows)


@pytest.mark.parametrize("path", RANGES)
def test_recorded_entries_with_their_metadata(path: str) -> None:
    _, rows = dumps.dump(path)
    for pair, row in zip(read_pairs(dumps.table_bytes(path), path).to_pylist(), rows, strict=True):
        identity, data = decode_value(pair["value"])
        entry = decode_entry(data)
        assert (entry, identity.hex()) == (dumps.dumped_entry(row), row["identity_hex"])
        assert encode_value(entry_identity(entry), encode_entry(entry)) == pair["value"]


@pytest.mark.parametrize("path", METARANGES)
def test_recorded_metaranges(path: str) -> None:
    _, rows = dumps.dump(path)
    batch = read_metarange(dumps.table_bytes(path), path)
    assert batch.schema == METARANGE_SCHEMA
    assert batch.to_pylist() == [
        {
            "range_id": row["range_id"],
            "min_key": row["min_key"].encode(),
            "max_key": row["max_key"].encode(),
            "entries": row["count"],
            "estimated_size": row["estimated_size"],
        }
        for row in rows
    ]


@pytest.mark.parametrize("path", RANGES + METARANGES + REFS)
def test_writing_a_recorded_table_again_gives_the_same_table(path: str) -> None:
    data = dumps.table_bytes(path)
    own = {"min_key", "max_key", "count", "estimated_size_bytes"}
    properties = {name: value.decode() for name, value in read_properties(data, path).user.items() if name not in own}
    pairs = read_pairs(data, path)
    table = write_table(list(zip(*(column.to_pylist() for column in pairs.columns), strict=True)), properties)
    assert table.id == Table(data, path).name() == dumps.table_id(path)
    assert read_pairs(table.data, path).equals(pairs)
    rewritten = read_properties(table.data, path)
    assert rewritten.user.keys() == read_properties(data, path).user.keys()
    assert rewritten.two_level_index == read_properties(data, path).two_level_index


@pytest.mark.parametrize("name", ["sstable/range.sst", "sstable/ok1.sst"])
def test_ranges_of_the_spark_client(name: str) -> None:
    _, rows = dumps.parse_dump(golden_file("spark-client", f"{name}.jsonl"))
    check_range_against_dump(golden_file("spark-client", name), rows)


def big_tables() -> dict[str, bytes]:
    """Return the ranges and metaranges of a large repository by their ids."""
    files = {path.removeprefix("namespace/_lakefs/"): data for path, data in golden_files("big-ranges").items()}
    return {name: data for name, data in files.items() if len(name) == 64 and "/" not in name}


def test_large_ranges_match_their_metaranges() -> None:
    tables = big_tables()
    described = {}
    for name, data in tables.items():
        if table_kind(read_properties(data, name)) == TableKind.METARANGE:
            described.update({row["range_id"]: row for row in read_metarange(data, name).to_pylist()})
    assert len(described) > 50
    for range_id, row in described.items():
        batch = read_range(tables[range_id], range_id, keys=True)
        assert batch.num_rows == row["entries"]
        assert (batch["key"][0].as_py(), batch["key"][-1].as_py()) == (row["min_key"], row["max_key"])
        assert all(address.startswith("data/") for address in batch["address"].to_pylist())


# -- kinds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        *((path, TableKind.RANGE) for path in RANGES),
        *((path, TableKind.METARANGE) for path in METARANGES),
        *((path, TableKind.REFS) for path in REFS),
    ],
)
def test_the_kind_of_a_table_is_read(path: str, kind: TableKind) -> None:
    data = dumps.table_bytes(path)
    assert table_kind(read_properties(data, path)) == kind
    for reader, expected in ((read_range, TableKind.RANGE), (read_metarange, TableKind.METARANGE)):
        if kind != expected:
            with pytest.raises(CorruptRangeError, match=rf"expected a {expected}, but the table is of the kind {kind}"):
                reader(data, path)


def test_tables_of_unknown_kinds_are_refused() -> None:
    data = write_table([], {"type": "something"}).data
    assert table_kind(read_properties(data, "f")) == TableKind.OTHER
    with pytest.raises(CorruptRangeError, match="the file does not state whether it is a range"):
        known_kind(read_properties(data, "f"), "f")


# -- damage ---------------------------------------------------------------------------------------------------


def range_of(message: bytes, value: bytes | None = None, **properties: str) -> bytes:
    """A range of one entry with this message."""
    value = encode_value(b"i" * 32, message) if value is None else value
    return write_table([(b"k", value)], {"type": "ranges", **properties}).data


GOOD = encode_entry(ENTRY)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (range_of(GOOD + protobuf.integer_field(6, 3)), "type of an address"),
        (range_of(GOOD + protobuf.integer_field(6, -1)), "type of an address"),
        (range_of(GOOD + b"\x0a\x01\xff"), "an address is not valid UTF-8"),
        (range_of(GOOD + b"\x22\x01\xff"), "an ETag is not valid UTF-8"),
        (range_of(GOOD + b"\x0a\x7f"), "a message cannot be parsed"),
        (range_of(GOOD + b"\x0b"), "a message cannot be parsed"),
        (range_of(GOOD + b"\x18"), "a message cannot be parsed"),
        (range_of(GOOD + b"\x18" + b"\xff" * 9 + b"\x02"), "a message cannot be parsed"),
        (range_of(GOOD + b"\x00\x00"), "a message cannot be parsed"),
        (range_of(GOOD + b"\x2a\x7f"), "a message cannot be parsed"),
        (range_of(GOOD + b"\x49\x00"), "a message cannot be parsed"),
        (range_of(GOOD + b"\x4d\x00"), "a message cannot be parsed"),
        (range_of(GOOD + b"\x12\x06\x10\x80\xa8\xd6\xb9\x07"), "a time is out of range"),
        (range_of(GOOD + b"\x12\x0a\x08" + b"\xff" * 8 + b"\x7f"), "a time is out of range"),
        (range_of(GOOD + b"\x12\x01\x08"), "a message cannot be parsed"),
        (range_of(b"", value=b""), "the lengths within a value are impossible"),
        (range_of(b"", value=b"\x01\x00"), "the lengths within a value are impossible"),
        (range_of(b"", value=b"\x02i\x04d"), "the lengths within a value are impossible"),
        (range_of(b"", value=b"\x02i"), "the lengths within a value are impossible"),
    ],
)
def test_damaged_entries_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRangeError, match=rf"^_lakefs/abc: .*{reason}"):
        read_range(data, "_lakefs/abc", details=True)


def test_fields_of_later_versions_are_ignored() -> None:
    later = protobuf.integer_field(99, 1 << 63) + b"\x45abcd" + b"\x41abcdefgh" + protobuf.bytes_field(9, b"later")
    value = encode_value(b"i" * 32, later + GOOD + later) + b"bytes after the value"
    assert read_range(range_of(b"", value=value), "f").equals(read_range(range_of(GOOD), "f"))


def test_fields_with_zero_are_read() -> None:
    batch = read_range(range_of(b""), "f", details=True)
    assert [str(value) for value in batch.to_pylist()[0].values()] == [
        "",
        "0",
        "0",
        "1970-01-01 00:00:00+00:00",
        "",
        "",
    ]


def test_a_count_that_differs_is_refused() -> None:
    data = range_of(GOOD)
    place = data.index(b"count1")
    start = data.rindex(b"\x00\x05\x01count", 0, place + 5)
    end = data.index(b"rocksdb.properties") - 3 - 5
    block = data[start:end]
    with pytest.raises(CorruptRangeError, match="1 entries, but lakeFS recorded b'2'"):
        read_range(with_block(data, start, len(block), block.replace(b"count1", b"count2")), "f")


@pytest.mark.parametrize(
    ("identity", "message", "reason"),
    [
        (b"x" * 64, b"", "is not the id of a range"),
        (b"a" * 63, b"", "is not the id of a range"),
        (b"a" * 64, protobuf.bytes_field(2, b"other"), "the description of range .* is inconsistent"),
        (
            b"a" * 64,
            protobuf.bytes_field(1, b"z") + protobuf.bytes_field(2, b"k"),
            "the description of range .* is inconsistent",
        ),
        (
            b"a" * 64,
            protobuf.bytes_field(2, b"k") + protobuf.integer_field(4, -1),
            "the description of range .* is inconsistent",
        ),
        (b"a" * 64, protobuf.bytes_field(2, b"k") + protobuf.integer_field(3, -1), "invalid size"),
        (b"a" * 64, b"\x12\x7f", "is truncated"),
    ],
)
def test_damaged_metaranges_are_refused(identity: bytes, message: bytes, reason: str) -> None:
    data = write_table([(b"k", encode_value(identity, message))], {"type": "metaranges"}).data
    with pytest.raises(CorruptRangeError, match=rf"^f: .*{reason}"):
        read_metarange(data, "f")


# -- mutations ------------------------------------------------------------------------------------------------

MUTATED = [
    next(path for path in RANGES if name in path)
    for name in (
        "address-types",
        "metadata-and-unicode",
        "long-keys",
        "zero-fields",
        "old-layout",
        "range-5c984059cd2b",
    )
] + [next(path for path in METARANGES if name in path) for name in ("many-blocks", "one-entry")]


def mutant(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, splice, blank, repeat or aim at the footer."""
    changed = bytearray(data)
    size = len(data)
    match rng.randrange(6):
        case 0 | 1:
            for _ in range(rng.choice([1, 1, 2, 8, 64])):
                changed[rng.randrange(size)] ^= 1 << rng.randrange(8)
        case 2:
            del changed[rng.randrange(size) :]
        case 3:
            at, source, length = rng.randrange(size), rng.randrange(size), rng.randrange(1, 200)
            changed[at : at + length] = data[source : source + length]
        case 4:
            at = rng.randrange(size)
            changed[at : at + rng.randrange(1, 300)] = rng.choice([b"\0", b"\xff"]) * rng.randrange(1, 300)
        case _:
            for _ in range(rng.choice([1, 2, 4])):
                changed[size - 53 + rng.randrange(53)] = rng.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("path", MUTATED)
def test_damage_is_noticed_or_harmless(path: str) -> None:
    rng = random.Random(path)
    data = dumps.table_bytes(path)
    read = read_metarange if "metarange" in path else read_range
    original = read(data, path)
    refused = 0
    for _ in range(600):
        changed = mutant(data, rng)
        try:
            batch = read(changed, path)
        except CorruptRangeError as error:
            refused += 0 <= error.facts["offset"] <= len(changed)
            continue
        assert batch.equals(original)
    assert refused > 500


def test_forged_content_never_crashes() -> None:
    # Right checksums over random damage: beyond what a store does to a file, but no reason to crash or hang.
    rng = random.Random(5)
    entries = [(b"key/%03d" % i, entry_identity(ENTRY), ENTRY) for i in range(40)]
    data = write_range(entries).data
    handles = block_handles(data)
    outcomes = {True: 0, False: 0}
    for _ in range(4000):
        offset, size, compression = rng.choice(handles)
        content = bytearray(data[offset : offset + size])
        for _ in range(rng.choice([1, 1, 2, 3, 8])):
            content[rng.randrange(size)] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        changed = with_block(data, offset, size, bytes(content), compression)
        try:
            batch = read_range(changed, "f", keys=True, details=True)
            batch.validate(full=True)
            outcomes[True] += 1
        except CorruptRangeError:
            outcomes[False] += 1
    assert min(outcomes.values()) > 100


def block_handles(data: bytes) -> list[tuple[int, int, int]]:
    """Offset, size and compression of every block, found by their checksums."""
    found, start = [], 0
    while start < len(data) - 53:
        for end in range(start + 8, len(data) - 53):
            if struct.unpack_from("<I", data, end + 1)[0] == masked_crc32c(data[start : end + 1]):
                found.append((start, end - start, data[end]))
                start = end + 5
                break
        else:
            break
    return found
