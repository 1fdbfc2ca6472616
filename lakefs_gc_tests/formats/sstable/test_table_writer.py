"""The writer: the same tables as lakeFS, from lakeFS's own dumps."""

from __future__ import annotations

import json

import pytest

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.entry import AddressType, Entry, entry_identity
from lakefs_gc.formats.sstable.crc32c import masked_crc32c
from lakefs_gc.formats.sstable.table_writer import WrittenTable, write_metarange, write_range
from lakefs_gc_tests.golden import golden_file
from lakefs_gc_tests.support import dumps


def rewritten(path: str) -> WrittenTable:
    """The table that our writer makes of the content of a golden one."""
    header, rows = dumps.dump(path)
    if header["user_properties"]["type"] == "ranges":
        entries = [dumps.dumped_entry(row) for row in rows]
        return write_range([(row["key"].encode(), entry_identity(e), e) for row, e in zip(rows, entries, strict=True)])
    return write_metarange(
        [
            WrittenTable(
                id=row["range_id"],
                data=b"",
                min_key=row["min_key"].encode(),
                max_key=row["max_key"].encode(),
                count=row["count"],
                estimated_size_bytes=row["estimated_size"],
            )
            for row in rows
        ]
    )


def has_unordered_metadata(path: str) -> bool:
    """Go writes maps in random order, the dump sorts them: such a range cannot be made from its dump."""
    _, rows = dumps.dump(path)
    return any(len(row.get("metadata") or {}) > 1 for row in rows)


ORDERED = [path for path in dumps.tables("ranges") + dumps.tables("metaranges") if not has_unordered_metadata(path)]


@pytest.mark.parametrize("path", ORDERED)
def test_ids_are_those_of_lakefs(path: str) -> None:
    assert rewritten(path).id == dumps.table_id(path)


@pytest.mark.parametrize("path", ORDERED)
def test_keys_and_counts_are_those_of_lakefs(path: str) -> None:
    header, rows = dumps.dump(path)
    table = rewritten(path)
    assert table.count == len(rows)
    assert table.min_key.decode() == header["user_properties"]["min_key"]
    assert table.max_key.decode() == header["user_properties"]["max_key"]


def test_files_without_compression_are_identical_to_those_of_lakefs() -> None:
    # Tables whose only block does not shrink: nothing depends on how Snappy is implemented.
    small = [path for path in ORDERED if len(dumps.table_bytes(path)) < 1100 and "metadata-and-unicode" not in path]
    different = [path for path in small if rewritten(path).data != dumps.table_bytes(path)]
    assert len(small) > 20
    assert different == []


@pytest.mark.parametrize("path", ORDERED)
def test_estimated_sizes_are_close_to_those_of_lakefs(path: str) -> None:
    # Equal but for the block sizes, which differ by a few bytes between implementations of Snappy.
    header, _ = dumps.dump(path)
    estimated = int(header["user_properties"]["estimated_size_bytes"])
    assert rewritten(path).estimated_size_bytes == pytest.approx(estimated, rel=0.02)


def test_the_scenario_index_names_every_table() -> None:
    index = json.loads(golden_file("formats", "index.json"))
    assert len(ORDERED) >= 50 <= len(index)


def test_keys_must_ascend() -> None:
    entry = Entry("data/a", AddressType.RELATIVE, 1, 0)
    for keys in ([b"b", b"a"], [b"a", b"a"]):
        with pytest.raises(ConfigurationError, match="The keys of a table must ascend"):
            write_range([(key, entry_identity(entry), entry) for key in keys])


def test_checksum_of_the_standard() -> None:
    # CRC-32C of "123456789" is 0xE3069283 (RFC 3720 has more); masked: rotated right by 15, plus a constant.
    crc = 0xE3069283
    assert masked_crc32c(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
