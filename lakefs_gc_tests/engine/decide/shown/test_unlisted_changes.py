"""What a branch has staged is kept, also where the server's list has fewer rows than the branches have changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.collect.references import uncommitted
from lakefs_gc.engine.decide.shown.lookups import TwinSearch
from lakefs_gc.engine.decide.shown.shown_objects import find_shown
from lakefs_gc.engine.decide.shown.unlisted_changes import counting_changes
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import Change, UncommittedPage
from lakefs_gc_tests.support.collector import Collector, counts, marked
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository


@pytest.fixture
def collector(spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch) -> Collector:
    """Its server can be made to forget rows: changes of local stores are not asked for one by one here."""
    monkeypatch.setattr(uncommitted, "_shown_uncommitted", lambda *_: [])
    repository.put("committed")
    repository.commit()
    repository.keep_days(10)
    repository.branch("dev")
    return Collector(spark, repository)


def found(
    spark: SparkSession, collector: Collector, listed: int | None, suspects: dict[str, int], most: int = 100
) -> dict[str, str]:
    search = TwinSearch(
        collector.context.with_safety(SafetyParameters(max_twin_lookups=most)), collector.run, "x", None
    )
    rows = spark.createDataFrame(list(suspects.items()), "address string, size long")
    heads = collector.server.heads_of("lake")
    shown = find_shown(rows, {"heads": heads, "listed": listed}, search, for_mark=True).objects
    return {row["address"]: row["why"] for row in shown.collect()}


@pytest.mark.usefixtures("few_paths")
def test_as_many_rows_as_changes(spark: SparkSession, repository: LakeRepository, collector: Collector) -> None:
    collector.collect(until="uncommitted")
    staged = repository.put("a", "12345"), repository.put("b", "1234567", branch="dev")
    repository.delete("committed")
    suspects = dict(zip(staged, (5, 7), strict=True)) | {"data/s/other": 5}
    assert found(spark, collector, 2, suspects) == {}
    kept = dict.fromkeys(staged, "shown_by_a_branch")
    assert found(spark, collector, 1, suspects) == kept
    assert found(spark, collector, None, suspects) == kept
    assert found(spark, collector, 1, {staged[0]: 5, "data/s/other": 6}) == {staged[0]: "shown_by_a_branch"}
    # The size of an entry is what a client stated: few changes are all looked up.
    assert found(spark, collector, 1, dict.fromkeys(suspects, 1)) == kept
    assert found(spark, collector, 1, dict.fromkeys(suspects, 1), most=1) == {}
    assert found(spark, collector, 1, suspects | {"data/s/long": 8}, most=1) == dict.fromkeys(suspects, "shielded")


@pytest.mark.parametrize("moved", ["a commit", "a new branch", "a deleted branch"])
def test_as_many_changes_as_rows_show_nothing_if_a_branch_moved(
    spark: SparkSession, repository: LakeRepository, collector: Collector, moved: str
) -> None:
    """A row of the list is no change any more, or a change was made after the list, and another row was omitted."""
    collector.collect(until="uncommitted")
    heads, omitted = collector.server.heads_of("lake"), repository.put("a", "12345", branch="dev")
    if moved == "a commit":
        repository.put("listed")
        repository.commit()
    elif moved == "a new branch":
        repository.branch("new")
    else:
        repository.branch("old")
        heads = collector.server.heads_of("lake")
        repository.delete_branch("old")
    search = TwinSearch(collector.context, collector.run, "x", None)
    rows = spark.createDataFrame([(omitted, 5)], "address string, size long")
    kept = find_shown(rows, {"heads": heads, "listed": 1}, search, for_mark=True).objects
    assert [row["address"] for row in kept.collect()] == [omitted]


@pytest.mark.parametrize("branches", [["main"] * 1000, ["main"]], ids=["many", "one"])
def test_a_caller_that_fails_waits_for_no_count(
    spark: SparkSession, repository: LakeRepository, collector: Collector, branches: list[str]
) -> None:
    collector.collect(until="uncommitted")
    counted = 0

    class Endless(LakeFSClient):
        def changes(self, repository: str, branch: str) -> Iterator[Change]:
            nonlocal counted
            while True:
                counted += 1
                time.sleep(0.01)
                yield Change("a", 1)

    collector.server = Endless(repository.lake.credentials)
    search = TwinSearch(collector.context, collector.run, "x", None)
    rows = spark.createDataFrame([("data/s/x", 5)], "address string, size long")
    with pytest.raises(KeyError), counting_changes(rows, branches, search, at_once=True) as counting:
        raise KeyError
    with pytest.raises(CancelledError):
        counting.result()
    time.sleep(0.5)
    ended = counted
    time.sleep(0.5)
    assert counted == ended, "no thread reads on"


@pytest.mark.parametrize("moved_to", ["another path", "a new branch", "a commit"])
def test_an_object_that_was_moved_or_was_committed_since_the_count_is_kept(
    spark: SparkSession, repository: LakeRepository, collector: Collector, moved_to: str
) -> None:
    """After a commit it is no change any more, and the heads were read before it was in one."""
    collector.collect(until="uncommitted")
    staged = repository.put("a", "12345")

    def move() -> None:
        if moved_to == "a commit":
            repository.commit()
        else:
            branch = "main" if moved_to == "another path" else "new"
            if branch == "new":
                repository.branch(branch)
            repository.stage("b", f"{repository.namespace}/{staged}", size_bytes=5, branch=branch)
            repository.delete("a")

    class MovesAfterTheCount(LakeFSClient):
        lists = 0

        def branch_heads(self, repository: str) -> Iterator[tuple[str, str]]:
            self.lists += 1
            if self.lists == 2:
                move()
            return super().branch_heads(repository)

    heads = collector.server.heads_of("lake")
    collector.server = server = MovesAfterTheCount(repository.lake.credentials)
    search = TwinSearch(collector.context, collector.run, "x", None)
    rows = spark.createDataFrame([(staged, 5), ("data/s/other", 5)], "address string, size long")
    omitted = find_shown(rows, {"heads": heads, "listed": 0}, search, for_mark=True).objects
    assert {row["address"] for row in omitted.collect()} == {staged}
    assert server.lists == 2


class AsGoWritesJSON(LakeFSClient):
    """Shows the paths of changes as a server shows a path with a byte that is not UTF-8."""

    def changes(self, repository: str, branch: str) -> Iterator[Change]:
        for change in super().changes(repository, branch):
            yield Change(change.path + "\N{REPLACEMENT CHARACTER}", change.size_bytes)


def test_a_staged_path_that_is_not_utf_8_cannot_be_looked_up(
    spark: SparkSession, repository: LakeRepository, collector: Collector
) -> None:
    """The server finds no object by the name that it shows: that does not prove that there is none.

    If the list is not whole, the entry may be the only one of its object, and state a wrong size.
    """
    collector.server = AsGoWritesJSON(repository.lake.credentials)
    staged = repository.put("a", "12345")
    collector.collect(until="uncommitted")
    assert found(spark, collector, 0, {staged: 5, "data/s/other": 6}) == dict.fromkeys(
        (staged, "data/s/other"), "shielded"
    )


def test_a_list_without_rows(
    spark: SparkSession, repository: LakeRepository, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lakeFS server whose own store fails it in the middle of a branch leaves out the rest, without an error."""
    staged, garbage = repository.put("staged", "12345"), repository.put_stray("data/s/garbage", b"1234567")
    alike = repository.put_stray("data/s/alike", b"12345")
    monkeypatch.setattr(uncommitted, "_files", lambda *_: [])
    collector.collect()
    assert collector.addresses("candidates") == {garbage, alike}
    result = collector.sweep(collector.mark_objects(staged, garbage))
    assert counts(result) == {"deleted": 1, "resurrected": 1}
    assert repository.read("staged") == b"12345"


