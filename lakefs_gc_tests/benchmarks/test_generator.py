"""The generator writes the same files as the table writer and a lakeFS server."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefs_gc.formats.commits_csv import read_active_commits
from lakefs_gc.formats.entry import AddressType, Entry, decode_entry, decode_value, entry_identity
from lakefs_gc.formats.ids import is_slice_id
from lakefs_gc.formats.ranges import read_metarange, read_range
from lakefs_gc.formats.sstable.reader import read_pairs
from lakefs_gc.formats.sstable.table_writer import write_range
from lakefs_gc.formats.uncommitted_parquet import read_uncommitted
from lakefs_gc_tests.benchmarks.generator import Shape, addresses_of, entry_numbers, generate, write_range_number


@pytest.mark.parametrize(("per_range", "turnover"), [(1, 1), (17, 3), (2_000, 10), (30_000, 1)])
def test_ranges_equal_those_of_the_table_writer(per_range: int, turnover: int) -> None:
    shape = Shape(entries=per_range * 6, ranges=6, slots=2, turnover=turnover)
    table = write_range_number(shape, 5)
    entries: list[tuple[bytes, bytes, Entry]] = []
    for pair in read_pairs(table.data, "range").to_pylist():
        identity, message = decode_value(pair["value"])
        entry = decode_entry(message)
        assert identity == entry_identity(entry)
        entries.append((pair["key"], identity, entry))
    assert table == write_range(entries)
    assert len(entries) == per_range
    addresses = [entry.address for _, _, entry in entries]
    assert addresses == addresses_of(shape, entry_numbers(shape, 5)).to_pylist()
    data, slice_id, object_id = addresses[-1].split("/")
    assert data == "data"
    assert is_slice_id(slice_id)
    assert is_slice_id(object_id)
    assert {entry.address_type for _, _, entry in entries} == {AddressType.RELATIVE}


def test_a_namespace_has_the_content_of_its_shape(tmp_path: Path) -> None:
    shape = Shape(entries=12_000, ranges=120, slots=12, commits=10, turnover=4, staged=300, stale=200)
    namespace = generate(tmp_path / "one", shape, processes=1)
    commits = read_active_commits((namespace.folder / namespace.commits_file).read_bytes(), "commits")
    ranges: set[str] = set()
    for metarange_id in commits.column("metarange_id").to_pylist():
        file = namespace.folder / "_lakefs" / metarange_id
        ranges |= set(read_metarange(file.read_bytes(), file.name).column("range_id").to_pylist())
    contents = {id_: read_range((namespace.folder / "_lakefs" / id_).read_bytes(), id_) for id_ in ranges}
    assert (commits.num_rows, len(ranges)) == (10, 120)
    assert namespace.heads[0] in commits.column("commit_id").to_pylist()
    assert sum(batch.num_rows for batch in contents.values()) == 12_000
    committed = {address for batch in contents.values() for address in batch.column("address").to_pylist()}
    assert len(committed) == shape.distinct < 12_000
    [page] = (namespace.folder / namespace.uncommitted_folder).iterdir()
    staged = set(read_uncommitted(page.read_bytes(), page.name).column("address").to_pylist())
    listed = [address for batch in namespace.objects() for address in batch.column("address").to_pylist()]
    assert len(listed) == len(set(listed)) == shape.distinct + 500
    assert (len(staged), len(set(listed) - committed - staged)) == (300, 200)
    again = generate(tmp_path / "two", shape, processes=1)
    files = {file.relative_to(tmp_path / "one") for file in namespace.folder.rglob("*") if file.is_file()}
    assert files == {file.relative_to(tmp_path / "two") for file in again.folder.rglob("*") if file.is_file()}
