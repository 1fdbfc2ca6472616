"""What small runs remember of the metadata files of other repositories."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakefs_gc.engine.collect.references import foreign_references, plain_files
from lakefs_gc.engine.collect.references.plain_files import (
    PLAIN_FILE,
    FileName,
    PlainFiles,
    read_plain_files,
    without_plain_files,
)
from lakefs_gc.engine.spark.scale import SMALL
from lakefs_gc.engine.workspace.range_cache import RangeCache
from lakefs_gc.errors import AccessDeniedError
from lakefs_gc.formats.addresses import ADDRESS_READING, spellings
from lakefs_gc.formats.entry import AddressType
from lakefs_gc.formats.plain_addresses import are_plain
from lakefs_gc.formats.ranges import RANGE_SCHEMA, read_metarange
from lakefs_gc.formats.sstable.reader import Table, TableData, opened
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.addresses import CANDIDATES, OTHERS
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake, LakeRepository

URL = "s3://bucket/other/"


@pytest.fixture
def cache(tmp_path: Path) -> RangeCache:
    (tmp_path / "work").mkdir()
    return RangeCache(StoreLocation(f"file://{tmp_path}/work"), 1024**2)


def remembered(cache: RangeCache) -> dict[FileName, list[str]]:
    table = read_plain_files(cache)
    rows = {(row["store_url"], row["range_id"]): row["names"] for row in table.to_pylist()}
    assert len(rows) == table.num_rows
    return rows


def remember(cache: RangeCache, found: dict[FileName, list[str]], tasks: int = 1) -> None:
    plain = PlainFiles(cache, read_plain_files(cache), tasks)
    for file, names in found.items():
        plain.add(file, names)
    plain.write()


def as_parquet(**columns: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def objects(cache: RangeCache) -> list[Path]:
    return sorted(Path(cache.location.url.removeprefix("file://")).glob("_range_cache/v1/plain*/*"))


def test_what_is_remembered_is_there_in_the_next_run(cache: RangeCache) -> None:
    found: dict[FileName, list[str]] = {(URL, "range"): [], (URL, "metarange"): ["a", "b"]}
    remember(cache, found)
    remember(cache, {})
    assert remembered(cache) == found
    assert len(objects(cache)) == 1
    for number in range(plain_files._MOST_OBJECTS):
        found[URL, str(number)] = []
        remember(cache, {(URL, str(number)): [], (URL, "range"): []})
    assert remembered(cache) == found
    assert len(objects(cache)) == 1, "many objects become one"
    assert remembered(cache) == found


def another_name(data: bytes) -> bytes:
    """Change bytes that Parquet does not check."""
    assert b"one" in data
    return data.replace(b"one", b"onf")


@pytest.mark.parametrize(
    "damage",
    [another_name, lambda data: data[:-9] + b"x" + data[-8:], lambda data: data[:40], lambda data: b""],
    ids=["a name", "the footer", "cut", "empty"],
)
def test_what_is_damaged_is_not_remembered(cache: RangeCache, damage: Callable[[bytes], bytes]) -> None:
    remember(cache, {(URL, "one"): []})
    [file] = objects(cache)
    file.write_bytes(damage(file.read_bytes()))
    remember(cache, {(URL, "two"): []})
    assert remembered(cache) == {(URL, "two"): []}
    assert file not in objects(cache)


_NAMES = pa.list_(pa.string())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no Parquet",
        as_parquet(store_url=[URL], range_id=["x"]),
        as_parquet(store_url=[URL], range_id=["x"], names=["y"]),
        as_parquet(store_url=[URL], range_id=["x"], names=pa.array([[None]], _NAMES)),
        as_parquet(store_url=[None], range_id=["x"], names=pa.array([[]], _NAMES)),
        as_parquet(store_url=[URL], range_id=["x"], names=pa.array([["y"]], _NAMES), only_if=["z"]),
        as_parquet(names=pa.array([["y"]], _NAMES), store_url=[URL], range_id=["x"]),
    ],
)
def test_what_another_version_wrote_otherwise_is_not_remembered(cache: RangeCache, content: bytes) -> None:
    """The name of an object is the hash of its content, so nothing is damaged."""
    remember(cache, {(URL, "one"): []})
    [file] = objects(cache)
    (file.parent / sha256(content).hexdigest()).write_bytes(content)
    assert remembered(cache) == {(URL, "one"): []}
    assert objects(cache) == [file]


def test_only_damaged_objects_are_nothing(cache: RangeCache) -> None:
    for number in range(plain_files._MOST_OBJECTS + 1):
        PlainFiles(cache, PLAIN_FILE.empty_table(), 1).write()
        remember(cache, {(URL, str(number)): []})
    for file in objects(cache):
        file.write_bytes(b"")
    assert remembered(cache) == remembered(cache) == {}


def test_what_cannot_be_read_or_written_is_not_remembered(
    cache: RangeCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = RangeCache(cache.location, 0)
    remember(off, {(URL, "one"): []})
    assert remembered(off) == remembered(cache) == {}
    (tmp_path / "work/_range_cache").write_text("a file where the folder belongs")
    remember(cache, {(URL, "one"): []})
    (tmp_path / "work/_range_cache").unlink()
    for number in range(plain_files._MOST_OBJECTS + 1):
        remember(cache, {(URL, str(number)): []})
    put = plain_files._write

    def refused(store: ObjectStore, table: pa.Table) -> None:
        raise AccessDeniedError("another user's folder", remedy="")

    monkeypatch.setattr(plain_files, "_write", refused)
    assert remembered(cache) == {}
    monkeypatch.setattr(plain_files, "_write", put)
    assert len(remembered(cache)) == plain_files._MOST_OBJECTS + 1


def test_no_more_is_remembered_than_fits(cache: RangeCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_files, "_MOST_FILES", 4)
    monkeypatch.setattr(plain_files, "_MOST_NAMES", 4)
    remember(cache, {(URL, "large"): ["a", "b", "c"], (URL, "small"): ["d"]}, tasks=2)
    assert remembered(cache) == {(URL, "small"): ["d"]}, "a task has its share"
    remember(cache, {(URL, "large"): ["a", "b", "c"], (URL, "more"): ["e"]})
    remember(cache, {(URL, str(number)): [] for number in range(9)})
    assert remembered(cache).keys() == {(URL, name) for name in ("small", "large", "0", "1")}
    # If another version remembered more than fits, only a part of it is read.
    monkeypatch.setattr(plain_files, "_MOST_FILES", 2)
    assert len(remembered(cache)) <= 2


def test_another_version_that_reads_addresses_otherwise_looks_again(
    cache: RangeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(cache, {(URL, "one"): []})
    assert f"plain-{ADDRESS_READING}-" in str(objects(cache)[0])
    monkeypatch.setattr(plain_files, "_FOLDER", plain_files._FOLDER.replace(f"plain-{ADDRESS_READING}", "plain-next"))
    assert remembered(cache) == {}


def test_files_of_another_store_or_name_are_not_remembered() -> None:
    plain = pa.Table.from_pylist(
        [
            {"store_url": URL, "range_id": "range", "names": []},
            {"store_url": URL, "range_id": "metarange", "names": ["range", "lost"]},
            {"store_url": URL, "range_id": "gone", "names": ["of a file that is not listed"]},
        ],
        schema=PLAIN_FILE,
    )
    files = [("other", URL, "range"), ("other", URL, "metarange"), ("other", URL, "new"), ("third", "s3://3/", "range")]
    columns = dict(zip(("repository", "store_url", "range_id"), map(list, zip(*files, strict=True)), strict=True))
    left, named = without_plain_files(pa.table(columns), plain)
    assert list(zip(left["store_url"].to_pylist(), left["range_id"].to_pylist(), strict=True)) == [
        (URL, "new"),
        ("s3://3/", "range"),
    ]
    assert named == {(URL, "range"): "other", (URL, "lost"): "other"}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(CANDIDATES + OTHERS) | st.text("da/.:%\\lS3x", max_size=12),
            st.sampled_from([AddressType.RELATIVE, AddressType.RELATIVE, AddressType.FULL, AddressType.BY_PREFIX]),
        ),
        max_size=4,
    ),
    st.sampled_from(["s3://bucket/lake/", "gs://bucket/lake/", "https://a.blob.core.windows.net/bucket/lake/"]),
)
def test_plain_addresses_lead_into_no_other_namespace(entries: list[tuple[str, int]], namespace: str) -> None:
    rows = [
        {field.name: 0 if pa.types.is_integer(field.type) else None for field in RANGE_SCHEMA}
        | {"address": address, "address_type": kind}
        for address, kind in entries
    ]
    columns = [
        pa.array([row[name] for row in rows], RANGE_SCHEMA.field(name).type) for name in ("address", "address_type")
    ]
    batch = pa.record_batch(columns, names=["address", "address_type"])
    known = KnownFolders(namespace, StoreLocation(URL), tuple(spellings(namespace, URL)), (), ())
    inside = known.entries(batch, of_other=(namespace.replace("lake", "other"), URL, namespace))
    assert not (are_plain(batch) and inside.num_rows)


def test_ordinary_entries_are_plain() -> None:
    def batch(*entries: tuple[str, int]) -> pa.RecordBatch:
        addresses, kinds = zip(*entries, strict=True) if entries else ((), ())
        return pa.record_batch(
            [pa.array(addresses, pa.string()), pa.array(kinds, pa.int8())], names=["address", "address_type"]
        )

    issued = ("data/g0uq5dp7f3tql1g4ckvg/cv1p7v9cf3tql1g4ckv0,Z5", AddressType.RELATIVE)
    assert are_plain(batch())
    assert are_plain(batch(issued))
    for other in ("../own/x", "s3://own/x", "data/%2e%2e/x", "/data/x", "a//b"):
        assert not are_plain(batch(issued, (other, AddressType.RELATIVE)))
    assert not are_plain(batch(issued, ("data/x", AddressType.BY_PREFIX)))


@pytest.fixture
def looked_through(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that a small run looked through, in this process."""
    names: list[str] = []

    def noting(data: TableData, name: str) -> Table:
        names.append(name.rpartition("/")[2])
        return opened(data, name)

    monkeypatch.setattr(foreign_references, opened.__name__, noting)
    return names