@pytest.mark.parametrize("row_is", ["committed", "deleted"])
def test_as_many_rows_as_changes_of_other_objects(
    spark: SparkSession, tmp_path: Path, store_in_s3: StoreInS3, row_is: str
) -> None:
    """The list omits what is staged by a name that only a mount tells. One of its rows stops being a change."""
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        own = lake.repository("own")
        own.put("a")
        own.commit()
        own.branch("dev")
        own.branch("pipeline")
        staged, garbage = own.put_stray("data/slice/staged"), own.put_stray("data/slice/garbage")
        name = own.namespace.replace("s3://bucket/", "s3://alias/")
        own.stage("linked", name + staged, branch="dev", size_bytes=5)

        class WhileAPipelineCommits(LakeFSClient):
            def prepare_uncommitted(self, repository: str, token: str = "") -> UncommittedPage:
                path = f"{time.time_ns()}"
                own.put(path, branch="pipeline")
                page = super().prepare_uncommitted(repository, token)
                own.commit(branch="pipeline") if row_is == "committed" else own.delete(path, branch="pipeline")
                return page

        # As in a repository of which the sample of heads shows little.
        safety = SafetyParameters(head_sample_objects=1)
        settings = lake.settings.model_copy(update={"mounts": {"s3://alias/": "s3://bucket/"}, "safety": safety})
        collector = Collector(spark, own, settings=settings, server=WhileAPipelineCommits(lake.credentials))
        mark = collector.collect_and_mark()
        assert collector.manifest("uncommitted").facts["listed"] == 1
        assert marked(own, mark) == {garbage}
