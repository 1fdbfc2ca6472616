"""Reading tables: every recorded one, and every way in which one can be broken."""

from __future__ import annotations

import base64
import gc
import random
import weakref
from typing import Any

import pytest

from lakefs_gc.errors import CorruptRangeError
from lakefs_gc.formats.sstable import blocks
from lakefs_gc.formats.sstable.reader import PAIRS_SCHEMA, Table, read_pairs, read_properties
from lakefs_gc.formats.sstable.table_writer import TableBuilder, write_table
from lakefs_gc_tests.golden import golden_file
from lakefs_gc_tests.support import dumps
from lakefs_gc_tests.support.sample_tables import with_block

ALL_TABLES = [
    path for kind in ("ranges", "metaranges") for entity in (False, True) for path in dumps.tables(kind, entity=entity)
]
PAIRS = [(b"key/%05d" % i, b"value %d " % i * 3) for i in range(20_000)]
TABLE = write_table(PAIRS, {"type": "other"}).data
FOOTER = len(TABLE) - 53


def raw(dumped: str | dict[str, str]) -> bytes:
    """Bytes of a dump: text, or base64 where they are no UTF-8."""
    return base64.b64decode(dumped["base64"]) if isinstance(dumped, dict) else dumped.encode()


def check_against_dump(data: bytes, header: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    properties = read_properties(data, "f")
    assert properties.entries == len(rows)
    assert properties.two_level_index == (header["index_type"] == 2)
    assert properties.raw_key_bytes == header["raw_key_size"]
    assert properties.user == {name: raw(value) for name, value in header["user_properties"].items()}
    pairs = read_pairs(data, "f")
    assert pairs.schema == PAIRS_SCHEMA
    assert pairs["key"].to_pylist() == [raw(row["key"]) for row in rows]


@pytest.mark.parametrize("path", ALL_TABLES)
def test_recorded_tables(path: str) -> None:
    header, rows = dumps.dump(path)
    check_against_dump(dumps.table_bytes(path), header, rows)
    assert len(rows) == header["num_entries"]
    values = read_pairs(dumps.table_bytes(path), path)["value"].to_pylist()
    assert sum(len(value) for value in values) == header["raw_value_size"]


@pytest.mark.parametrize(
    "name",
    [
        "h.sst",
        "h.no-compression.sst",
        "h.no-compression.two_level_index.sst",
        "h.block-bloom.no-compression.sst",
        "h.table-bloom.sst",
        "h.table-bloom.no-compression.sst",
        "h.table-bloom.no-compression.prefix_extractor.no_whole_key_filter.sst",
    ],
)
def test_tables_that_rocksdb_wrote(name: str) -> None:
    data = golden_file("spark-client", f"pebble-testdata/{name}")
    header, rows = dumps.parse_dump(golden_file("spark-client", f"pebble-testdata/{name}.jsonl"))
    check_against_dump(data, header, rows)
    assert len(rows) == 1710 == header["num_entries"] - 17  # the others are range deletions, in a block of their own
    assert read_pairs(data, "f")["value"].to_pylist() == [base64.b64decode(row["raw_value"]) for row in rows]


def test_two_level_index() -> None:
    assert read_properties(TABLE, "f").two_level_index
    batch = read_pairs(TABLE, "f")
    assert list(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)) == PAIRS


def test_an_empty_table() -> None:
    assert read_pairs(write_table([], {"type": "ranges"}).data, "f").num_rows == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_accepted(kind: type) -> None:
    assert read_pairs(kind(TABLE), "f").num_rows == len(PAIRS)


def test_keys_may_share_bytes_with_the_trailer_before() -> None:
    # Pebble compares whole internal keys: "a" ends in 01 00 00..., which "a\x01\x00b" goes on with.
    pairs = [(key, b"v") for key in (b"", b"\x01", b"a", b"a\x01", b"a\x01" + bytes(7), b"a\x01\x00b", b"a\x02")]
    assert read_pairs(write_table(pairs, {}).data, "f")["key"].to_pylist() == [key for key, _ in pairs]


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 63, 64, 65, 4096, 100_000])
def test_keys_and_values_of_any_size(size: int) -> None:
    pairs = [(b"k" * size + bytes([i]), bytes([i]) * size) for i in range(40)]
    batch = read_pairs(write_table(pairs, {}).data, "f")
    assert list(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)) == pairs


# -- what is refused ------------------------------------------------------------------------------------------


def test_the_memory_of_a_table_is_freed_with_it() -> None:
    """A worker reads thousands of files, and Python looks for circles of references late."""
    gc.disable()
    try:
        table = Table(TABLE, "f")
        assert table.name()
        seen = weakref.ref(table)
        del table
        assert seen() is None
    finally:
        gc.enable()


