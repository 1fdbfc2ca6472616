"""Every entry of every range is read, or the run fails (rule 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.references.committed import committed, write_addresses
from lakefs_gc.engine.collect.references.range_names import RANGE_NAMES, name_sum, refuse_other_ranges, reports_of
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.session import scale_session
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.engine.workspace.history_index import HistoryIndex
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import (
    CorruptFileError,
    CorruptRangeError,
    InputOrderError,
    LakeFSGCError,
    ObjectNotFoundError,
    SparkFailedError,
)
from lakefs_gc.formats.ranges import read_metarange, read_range
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository


@dataclass(frozen=True)
class Collected:
    """A repository with one commit, which has one range (``file``), and its collector."""

    repository: LakeRepository
    collector: Collector
    keys: set[str]
    metarange_id: str
    range_id: str

    @property
    def file(self) -> str:
        return self.repository.metadata_file(self.range_id)


@pytest.fixture(scope="module")
def collected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collected]:
    with Lake(tmp_path_factory.mktemp("lake")) as lake:
        repository = lake.repository()
        keys = {repository.put(f"path/{number}", age_hours=100) for number in range(50)}
        metarange_id = repository.metarange_of(repository.commit())
        file = repository.metadata_file(metarange_id)
        [range_id] = read_metarange(repository.store.read(file), file).column("range_id").to_pylist()
        repository.keep_days(10)
        # With the range cache, damage to a file that was read before has no effect.
        settings = lake.settings.model_copy(update={"max_range_cache_bytes": 0})
        collector = Collector(spark, repository, settings=settings)
        collector.collect(until="active_ranges")
        yield Collected(repository, collector, keys, metarange_id, range_id)


def test_every_address_is_read_once_with_its_size(collected: Collected) -> None:
    collected.collector.materialize("committed")
    rows = collected.collector.dataset("committed").dataframe.collect()
    assert {row["address"] for row in rows} == collected.keys
    assert len(rows) == len(collected.keys)
    manifest = collected.collector.manifest("committed")
    size_bytes = sum(row["size"] for row in rows)
    assert manifest.facts == {"mode": "rules", "ranges": 1, "entries": len(rows), "size_bytes": size_bytes}
    assert manifest.inputs == {"active_ranges": collected.collector.manifest("active_ranges").materialization_id}


def flip(data: bytes) -> bytes:
    """Flip one bit of the first block."""
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda data: None, ObjectNotFoundError, "{file} does not exist"),
        (lambda data: data[:-100], CorruptRangeError, "{file}: "),
        (lambda data: data[: len(data) // 2], CorruptRangeError, "{file}: "),
        (lambda data: b"", CorruptRangeError, "{file}: "),
        (flip, CorruptRangeError, "{file}: .*checksum"),
    ],
    ids=["missing", "without its end", "half", "empty", "one bit"],
)
def test_an_incomplete_range_fails_the_run(
    collected: Collected, damage: Callable[[bytes], bytes | None], error: type[LakeFSGCError], message: str
) -> None:
    store, file = collected.repository.store, collected.file
    whole = store.read(file)
    damaged = damage(whole)
    if damaged is None:
        store.delete_many([file])
    else:
        store.put(file, damaged)
    try:
        with pytest.raises(error, match=message.format(file=file)) as caught:
            collected.collector.materialize("committed")
    finally:
        store.put(file, whole)
    if error is CorruptRangeError:
        assert caught.value.facts["file"] == file


def test_a_range_that_differs_from_its_metarange_fails_the_run(collected: Collected) -> None:
    context, run = collected.collector.context, collected.collector.run
    described = collected.collector.dataset("active_ranges")
    listed = context.workspace.files_of(described.manifest)
    for wrong in (len(collected.keys) - 1, len(collected.keys) + 1):
        ranges = described.dataframe.withColumn("entries", F.lit(wrong).cast("long"))
        with (
            pytest.raises(CorruptRangeError, match=f"it has 50 entries, but its metarange says {wrong}") as caught,
            driver_errors(),
        ):
            write_addresses(context, run, ranges, "wrong", listed=listed).collect()
        assert caught.value.facts["file"] == collected.file
    write_addresses(context, run, described.dataframe, "wrong", listed=listed).collect()


@pytest.fixture
def of_two_ranges(spark: SparkSession, lake: Lake) -> Collector:
    """Two commits without a common range."""
    repository = lake.repository()
    for age_days in (3, 2):
        repository.put("path", "v" * age_days)
        repository.commit(age_days=age_days)
    repository.keep_days(10)
    collector = Collector(spark, repository)
    collector.collect(until="active_ranges")
    return collector


def read_twice(ranges: Dataset) -> Dataset:
    """The stage, read with the content of one of its files in the place of another one."""
    first, second = ranges.dataframe.collect()
    rows = local_rows(ranges.dataframe.sparkSession, [tuple(first)] * 2, schemas.ACTIVE_RANGES)
    assert first["range_id"] != second["range_id"]
    return Dataset(lambda: rows, ranges.manifest, ranges.files)


@pytest.mark.executors
@pytest.mark.parametrize("is_cached", [False, True])
def test_a_range_that_is_read_in_the_place_of_another_fails_the_run(of_two_ranges: Collector, is_cached: bool) -> None:
    if is_cached:
        of_two_ranges.materialize("committed")
    swapped = read_twice(of_two_ranges.dataset("active_ranges"))
    output = committed(of_two_ranges.context, of_two_ranges.run, swapped)
    with pytest.raises(SparkFailedError, match=r"should have reported [0-9,]+ (names|files)_read"):
        of_two_ranges.workspace.write(of_two_ranges.spark, of_two_ranges.run.run_key, "committed", output)


def test_a_stage_with_other_ranges_is_refused(of_two_ranges: Collector) -> None:
    ranges = of_two_ranges.dataset("active_ranges")
    refuse_other_ranges(ranges)
    with pytest.raises(CorruptFileError, match="active_ranges: it has other rows than were written"):
        refuse_other_ranges(read_twice(ranges))


def test_the_ranges_of_an_older_version_are_read_anew(of_two_ranges: Collector) -> None:
    ranges = of_two_ranges.dataset("active_ranges")
    facts = {name: fact for name, fact in ranges.manifest.facts.items() if name != RANGE_NAMES}
    older = replace(ranges, manifest=replace(ranges.manifest, facts=facts))
    with pytest.raises(InputOrderError, match=r"active_ranges .* was written by an older version"):
        committed(of_two_ranges.context, of_two_ranges.run, older)


@pytest.mark.parametrize("small", [True, False])
def test_spark_sums_names_as_python_does(spark: SparkSession, small: bool) -> None:
    scale_session(spark, {}, small=small)
    try:
        ids = [f"{number:064x}" for number in range(5)]
        ranges = local_rows(spark, [(range_id,) for range_id in ids], "range_id string")
        ranges = ranges if small else ranges.repartition(2)
        assert reports_of(ranges) == {"files_read": 5, "names_read": name_sum(ids)}
        assert reports_of(ranges.where("false")) == {"files_read": 0, "names_read": 0}
    finally:
        scale_session(spark, {}, small=False)


def test_without_rules_every_object_ever_committed_is_live(spark: SparkSession, lake: Lake) -> None:
    repository = lake.repository()
    keys = {repository.put("a")}
    first = repository.commit(age_days=900)
    repository.delete("a")
    keys.add(repository.put("b"))
    commits = [first, repository.commit(age_days=800)]
    repository.branch("gone")
    keys.add(repository.put("c", branch="gone"))
    commits.append(repository.commit(branch="gone", age_days=700))
    repository.delete_branch("gone")
    collector = Collector(spark, repository)
    collector.collect(until="committed")
    assert collector.addresses("committed") == keys
    assert collector.manifest("committed").facts["mode"] == "all_commits"
    # A question about one of them need not read what the run read.
    index = HistoryIndex.read(open_store(collector.workspace.range_cache.location), collector.run.known_folders)
    assert {repository.metarange_of(commit) for commit in commits} <= index.ranges_of.keys()
    # A missing range is noticed, because its metarange still names it.
    metarange = repository.metadata_file(repository.metarange_of(first))
    [range_id] = read_metarange(repository.store.read(metarange), metarange).column("range_id").to_pylist()
    lost = repository.metadata_file(range_id)
    assert [row["address"] for row in read_range(repository.store.read(lost), lost).to_pylist()] <= sorted(keys)
    repository.store.delete_many([lost])
    collector.materialize("active_ranges")
    with pytest.raises(CorruptRangeError, match=f"{lost}: a metarange names this range, but it does not exist"):
        collector.materialize("committed")


def test_addresses_outside_the_namespace_are_dropped(spark: SparkSession, lake: Lake) -> None:
    repository, other = lake.repository(), lake.repository("lake-2")
    inside = repository.put_stray("old-layout-object")
    repository.stage("inside", inside)  # stored with its full address, because it is not in data/
    repository.stage("outside", f"local://lake-2/{other.put('x')}")
    repository.stage("similar", "local://lake-22/data/x")
    own = repository.put("own")
    repository.commit()
    repository.keep_days(10)
    collector = Collector(spark, repository)
    collector.collect(until="committed")
    assert collector.addresses("committed") == {inside, own}


def test_a_range_that_is_written_while_the_files_are_listed_is_read(
    spark: SparkSession, repository: LakeRepository
) -> None:
    """A listing in the order of names may have a metarange but omit a range that was written before it."""
    keys = {repository.put("a")}
    metarange = repository.metadata_file(repository.metarange_of(repository.commit(age_days=900)))
    repository.delete("a")
    keys.add(repository.put("b"))
    repository.commit(age_days=800)
    [range_id] = read_metarange(repository.store.read(metarange), metarange).column("range_id").to_pylist()
    late = repository.metadata_file(range_id)
    content = repository.store.read(late)
    collector = Collector(spark, repository)
    collector.collect(until="uncommitted")
    repository.store.delete_many([late])
    collector.materialize("active_ranges")
    repository.store.put(late, content)
    collector.materialize("committed")
    assert collector.addresses("committed") == keys


@pytest.mark.executors
def test_without_rules_the_files_are_not_listed_by_each_task(
    spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path
) -> None:
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        repository = lake.repository()
        for number in range(12):
            repository.put(f"path/{number}")
            repository.commit(age_days=900 - number)
        collector = Collector(spark, repository)
        store_in_s3.server.requests.clear()
        collector.collect(until="committed")
        folder = store_in_s3.key(repository, "_lakefs/")
        listed = [
            request
            for request in store_in_s3.server.requests
            if request.operation.startswith("ListObjects") and request.query.get("prefix") == folder
        ]
        # Each of the two stages asks in the driver for a file that every list must have, and has one task list all:
        # active_ranges for the names, and committed for the sizes.
        assert len(listed) == 4
