"""Ranges that are read while the server lists what is staged are those that ``committed`` would have read (rule 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.references import committed as stage
from lakefs_gc.engine.collect.references.committed import begin_committed, committed, write_addresses
from lakefs_gc.engine.collect.references.ranges_ahead import RangesRead, take_ranges
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.workspace import range_cache
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import CorruptRangeError, LakeFSGCError, ObjectNotFoundError, SparkFailedError
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository


@dataclass
class Ahead:
    """A run that has listed the store. Two branches have a commit each, ``late`` one that the rules soon expire."""

    repository: LakeRepository
    collector: Collector
    context: RunContext
    run: GCRun
    read: list[set[str]]
    """The ranges of each call of ``write_addresses``."""

    def collect(self) -> tuple[set[str], Dataset]:
        """The stages after the list. Returns the addresses that ``committed`` has, and what it is."""
        self.collector.materialize("uncommitted", "active_ranges")
        output = committed(self.context, self.run, self.collector.dataset("active_ranges"))
        self.collector.workspace.write(self.collector.spark, self.run.run_key, "committed", output)
        dataset = self.collector.dataset("committed")
        return {row["address"] for row in dataset.dataframe.collect()}, dataset

    def ranges_of(self, branch: str) -> set[str]:
        """The ranges of a head."""
        file = self.repository.metadata_file(self.repository.metarange_of(branch))
        return set(read_metarange(self.repository.store.read(file), file).column("range_id").to_pylist())


@pytest.fixture
def ahead(spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch) -> Ahead:
    repository.put("old")
    repository.commit(age_days=90)
    repository.delete("old")
    repository.put("kept")
    repository.commit()
    repository.branch("late")
    repository.put("of late", branch="late")
    repository.commit(branch="late", age_days=90)
    repository.keep_days(10)
    read: list[set[str]] = []

    def recorded(context: RunContext, run: GCRun, ranges: object, *arguments: object, **options: object) -> object:
        read.append({row["range_id"] for row in ranges.collect()})  # type: ignore[attr-defined]
        return write_addresses(context, run, ranges, *arguments, **options)  # type: ignore[arg-type]

    collector = Collector(spark, repository)
    collector.materialize("store_listing")
    monkeypatch.setattr(stage, "write_addresses", recorded)
    return Ahead(repository, collector, collector.context, collector.run, read)


def test_each_range_is_read_once(ahead: Ahead) -> None:
    expected, without = ahead.collect()
    [every] = ahead.read
    begin_committed(ahead.context, ahead.run)
    found, dataset = ahead.collect()
    assert found == expected
    assert dataset.manifest.facts == without.manifest.facts
    assert dataset.manifest.rows == without.manifest.rows
    of_heads = ahead.ranges_of("main") | ahead.ranges_of("late")
    assert of_heads < every
    assert ahead.read[1:] == [of_heads, every - of_heads]


def test_the_process_of_a_small_run_reads_many_small_files(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand branches have a thousand files. Only a list tells that they are small."""
    monkeypatch.setattr(range_cache, "_FEW_FILES", 1)
    begin_committed(ahead.context, ahead.run)
    found, _ = ahead.collect()
    assert found
    of_heads = ahead.ranges_of("main") | ahead.ranges_of("late")
    assert [ranges & of_heads for ranges in ahead.read] == [of_heads, set()]


@pytest.mark.executors
def test_workers_read_each_range_once(ahead: Ahead) -> None:
    test_each_range_is_read_once(ahead)


@pytest.mark.executors
def test_reports_of_parts_pass_no_shuffle(ahead: Ahead) -> None:
    """The names in them are random: of a task that runs again after a shuffle, the parts of no attempt would count."""
    begin_committed(ahead.context, ahead.run)
    ahead.collector.materialize("uncommitted", "active_ranges")
    output = committed(ahead.context, ahead.run, ahead.collector.dataset("active_ranges"))
    assert len(ahead.read) == 2, "some ranges were read ahead"
    plan = output.dataframe._jdf.queryExecution().executedPlan().toString()
    above, workers, below = plan.partition("MapInArrow")
    assert workers
    assert "Exchange" not in above
    assert "Exchange" in below, "the ranges are distributed over tasks"


