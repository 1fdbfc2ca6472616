"""The range cache saves reads, and is never trusted (rule 3)."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.session import scale_session
from lakefs_gc.engine.workspace import packs, range_cache
from lakefs_gc.engine.workspace.range_cache import RangeCache, Row, _by_size, read_through
from lakefs_gc.errors import CorruptFileError, CorruptRangeError, ObjectNotFoundError
from lakefs_gc.formats.ranges import read_metarange, read_range
from lakefs_gc.formats.sstable.reader import TableData
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.benchmarks.generator import Shape, write_range_number
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository

SHAPE = Shape(entries=60, ranges=6, slots=6)
NOWHERE = {"pack": None, "offset": None, "length": None, "digest": None}


class CachedNamespace:
    """A namespace of six ranges, and a cache beside it, without Spark."""

    def __init__(self, folder: Path) -> None:
        self.namespace, self.cache_folder = folder / "namespace", folder / "work" / "_range_cache" / "v1"
        (self.namespace / "_lakefs").mkdir(parents=True)
        (folder / "work").mkdir()
        self.store_url = f"file://{self.namespace}/"
        self.cache = RangeCache(StoreLocation(f"file://{folder}/work"), 1024**3)
        self.ids = []
        for number in range(SHAPE.ranges):
            table = write_range_number(SHAPE, number)
            self.file(table.id).write_bytes(table.data)
            self.ids.append(table.id)

    def file(self, range_id: str) -> Path:
        return self.namespace / "_lakefs" / range_id

    def located(self, kept_for: str = "") -> list[Row]:
        """The rows that ``locate`` gives, by its own index reader: with the places of another store if one is named."""
        names = pa.record_batch([pa.array(self.cache.prune(), pa.string())], names=["pack"])
        places = {}
        for batch in packs.read_indexes(self.cache.location)(iter([names])):
            for row in batch.to_pylist():
                places[row.pop("store_url"), row.pop("range_id")] = row
        rows = [{"store_url": self.store_url, "range_id": range_id} for range_id in self.ids]
        return [row | places.get((kept_for or row["store_url"], row["range_id"]), NOWHERE) for row in rows]

    def read(self, rows: list[Row] | None = None, *, cores: int = 1) -> dict[str, int]:
        """Read all ranges through the cache: range id to entries."""
        batch = pa.RecordBatch.from_pylist(self.located() if rows is None else rows, schema=BATCH)
        entries_of = {}
        for row, entries in read_through(
            iter([batch]), self.cache, cores, lambda data, file, _: read_range(data, file)
        ):
            assert row["range_id"] not in entries_of
            entries_of[row["range_id"]] = entries.num_rows
        return entries_of

    def lose_the_namespace(self) -> None:
        for range_id in self.ids:
            self.file(range_id).unlink()

    def files(self, name: str) -> list[Path]:
        return sorted((self.cache_folder / name).glob("*"))


BATCH = pa.schema(
    [("store_url", pa.string()), ("range_id", pa.string()), ("pack", pa.string()), ("offset", pa.int64()),
     ("length", pa.int64()), ("digest", pa.binary())]
)  # fmt: skip


@pytest.fixture
def cached(tmp_path: Path) -> CachedNamespace:
    return CachedNamespace(tmp_path)


@pytest.fixture
def everything(cached: CachedNamespace) -> dict[str, int]:
    return dict.fromkeys(cached.ids, SHAPE.per_range)


def test_what_was_read_once_need_not_be_there(cached: CachedNamespace, everything: dict[str, int]) -> None:
    assert cached.read() == everything
    cached.lose_the_namespace()
    assert cached.read() == everything


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def exchange(file: Path) -> None:
    """Two ranges of one length take each other's place in the index."""
    index = pq.read_table(file).to_pylist()
    for name in ("offset", "length"):
        index[0][name], index[1][name] = index[1][name], index[0][name]
    pq.write_table(pa.Table.from_pylist(index, schema=packs.INDEX_FILE), file)


