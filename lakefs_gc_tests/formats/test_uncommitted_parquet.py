"""The addresses of staged objects."""

from __future__ import annotations

import json
import random
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakefs_gc.errors import CorruptFileError
from lakefs_gc.formats.parquet import parquet_bytes
from lakefs_gc.formats.uncommitted_parquet import (
    UNCOMMITTED_FILE_SCHEMA,
    UNCOMMITTED_SCHEMA,
    read_uncommitted,
    write_uncommitted,
)
from lakefs_gc_tests.golden import golden_file, golden_files, scenarios

RECORDED = [
    (name, path)
    for name in scenarios()
    for path in golden_files(name)
    if path.startswith("namespace/_lakefs/retention/gc/uncommitted/")
]


def page(addresses: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"physical_address": addresses, "creation_date": [1_795_230_963] * len(addresses)},
        schema=UNCOMMITTED_FILE_SCHEMA,
    )


@pytest.mark.parametrize(("name", "path"), RECORDED)
def test_recorded_pages(name: str, path: str) -> None:
    batch = read_uncommitted(golden_files(name)[path], path)
    assert batch.schema == UNCOMMITTED_SCHEMA
    objects = {json.loads(line)["key"] for line in golden_file(name, "listing.jsonl").splitlines()}
    addresses = batch["address"].to_pylist()
    assert addresses
    # Nearly all of them are objects of the store; links may name objects that were never written.
    assert sum(address in objects for address in addresses) > 0.8 * len(addresses)


def test_unusual_names_are_read_unchanged() -> None:
    counts = Counter[str]()
    for name, path in RECORDED:
        if name == "old-layout":
            counts.update(read_uncommitted(golden_files(name)[path], path)["address"].to_pylist())
    assert any("%20" in address for address in counts)
    assert any("?" in address for address in counts)


def test_written_pages_equal_those_of_lakefs() -> None:
    addresses = ["data/a/b", "data/é/%20 ?", "data/a/b"]
    data = write_uncommitted(page(addresses))
    assert read_uncommitted(data, "f")["address"].to_pylist() == addresses
    name, path = RECORDED[0]
    ours, theirs = (pq.ParquetFile(pa.BufferReader(d)) for d in (data, golden_files(name)[path]))
    for i in range(2):
        mine, real = ours.schema.column(i), theirs.schema.column(i)
        assert (mine.name, mine.physical_type) == (real.name, real.physical_type)
        assert mine.max_definition_level == real.max_definition_level == 0
        assert ours.metadata.row_group(0).column(i).compression == "GZIP"
    assert ours.schema.column(0).converted_type == theirs.schema.column(0).converted_type == "UTF8"
    assert ours.metadata.format_version == theirs.metadata.format_version


def test_a_page_without_rows_is_read() -> None:
    batch = read_uncommitted(write_uncommitted(page([])), "f")
    assert (batch.num_rows, batch.schema) == (0, UNCOMMITTED_SCHEMA)


def test_several_row_groups_are_read() -> None:
    addresses = [f"data/a/{i}" for i in range(1000)]
    data = parquet_bytes(page(addresses), row_group_size=64)
    assert read_uncommitted(data, "f")["address"].to_pylist() == addresses


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (pa.RecordBatch.from_pydict({"address": ["a"]}), "the column 'physical_address' is missing or repeated"),
        (pa.RecordBatch.from_pydict({"physical_address": [1]}), "contains int64, not strings"),
        (pa.RecordBatch.from_pydict({"physical_address": [b"a"]}), "contains binary, not strings"),
        (pa.RecordBatch.from_pydict({"physical_address": ["a", None]}), "1 rows have no 'physical_address'"),
    ],
)
def test_other_columns_are_refused(batch: pa.RecordBatch, reason: str) -> None:
    with pytest.raises(CorruptFileError, match=rf"^page: .*{reason}"):
        read_uncommitted(parquet_bytes(batch), "page")


def test_invalid_utf8_is_refused() -> None:
    data = write_uncommitted(page(["data/a/XY"]))
    raw = parquet_bytes(page(["data/a/XY"]), compression="none", use_dictionary=False, write_statistics=False)
    assert read_uncommitted(raw, "page").num_rows == read_uncommitted(data, "page").num_rows == 1
    with pytest.raises(CorruptFileError, match="not a complete Parquet file"):
        read_uncommitted(raw.replace(b"XY", b"\xff\xfe"), "page")


def test_truncated_pages_are_refused() -> None:
    data = write_uncommitted(page([f"data/a/{i}" for i in range(50)]))
    for size in range(0, len(data), 5):
        with pytest.raises(CorruptFileError):
            read_uncommitted(data[:size], "page")


def test_damage_in_the_addresses_is_noticed() -> None:
    # Page headers have no checksum, but the compressed pages of lakeFS do (GZIP): flips there never go
    # unnoticed.
    addresses = [f"data/slice/{i}" for i in range(500)]
    data = write_uncommitted(page(addresses))
    column = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0)
    start = data.index(b"\x1f\x8b", column.dictionary_page_offset)
    rng = random.Random(7)
    for _ in range(200):
        damaged = bytearray(data)
        damaged[rng.randrange(start + 10, start + column.total_compressed_size // 2)] ^= 1 << rng.randrange(8)
        try:
            assert read_uncommitted(bytes(damaged), "page")["address"].to_pylist() == addresses
        except CorruptFileError:
            continue
