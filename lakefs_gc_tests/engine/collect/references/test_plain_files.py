"""What small runs remember of the metadata files of other repositories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakefs_gc.engine.collect.references import foreign_references, plain_files
from lakefs_gc.engine.collect.references.plain_files import (
    PLAIN_FILE,
    FileName,
    read_plain_files,
    remember_plain_files,
    without_plain_files,
)
from lakefs_gc.engine.spark.scale import SMALL
from lakefs_gc.engine.workspace.range_cache import RangeCache
from lakefs_gc.formats.addresses import are_plain, spellings
from lakefs_gc.formats.entry import AddressType
from lakefs_gc.formats.ranges import RANGE_SCHEMA, read_metarange
from lakefs_gc.formats.sstable.reader import read_properties
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.addresses import CANDIDATES, OTHERS
from lakefs_gc_tests.support.collector import Collector, Lake, LakeRepository

URL = "s3://bucket/other/"


@pytest.fixture
def cache(tmp_path: Path) -> RangeCache:
    (tmp_path / "work").mkdir()
    return RangeCache(StoreLocation(f"file://{tmp_path}/work"), 1024**2)


def remembered(cache: RangeCache) -> dict[FileName, list[str]]:
    return {(row["store_url"], row["range_id"]): row["names"] for row in read_plain_files(cache).to_pylist()}


def objects(cache: RangeCache) -> list[Path]:
    return sorted(Path(cache.location.url.removeprefix("file://"), "_range_cache/v1/plain").glob("*"))


def test_what_is_remembered_is_there_in_the_next_run(cache: RangeCache) -> None:
    found: dict[FileName, list[str]] = {(URL, "range"): [], (URL, "metarange"): ["a", "b"]}
    remember_plain_files(cache, found)
    remember_plain_files(cache, {})
    assert remembered(cache) == found
    assert len(objects(cache)) == 1
    for number in range(plain_files._MOST_OBJECTS):
        found[URL, str(number)] = []
        remember_plain_files(cache, {(URL, str(number)): []})
    assert remembered(cache) == found
    assert len(objects(cache)) == 1, "many objects become one"
    assert remembered(cache) == found


def flip(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


@pytest.mark.parametrize("damage", [flip, lambda data: data[:40], lambda data: b""], ids=["a bit", "cut", "empty"])
def test_what_is_damaged_is_not_remembered(cache: RangeCache, damage: Callable[[bytes], bytes]) -> None:
    remember_plain_files(cache, {(URL, "one"): []})
    [file] = objects(cache)
    file.write_bytes(damage(file.read_bytes()))
    remember_plain_files(cache, {(URL, "two"): []})
    assert remembered(cache) == {(URL, "two"): []}
    assert file not in objects(cache)


def test_nothing_is_remembered_without_a_cache_or_a_place(
    cache: RangeCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = RangeCache(cache.location, 0)
    remember_plain_files(off, {(URL, "one"): []})
    assert remembered(off) == remembered(cache) == {}
    (tmp_path / "work/_range_cache").write_text("a file where the folder belongs")
    remember_plain_files(cache, {(URL, "one"): []})
    (tmp_path / "work/_range_cache").unlink()
    monkeypatch.setattr(plain_files, "_MOST_FILES", 2)
    for number in range(3):
        remember_plain_files(cache, {(URL, str(number)): []})
    assert len(remembered(cache)) == 3
    assert remembered(cache) == {}, "there were too many"
    monkeypatch.setattr(plain_files, "_MOST_NAMES", 2)
    remember_plain_files(cache, {(URL, "metarange"): ["a", "b", "c"]})
    assert len(remembered(cache)) == 1
    assert remembered(cache) == {}, "they named too many ranges"


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
    read = read_properties

    def noting(data: bytes, name: str) -> object:
        names.append(name.rpartition("/")[2])
        return read(data, name)

    monkeypatch.setattr(foreign_references, read_properties.__name__, noting)
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