def without_names(file: Path) -> None:
    """The digests of a version that did not compare files with their names."""
    index, pack = pq.read_table(file).to_pylist(), (file.parent.parent / "packs" / file.name).read_bytes()
    for row in index:
        data = pack[row["offset"] : row["offset"] + row["length"]]
        row["digest"] = hashlib.sha256(f"{row['store_url']}\0{row['range_id']}\0".encode() + data).digest()
    pq.write_table(pa.Table.from_pylist(index, schema=packs.INDEX_FILE), file)


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a bit of a pack": ("packs", flip),
    "a pack cut short": ("packs", lambda file: file.write_bytes(file.read_bytes()[:-900])),
    "an empty pack": ("packs", lambda file: file.write_bytes(b"")),
    "a pack that is gone": ("packs", Path.unlink),
    "an index that is none": ("index", lambda file: file.write_bytes(b"PAR1")),
    "another table as an index": ("index", lambda file: pq.write_table(pa.table({"x": [1]}), file)),
    "an index of other places": ("index", exchange),
    "files that were not compared with their names": ("index", without_names),
}


@pytest.mark.parametrize(("folder", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_is_read_anew(
    cached: CachedNamespace, everything: dict[str, int], folder: str, damage: Callable[[Path], object]
) -> None:
    cached.read()
    [file] = cached.files(folder)
    damage(file)
    assert cached.read() == everything
    assert file not in cached.files(folder), "what is damaged is dropped"
    assert cached.read() == everything
    assert file.name not in {pack.name for pack in cached.files("packs")}
    cached.lose_the_namespace()
    assert cached.read() == everything


def test_another_stores_range_is_another_range(cached: CachedNamespace, everything: dict[str, int]) -> None:
    """Even of the same name: what one repository's store says of it proves nothing for another's."""
    cached.read()
    other = cached.namespace.rename(cached.namespace.with_name("other"))
    assert {row["pack"] is None for row in cached.located()} == {False}
    cached.store_url = f"file://{other}/"
    assert {row["pack"] for row in cached.located()} == {None}
    forged = cached.located(f"file://{cached.namespace}/")
    assert all(row["pack"] for row in forged)
    cached.namespace = other
    assert cached.read(forged) == everything
    cached.file(cached.ids[0]).unlink()
    with pytest.raises(ObjectNotFoundError):
        cached.read(forged)


def test_nothing_damaged_is_kept(cached: CachedNamespace) -> None:
    flip(cached.file(cached.ids[3]))
    with pytest.raises(CorruptRangeError):
        cached.read()
    assert cached.files("packs") == []


def test_what_decodes_from_the_store_and_not_from_the_cache(
    cached: CachedNamespace, everything: dict[str, int]
) -> None:
    """A digest proves that the content is what was read, not that it was any good."""
    cached.read()
    rows = cached.located()
    [pack] = cached.files("packs")
    seen: set[str] = set()

    def decode(data: TableData, file: str, row: Row) -> int:
        if not seen:
            seen.add(file)
            raise CorruptFileError(file, "raised by the test")
        return int(read_range(data, file).num_rows)

    batch = pa.RecordBatch.from_pylist(rows, schema=BATCH)
    found = {row["range_id"]: count for row, count in read_through(iter([batch]), cached.cache, 1, decode)}
    assert found == everything
    assert pack not in cached.files("packs")


def test_the_least_recently_used_goes_first(cached: CachedNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "PACK_BYTES", 1)  # a pack for each range
    cached.read()
    size_bytes = {file.name: file.stat().st_size for file in cached.files("packs")}
    assert len(size_bytes) == SHAPE.ranges
    rows = cached.located()
    for file in (*cached.files("packs"), *cached.files("used")):
        os.utime(file, (time.time() - 9000,) * 2)
    used = rows[2:4]
    cached.read(used)
    limit = sum(size_bytes[row["pack"]] for row in used)
    assert set(RangeCache(cached.cache.location, limit).prune()) == {row["pack"] for row in used}
    assert {file.name for file in cached.files("packs")} == {row["pack"] for row in used}
    assert {file.name for file in cached.files("index")} == {row["pack"] for row in used}
    assert RangeCache(cached.cache.location, 0).prune() == []
    assert cached.files("packs") == []


def test_a_task_adds_no_more_than_there_is_room_for(
    cached: CachedNamespace, everything: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    size_bytes = cached.file(cached.ids[0]).stat().st_size
    for limit, kept, warnings in ((0, 0, 0), (int(2.5 * size_bytes), 2, 1), (1024**3, SHAPE.ranges, 0)):
        caplog.clear()
        cached.cache = RangeCache(cached.cache.location, limit)
        assert cached.read() == everything
        assert sum(row["pack"] is not None for row in cached.located()) == kept
        assert len(caplog.messages) == warnings
        if warnings:
            assert f"range cache: no space for {SHAPE.ranges - kept} files" in caplog.text
            assert "raise max_range_cache_bytes" in caplog.text


def test_each_of_many_tasks_has_room_for_a_range(cached: CachedNamespace, everything: dict[str, int]) -> None:
    gib = 1024**3
    rooms = [RangeCache(cached.cache.location, 10 * gib).room_of_task(cores) for cores in (1, 80, 200, 1000)]
    assert rooms == [10 * gib // 4, *[32 * 1024**2] * 3]
    assert RangeCache(cached.cache.location, 0).room_of_task(1000) == 0
    size_bytes = cached.file(cached.ids[0]).stat().st_size
    cached.cache = RangeCache(cached.cache.location, 10 * size_bytes)
    assert cached.read(cores=10_000) == everything
    assert all(row["pack"] for row in cached.located()), "no task has a 40,000th of the room"
    cached.cache = RangeCache(cached.cache.location, 5 * size_bytes)
    assert cached.cache.prune() == [], "what all tasks together wrote is held to the limit"


def test_another_run_may_make_room_at_any_time(cached: CachedNamespace, everything: dict[str, int]) -> None:
    cached.read()
    rows = cached.located()
    assert RangeCache(cached.cache.location, 0).prune() == []
    assert cached.read(rows) == everything


def test_a_pack_without_an_index_goes_after_a_while(cached: CachedNamespace) -> None:
    cached.read()
    [index], [pack] = cached.files("index"), cached.files("packs")
    index.unlink()
    assert cached.cache.prune() == []
    assert pack.exists(), "its writer may be about to write the index"
    os.utime(pack, (time.time() - 86_400,) * 2)
    assert cached.cache.prune() == []
    assert not pack.exists()


def test_without_a_place_to_write_the_run_goes_on(cached: CachedNamespace, everything: dict[str, int]) -> None:
    cached.cache_folder.parent.write_text("a file where the folder belongs")
    assert cached.read([{"store_url": cached.store_url, "range_id": id_} | NOWHERE for id_ in cached.ids]) == everything


def ranges_of(repository: LakeRepository, commit_id: str) -> set[str]:
    """The files of the ranges of a commit."""
    metarange = repository.metadata_file(repository.metarange_of(commit_id))
    ids = read_metarange(repository.store.read(metarange), metarange).column("range_id").to_pylist()
    return {repository.metadata_file(range_id) for range_id in ids}


@pytest.mark.of_ci
@pytest.mark.executors
def test_a_second_run_reads_only_what_is_new(spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        repository = lake.repository()
        for number in range(3):
            repository.put(f"path/{number}")
            old = repository.commit(age_days=8 - number)
        repository.put_stray("data/s/garbage")
        repository.keep_days(10)
        first = Collector(spark, repository)
        first.collect()
        before = ranges_of(repository, old)
        repository.put("path/new")
        new_commit = repository.commit()
        metarange = repository.metadata_file(repository.metarange_of(new_commit))
        store_in_s3.server.requests.clear()
        second = Collector(spark, repository)
        second.collect()
        reads = [key for key in store_in_s3.reads_by_workers() if len(key.rpartition("/")[2]) == 64]
        new = {metarange, *(ranges_of(repository, new_commit) - before)}
        assert sorted(reads) == sorted(store_in_s3.key(repository, key) for key in new), (
            "each of them once, for all stages together"
        )
        assert len(second.addresses("committed") - first.addresses("committed")) == 1
        # What is lost is missed, though the cache has it.
        lost = repository.metadata_file(repository.metarange_of(old))
        repository.store.delete_many([lost])
        with pytest.raises(ObjectNotFoundError, match=lost):
            Collector(spark, repository).collect(until="active_ranges")


@pytest.mark.parametrize("existing", [None, 2], ids=["all files", "two files that exist"])
def test_a_small_run_locates_what_spark_locates(
    spark: SparkSession, cached: CachedNamespace, existing: int | None
) -> None:
    def located(*, small: bool) -> list[Row]:
        scale_session(spark, {}, small=small)
        try:
            kept = local_rows(spark, sizes[:existing], "range_id string, size_bytes long") if existing else None
            return [row.asDict() for row in cached.cache.locate(spark, files, cores=2, existing=kept).collect()]
        finally:
            scale_session(spark, {}, small=False)

    cached.read()
    cached.read([row | NOWHERE for row in cached.located()])  # a second pack of the same files
    sizes = [(range_id, 9) for range_id in cached.ids]
    rows = [(cached.store_url, range_id, number) for number, range_id in enumerate([*cached.ids, "unknown"])]
    files = local_rows(spark, rows, "store_url string, range_id string, entries long")
    here, by_spark = located(small=True), located(small=False)
    assert len(cached.files("packs")) == 2
    assert [row["entries"] for row in here] == list(range(len(rows)))
    assert [row["range_id"] for row in here if row["pack"]] == cached.ids[:existing]
    of_either_pack = {(row["range_id"], row["length"], bytes(row["digest"])) for row in by_spark if row["pack"]}
    assert {(row["range_id"], row["length"], bytes(row["digest"])) for row in here if row["pack"]} == of_either_pack
    for row in here:
        if row["pack"]:  # all columns are of one pack
            pack = next(file for file in cached.files("packs") if file.name == row["pack"])
            content = pack.read_bytes()[row["offset"] : row["offset"] + row["length"]]
            assert packs._digest(cached.store_url, row["range_id"], content) == bytes(row["digest"])


def test_a_small_run_reads_few_files_itself(cached: CachedNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def few(rows: list[Row]) -> bool:
        return range_cache.few_to_read(2, pa.Table.from_pylist(rows, schema=BATCH))

    monkeypatch.setattr(range_cache, "_FEW_FILES", 3)
    assert few([])
    cold = cached.located()
    assert few(cold[:3])
    assert not few(cold[:4])
    cached.read()
    cold, warm = cold[:3], cached.located()
    assert few([*cold, *warm]), "what is in the cache is read fast"
    monkeypatch.setattr(range_cache, "_FEW_CACHED_BYTES", sum(row["length"] for row in warm) - 1)
    assert not few(warm)


@pytest.mark.parametrize("together_bytes", [1, 1000, 1024**3])
def test_each_file_is_decoded_once_and_cached(
    cached: CachedNamespace, monkeypatch: pytest.MonkeyPatch, together_bytes: int
) -> None:
    monkeypatch.setattr(range_cache, "_DECODED_TOGETHER_BYTES", together_bytes)
    assert cached.read() == dict.fromkeys(cached.ids, SHAPE.entries // SHAPE.ranges)
    cached.lose_the_namespace()
    assert cached.read().keys() == set(cached.ids)


@pytest.mark.parametrize(
    ("cores", "sizes", "expected"),
    [
        (2, (1, 3000), {32: [0, 1]}),
        (2, (1, 20 * 1024**2, 1024**2), {32: [0], 8: [1, 2]}),
        (2, (None, 5, None), {32: [1], 8: [0, 2]}),
        (8, (1, 2), {16: [0, 1]}),
        (100, (1, 2), {8: [0, 1]}),
        (2, (), {}),
    ],
)
def test_small_files_are_read_many_at_once(
    cores: int, sizes: tuple[int | None, ...], expected: dict[int, list[int]]
) -> None:
    rows: list[Row] = [{"range_id": str(number), "size_bytes": size} for number, size in enumerate(sizes)]
    read = {at_once: [int(row["range_id"]) for row in files.values()] for at_once, files in _by_size(rows, cores)}
    assert read == expected
    assert list(_by_size([{"range_id": "0"}], 2)) == [(8, {"_lakefs/0": {"range_id": "0"}})]


@pytest.mark.executors
def test_which_task_reads_a_file_depends_on_nothing_that_changes(spark: SparkSession, cached: CachedNamespace) -> None:
    """If Spark repeats a task, a file must not move to a task that has ended: nobody would read it."""
    rows = [(cached.store_url, range_id) for range_id in cached.ids]
    files = local_rows(spark, rows, "store_url string, range_id string")
    existing, others = (
        local_rows(spark, [(range_id, 1) for range_id in ids], "range_id string, size_bytes long")
        for ids in (cached.ids, cached.ids[3:])
    )
    threshold = "spark.sql.autoBroadcastJoinThreshold"
    before = spark.conf.get(threshold) or ""
    spark.conf.set(threshold, "-1")
    try:
        for is_cached in (False, True):
            located = cached.cache.locate(spark, files, cores=2, existing=existing)
            plan = located._jdf.queryExecution().executedPlan().toString()
            assert "RoundRobin" not in plan
            assert ("BroadcastHashJoin" in plan) == is_cached
            of_others = cached.cache.locate(spark, files, cores=2, existing=others)
            assert of_others.where("size_bytes is null").count() == 3
            tasks = [
                {row["range_id"]: row["task"] for row in rows.select("range_id", task.alias("task")).collect()}
                for rows, task in ((located, F.spark_partition_id()), (of_others, F.spark_partition_id()))
            ]
            assert tasks[0] == tasks[1], "a file that is gone in another list takes no other with it"
            cached.read()
    finally:
        spark.conf.set(threshold, before)


def test_files_of_a_small_run_have_their_sizes(
    spark: SparkSession, cached: CachedNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is known which exist: also before anything is cached. Those that do not exist have none."""
    sizes = {range_id: 10 * number for number, range_id in enumerate(cached.ids)}
    existing = local_rows(spark, list(sizes.items())[1:], "range_id string, size_bytes long")
    rows = [(cached.store_url, range_id) for range_id in reversed(cached.ids)]
    files = local_rows(spark, rows, "store_url string, range_id string")
    for is_cached in (False, True):
        scale_session(spark, {}, small=True)
        try:
            located = cached.cache.locate(spark, files, cores=2, existing=existing).toArrow()
        finally:
            scale_session(spark, {}, small=False)
        found = dict(zip(located["range_id"].to_pylist(), located["size_bytes"].to_pylist(), strict=True))
        assert found == sizes | {cached.ids[0]: None}
        assert [pack is not None for pack in located["pack"].to_pylist()].count(True) == is_cached * (len(rows) - 1)
        cached.read()
    monkeypatch.setattr(range_cache, "_FEW_FILES", 0)
    assert not range_cache.few_to_read(2, located), "one of an unknown size is not cached"
    assert range_cache.few_to_read(2, located.filter(pc.is_valid(located["pack"])))


@pytest.mark.parametrize(
    ("cores", "files", "file_bytes", "expected"),
    [
        pytest.param(2, 5000, 3000, True, id="as fast as two workers"),
        pytest.param(2, 5001, 3000, False, id="many"),
        pytest.param(8, 2000, 3000, True, id="less than workers need to start"),
        pytest.param(8, 2001, 3000, False, id="eight workers are faster"),
        pytest.param(2, 100, 1024**2, False, id="large"),
    ],
)
def test_who_reads_the_files(cores: int, files: int, file_bytes: int, expected: bool) -> None:
    none = pa.nulls(files, pa.string())
    located = pa.table({"pack": none, "length": none.cast(pa.int64()), "size_bytes": [file_bytes] * files})
    assert range_cache.few_to_read(cores, located) is expected
