"""RocksDB's own reader, an independent implementation, reads the files of committed data."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc.formats.entry import AddressType, Entry, decode_value, encode_value
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.formats.sstable.reader import read_pairs
from lakefs_gc.sandbox.state.records import Record, record_of
from lakefs_gc.sandbox.versions.ranges import METADATA_FOLDER, Committed, RangeLimits
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.golden import scenario
from lakefs_gc_tests.support.sandbox_place import Place

pytestmark = pytest.mark.skipif(importlib.util.find_spec("rocksdict") is None, reason="rocksdict is not installed")

Pairs = list[tuple[bytes, bytes]]


class RocksDB:
    """Reads a table by ingesting it into an empty database, which checks its footer, properties and checksums."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tables = 0

    def read(self, file: Path) -> Pairs:
        from rocksdict import Options, Rdict

        self._tables += 1
        folder = self._folder / str(self._tables)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_paranoid_checks(True)
        database = Rdict(str(folder / "database"), options)
        try:
            shutil.copy(file, folder / "table")
            database.ingest_external_file([str(folder / "table")])
            forwards: list[tuple[Any, Any]] = list(database.items())
            assert forwards == list(database.items(backwards=True))[::-1]
            assert all(database[key] == value for key, value in forwards[::97])
        finally:
            database.close()
        return forwards


@pytest.fixture
def rocksdb(tmp_path: Path) -> RocksDB:
    return RocksDB(tmp_path / "rocksdb")


def own_reading(file: Path) -> Pairs:
    pairs = read_pairs(file.read_bytes(), file.name)
    return list(zip(pairs["key"].to_pylist(), pairs["value"].to_pylist(), strict=True))


def records(count: int) -> Iterator[Record]:
    for number in range(count):
        entry = Entry(
            address=f"data/slice/{number:020}",
            address_type=AddressType.RELATIVE,
            size_bytes=number,
            last_modified_ns=number * 1_000_000_007,
            e_tag=f"{number * 0x9E3779B97F4A7C15 % (1 << 128):032x}",
            metadata={"part": str(number)} if number % 3 == 0 else {},
        )
        yield record_of(f"tables/ä {number // 100:04}/part-{number:07}.parquet", entry)


@pytest.mark.parametrize(
    ("count", "limits", "ranges"),
    [
        (1, RangeLimits(), 1),
        (2000, RangeLimits(max_size_bytes=10_000), 20),
        # Large enough for an index with two levels.
        (40_000, RangeLimits(raggedness_entries=1 << 40), 1),
    ],
)
def test_rocksdb_reads_the_tables_of_the_sandbox(
    tmp_path: Path, rocksdb: RocksDB, count: int, limits: RangeLimits, ranges: int
) -> None:
    written = list(records(count))
    committed = Committed(open_store(StoreLocation((tmp_path / "objects").as_uri())), limits)
    folder = tmp_path / "objects" / METADATA_FOLDER
    tree = committed.write(iter(written))
    metarange = rocksdb.read(folder / tree)
    assert metarange == own_reading(folder / tree)
    infos = read_metarange((folder / tree).read_bytes(), tree).to_pylist()
    assert len(infos) >= ranges
    assert [key for key, _ in metarange] == [info["max_key"] for info in infos]
    rows: Pairs = []
    for info in infos:
        pairs = rocksdb.read(folder / info["range_id"])
        assert (pairs[0][0], pairs[-1][0], len(pairs)) == (info["min_key"], info["max_key"], info["entries"])
        rows += pairs
    assert rows == [(record.key, encode_value(record.identity, record.data)) for record in written]


def test_rocksdb_reads_a_commit_made_through_the_api(local: Place, rocksdb: RocksDB, tmp_path: Path) -> None:
    for number in range(20):
        local.put(f"p/{number:02}")
    first = local.commit().meta_range_id
    local.put("q/new")
    local.client.objects_api.delete_object("demo", "main", "p/03")
    second = local.commit().meta_range_id
    folder = tmp_path / "objects" / "demo" / METADATA_FOLDER
    for tree, paths in ((first, [f"p/{n:02}" for n in range(20)]), (second, local.paths())):
        rows: Pairs = []
        for info in read_metarange((folder / tree).read_bytes(), tree).to_pylist():
            rows += rocksdb.read(folder / info["range_id"])
        assert [key.decode() for key, _ in rows] == paths
        assert all(decode_value(value, file="range")[0] for _, value in rows)


@pytest.mark.parametrize("name", ["esti-unified", "slices-and-copies"])
def test_rocksdb_reads_the_tables_of_lakefs(name: str, tmp_path: Path, rocksdb: RocksDB) -> None:
    """RocksDB and the reader of lakefs-gc also agree on tables of a real server."""
    files = [file for file in (scenario(name, tmp_path) / "namespace" / METADATA_FOLDER).iterdir() if _is_table(file)]
    tables = {file: pairs for file in files if (pairs := own_reading(file))}  # RocksDB aborts at a table without keys
    assert len(tables) > 2
    for file, pairs in tables.items():
        assert rocksdb.read(file) == pairs


def test_rocksdb_rejects_a_damaged_table(tmp_path: Path, rocksdb: RocksDB) -> None:
    committed = Committed(open_store(StoreLocation((tmp_path / "objects").as_uri())), RangeLimits())
    tree = committed.write(records(500))
    [info] = committed.ranges(tree)
    file = tmp_path / "objects" / METADATA_FOLDER / info.id
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    damaged = tmp_path / "damaged"
    damaged.write_bytes(bytes(data))
    with pytest.raises(Exception, match="checksum mismatch"):
        rocksdb.read(damaged)


def _is_table(file: Path) -> bool:
    return file.is_file() and len(file.name) == 64