def test_a_small_run_looks_through_a_plain_file_once(
    spark: SparkSession, lake: Lake, repository: LakeRepository, looked_through: list[str]
) -> None:
    imported, later, garbage = (repository.put_stray(f"data/s/{name}") for name in ("a", "b", "c"))
    other = lake.repository("other")
    other.put("own")
    other.commit()
    other.stage("imported", f"{repository.namespace}{imported}")
    other.commit()

    def found() -> set[str]:
        spark.conf.set(SMALL, "true")
        collector = Collector(spark, repository)
        collector.collect()
        assert collector.manifest("foreign_references").facts["unreadable"] == {}
        assert garbage in collector.addresses("candidates")
        return collector.addresses("foreign_references")

    assert found() == {imported}
    first = list(looked_through)
    assert len(first) == len(set(first)) >= 4
    looked_through.clear()
    assert found() == {imported}
    assert 0 < len(looked_through) < len(first), "only what refers to something elsewhere"
    looked_through.clear()
    other.stage("later", f"{repository.namespace}{later}")
    other.commit()
    assert found() == {imported, later}
    assert set(looked_through) - set(first)
    # The same files, in another namespace of the same lake.
    spark.conf.set(SMALL, "true")
    third = lake.repository("third")
    third.put("x")
    third.commit()
    collector = Collector(spark, third)
    collector.collect()
    assert collector.addresses("foreign_references") == set()


def test_a_range_that_only_a_remembered_metarange_names_is_missed(
    spark: SparkSession, lake: Lake, repository: LakeRepository
) -> None:
    repository.put_stray("data/s/garbage")
    other = lake.repository("other")
    other.put("own")
    metarange = other.metadata_file(other.metarange_of(other.commit()))
    [range_id] = read_metarange(other.store.read(metarange), metarange).column("range_id").to_pylist()

    def unreadable() -> dict[str, str]:
        spark.conf.set(SMALL, "true")
        collector = Collector(spark, repository)
        collector.collect()
        reasons: dict[str, str] = collector.manifest("foreign_references").facts["unreadable"]
        return reasons

    assert unreadable() == {}
    (other.folder / other.metadata_file(range_id)).unlink()
    assert f"{range_id} does not exist" in unreadable()["other"]