def refusal(data: bytes) -> CorruptRangeError:
    with pytest.raises(CorruptRangeError) as caught:
        read_pairs(data, "_lakefs/abc")
    assert str(caught.value).startswith("_lakefs/abc: ")
    assert caught.value.facts["file"] == "_lakefs/abc"
    assert 0 <= caught.value.facts["offset"] <= len(data)
    return caught.value


@pytest.mark.parametrize("data", [b"", b"x", b"\0" * 53, TABLE[:-1], TABLE[: len(TABLE) // 2], TABLE + b"\0"])
def test_files_without_a_complete_footer_are_refused(data: bytes) -> None:
    assert "not an SSTable, or its end is missing" in refusal(data).message


@pytest.mark.parametrize("size", range(0, 53 + 40, 3))
def test_files_without_their_start_are_refused(size: int) -> None:
    refusal(TABLE[-size:] if size else b"")


def test_leveldb_tables_are_unsupported() -> None:
    data = golden_file("spark-client", "pebble-testdata/h.ldb")
    assert "unsupported: a LevelDB table" in refusal(data).message


def footer(**changes: Any) -> bytes:
    """TABLE with another footer."""
    data = bytearray(TABLE)
    for place, value in changes.items():
        at = {"checksum": FOOTER, "version": FOOTER + 41, "magic": FOOTER + 45}[place]
        data[at : at + len(value)] = value
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (footer(checksum=b"\x00"), "unsupported: checksums of type none"),
        (footer(checksum=b"\x02"), "unsupported: checksums of type xxHash"),
        (footer(checksum=b"\x04"), "unsupported: checksums of type XXH3"),
        (footer(checksum=b"\x63"), "unsupported: checksums of type type 99"),
        (footer(version=b"\x05"), "unsupported: table format version 5"),
        (footer(magic="🪳🪳".encode()), "unsupported: a table of a Pebble-only format"),
    ],
)
def test_other_formats_are_unsupported(data: bytes, reason: str) -> None:
    error = refusal(data)
    assert reason in error.message
    assert "do not collect" in error.remedy


def test_a_flipped_bit_is_found_with_its_offset() -> None:
    data = bytearray(TABLE)
    data[70_000] ^= 1
    error = refusal(bytes(data))
    assert "checksum" in error.message
    assert 0 < error.facts["offset"] <= 70_000


def forged(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """A table of pairs in the order given, whatever that is."""
    builder = TableBuilder()
    for key, value in pairs:
        builder.last_key = None
        builder.add(key, value)
    return builder.finish({})


@pytest.mark.parametrize(
    "keys", [[b"b", b"a"], [b"a", b"a"], [b"ab", b"a"], [b"a", b"b", b"aa"], [b"\xff", b"\x7f"], [b"k" * 99, b"k" * 98]]
)
def test_keys_out_of_order_are_refused(keys: list[bytes]) -> None:
    assert blocks.STATUS_MESSAGES[blocks.UNORDERED_KEYS] in refusal(forged([(key, b"v") for key in keys])).message


def test_keys_out_of_order_across_blocks_are_refused() -> None:
    # The first key of the second block is compared with the last one of the first.
    blob = bytes(range(256)) * 16
    assert blocks.STATUS_MESSAGES[blocks.UNORDERED_KEYS] in refusal(forged([(b"b", blob), (b"a", blob)])).message


VALUE = bytes(range(20))  # does not compress
ONE = write_table([(b"k", VALUE)], {}).data
ONE_SIZE = 3 + 9 + 20 + 8  # lengths, key with trailer, value, one restart point and their number


def one(**parts: bytes) -> bytes:
    """The table of one pair, with parts of its data block replaced."""
    block = bytearray(ONE[:ONE_SIZE])
    places = {"shared": 0, "unshared": 1, "value_size": 2, "kind": 4, "restart": 32, "restarts": 36}
    for name, value in parts.items():
        block[places[name] : places[name] + len(value)] = value
    return with_block(ONE, 0, ONE_SIZE, bytes(block))


def test_the_table_of_one_pair_is_understood() -> None:
    assert one() == ONE
    assert read_pairs(ONE, "f").to_pylist() == [{"key": b"k", "value": VALUE}]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (one(shared=b"\x01"), blocks.BAD_KEY),
        (one(unshared=b"\x07"), blocks.BAD_KEY),
        (one(unshared=b"\x7f"), blocks.BAD_ENTRY),
        (one(value_size=b"\x7f"), blocks.BAD_ENTRY),
        (one(value_size=b"\x15"), blocks.BAD_ENTRY),
        (one(value_size=b"\x13"), blocks.BAD_ENTRY),
        (one(shared=b"\xff" * 9 + b"\x01"), blocks.BAD_ENTRY),
        (one(kind=b"\x00"), blocks.UNKNOWN_KIND),
        (one(kind=b"\x0f"), blocks.UNKNOWN_KIND),
        (one(restarts=b"\x00"), blocks.BAD_RESTARTS),
        (one(restarts=b"\xff\xff\xff\xff"), blocks.BAD_RESTARTS),
        (with_block(ONE, 0, ONE_SIZE, ONE[:ONE_SIZE], 7), blocks.UNKNOWN_COMPRESSION),
        (with_block(ONE, 0, ONE_SIZE, b"\x28" + ONE[1:ONE_SIZE], 1), blocks.BAD_SNAPPY),
        (with_block(ONE, 0, ONE_SIZE, b"\xff\xff\x7f" + ONE[3:ONE_SIZE], 1), blocks.BAD_SNAPPY),
    ],
)
def test_blocks_with_a_correct_checksum_and_invalid_content_are_refused(data: bytes, status: int) -> None:
    message = blocks.STATUS_MESSAGES[status].removeprefix("unsupported ")
    assert message in refusal(data).message