@pytest.mark.executors
def test_a_range_of_which_no_task_reports_fails_the_stage(ahead: Ahead) -> None:
    begin_committed(ahead.context, ahead.run)
    ahead.collector.materialize("uncommitted", "active_ranges")
    ranges = ahead.collector.dataset("active_ranges")
    output = committed(ahead.context, ahead.run, ranges)
    lost = replace(output, dataframe=output.dataframe.limit(1))
    with pytest.raises(SparkFailedError, match=f"should have reported {ranges.manifest.rows} files_read"):
        ahead.collector.workspace.write(ahead.collector.spark, ahead.run.run_key, "committed", lost)


def test_what_becomes_active_after_it_is_read(ahead: Ahead) -> None:
    before, _ = ahead.collect()
    begin_committed(ahead.context, ahead.run)
    new = ahead.repository.put("new")
    ahead.repository.commit()
    found, _ = ahead.collect()
    assert found == before | {new}
    every, of_heads, others = ahead.read
    assert others == (every | ahead.ranges_of("main")) - of_heads


def test_nothing_is_taken_of_a_commit_that_is_not_active_any_more(ahead: Ahead) -> None:
    """Otherwise its objects would stay, and the mark would not be the one that the rules demand."""
    before, _ = ahead.collect()
    begin_committed(ahead.context, ahead.run)
    gone = ahead.ranges_of("late") - ahead.ranges_of("main")
    ahead.repository.delete_branch("late")
    found, _ = ahead.collect()
    assert found < before
    every, of_heads, again = ahead.read
    assert gone
    assert gone <= of_heads
    assert again == every - gone


@pytest.mark.parametrize("damage", [lambda data: data[:-100], None], ids=["damaged", "missing"])
def test_what_cannot_be_read_ahead_fails_the_stage(ahead: Ahead, damage: Callable[[bytes], bytes] | None) -> None:
    store = ahead.repository.store
    [range_id] = ahead.ranges_of("late") - ahead.ranges_of("main")
    file = ahead.repository.metadata_file(range_id)
    whole = store.read(file)
    store.delete_many([file])
    if damage:
        store.put(file, damage(whole))
    begin_committed(ahead.context, ahead.run)
    errors: tuple[type[LakeFSGCError], ...] = (CorruptRangeError, ObjectNotFoundError)
    with pytest.raises(errors, match=range_id):
        ahead.collect()
    store.delete_many([file])
    store.put(file, whole)
    assert ahead.collect()[1].manifest.rows, "and nothing of the failure is left"


def test_a_metarange_with_another_number_of_entries_has_the_range_read_again(ahead: Ahead) -> None:
    begin_committed(ahead.context, ahead.run)
    ahead.collector.materialize("uncommitted", "active_ranges")
    active = ahead.collector.dataset("active_ranges").dataframe

    def take(rows: object) -> RangesRead | None:
        taken: RangesRead | None = ahead.context.ahead.take(ahead.run, "ranges")
        assert taken is not None
        ahead.context.ahead.keep(ahead.run, "ranges", taken)
        result = take_ranges(ahead.context, ahead.run, rows)  # type: ignore[arg-type]
        ahead.context.ahead.keep(ahead.run, "ranges", taken)
        return result

    assert take(active) is not None
    assert take(active.withColumn("entries", F.lit(None).cast("long"))) is not None, "of a list of files"
    assert take(active.withColumn("entries", F.col("entries") + 1)) is None
    [one] = ahead.ranges_of("main") - ahead.ranges_of("late") or ahead.ranges_of("main")
    others = active.where(F.col("range_id") != one)
    assert take(others) is None
    assert take(others.unionByName(others)) is None, "also where one that is named twice makes up for it"


def test_without_a_list_to_wait_for_nothing_is_kept(ahead: Ahead) -> None:
    """A stage that is materialized alone, in another process, reads all ranges itself."""
    ahead.collect()
    assert len(ahead.read) == 1
    assert ahead.read[0] >= ahead.ranges_of("main")