def with_properties(**lies: bytes) -> bytes:
    """The table of one pair, with other properties (of the same size, under checksums that fit)."""
    data = ONE
    start = data.index(b"rocksdb.block.based.table.index.type") - 3
    start = data.rindex(b"\x00\x05\x01count", 0, start)
    end = data.index(b"rocksdb.properties") - 3 - 5
    block = data[start:end]
    for name, value in lies.items():
        key, old = {
            "entries": (b"entries", b"\x01"),
            "range_deletions": (b"range-deletions", b"\x00"),
            "index_type": (b"index.type", b"\x00\x00\x00\x00"),
            "comparator": (b"mparator", b"leveldb.BytewiseComparator"),
            "raw_key_size": (b"aw.key.size", b"\x09"),
        }[name]
        assert block.count(key + old) == 1
        assert len(old) == len(value)
        block = block.replace(key + old, key + value)
    return with_block(data, start, len(block), block)


@pytest.mark.parametrize(
    ("lies", "reason"),
    [
        ({"entries": b"\x02"}, "1 entries, but its properties state 2"),
        ({"entries": b"\x00"}, "keys cannot have"),
        ({"entries": b"\x7f"}, "127 entries do not fit"),
        ({"entries": b"\x02", "range_deletions": b"\x02"}, "keys cannot have"),
        ({"range_deletions": b"\x02"}, "more deletions than entries"),
        ({"raw_key_size": b"\x7f"}, "keys cannot have 127 bytes"),
        ({"raw_key_size": b"\x00"}, "more bytes than its properties state"),
        ({"index_type": b"\x01\x00\x00\x00"}, "unsupported: index type 1"),
        ({"index_type": b"\x02\x00\x00\x00"}, "1 entries do not fit"),
        ({"comparator": b"leveldb.BackwardComparator"}, "unsupported: keys in the order of"),
    ],
)
def test_wrong_properties_are_refused(lies: dict[str, bytes], reason: str) -> None:
    assert read_pairs(with_properties(), "f").num_rows == 1
    assert reason in refusal(with_properties(**lies)).message


def test_range_deletions_do_not_count_as_entries() -> None:
    # One entry, of which one... is a deletion: then the plain entry in the block is one too many.
    assert "keys cannot have" in refusal(with_properties(range_deletions=b"\x01")).message
    assert read_properties(with_properties(entries=b"\x03", range_deletions=b"\x02"), "f").entries == 1
    assert read_pairs(with_properties(entries=b"\x03", range_deletions=b"\x02"), "f").num_rows == 1


def test_a_key_cannot_share_more_than_there_was() -> None:
    data = write_table([(b"k", VALUE), (b"l", bytes(range(20, 40)))], {}).data
    size = 2 * (3 + 9 + 20) + 8
    block = bytearray(data[:size])
    block[32] = 9 + 1  # one byte more than the first key and its trailer
    assert blocks.STATUS_MESSAGES[blocks.BAD_KEY] in refusal(with_block(data, 0, size, bytes(block))).message


def test_the_first_key_of_a_block_shares_nothing() -> None:
    rng = random.Random(3)
    first, second = rng.randbytes(4090), rng.randbytes(4090)
    data = write_table([(b"ka", first), (b"kb", second)], {}).data
    header = 1 + 1 + 2 + 10  # shared, unshared, size of the value, key with trailer
    start, size = data.index(second) - header, header + len(second) + 8
    assert start > 4090
    block = b"\x01" + data[start + 1 : start + size]
    assert blocks.STATUS_MESSAGES[blocks.BAD_KEY] in refusal(with_block(data, start, size, block)).message
