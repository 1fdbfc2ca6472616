"""What a branch shows is kept, also if the branch moves while it is searched."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from threading import Event

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.collect.references import uncommitted
from lakefs_gc.engine.decide.hidden_twins import TwinSearch
from lakefs_gc.engine.decide.shown_objects import find_shown
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import Change
from lakefs_gc_tests.support.collector import Collector, LakeRepository, counts

_SECONDS = 60


class CommitsDuringTheSearch(LakeFSClient):
    """Commits a branch when the heads are known, and before or after its changes are counted.

    ``counts_first``: after that. The search for twins on the new head is the second one.
    """

    def prepare(self, repository: LakeRepository, branch: str, *, counts_first: bool) -> None:
        self.of, self.branch, self.counts_first = repository, branch, counts_first
        self.committed, self.counted = Event(), Event()

    def metaranges_of(self, repository: str, commit_ids: Collection[str]) -> Iterator[tuple[str, str]]:
        if not self.committed.is_set():
            if self.counts_first:
                assert self.counted.wait(_SECONDS)
            self.of.commit(branch=self.branch)
            self.committed.set()
        return super().metaranges_of(repository, commit_ids)

    def changes(self, repository: str, branch: str) -> Iterator[Change]:
        if not self.counts_first:
            assert self.committed.wait(_SECONDS)
        yield from super().changes(repository, branch)
        if branch == self.branch:
            self.counted.set()


@pytest.fixture
def collector(spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch) -> Collector:
    """A repository with the branch ``dev``, whose staged objects the server's list omits."""
    monkeypatch.setattr(uncommitted, "_shown_uncommitted", lambda *_: [])
    repository.put("committed")
    repository.commit()
    repository.keep_days(10)
    repository.branch("dev")
    server = CommitsDuringTheSearch(repository.lake.credentials)
    return Collector(spark, repository, server=server)


@pytest.mark.parametrize("counts_first", [True, False])
def test_an_omitted_object_that_is_committed_while_twins_are_searched(
    spark: SparkSession, repository: LakeRepository, collector: Collector, counts_first: bool
) -> None:
    """No list has it, it is in no head that was read first, and it is no change any more when changes are read."""
    server = collector.server
    assert isinstance(server, CommitsDuringTheSearch)
    collector.collect(until="uncommitted")
    heads = dict(server.branch_heads("lake"))
    staged = repository.put("a", "12345", branch="dev")
    server.prepare(repository, "dev", counts_first=counts_first)
    search = TwinSearch(collector.context, collector.run, "x", None)
    rows = spark.createDataFrame([(staged, 5), ("data/s/other", 5)], "address string, size long")
    shown = find_shown(rows, {"heads": heads, "listed": 0}, search).collect()
    assert server.committed.is_set()
    assert [(row["address"], row["why"]) for row in shown] == [(staged, "shown_by_a_branch")]


def test_such_an_object_outlives_a_sweep(
    repository: LakeRepository, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    garbage, again = repository.put_stray("data/s/garbage", b"1234567"), repository.put_stray("data/s/again", b"12345")
    server = collector.server
    assert isinstance(server, CommitsDuringTheSearch)
    mark = collector.mark_objects(garbage, again)
    monkeypatch.setattr(uncommitted, "_files", lambda *_: [])
    repository.stage("a", repository.namespace + again, branch="dev", size_bytes=5)
    server.prepare(repository, "dev", counts_first=False)
    result = collector.sweep(mark)
    assert server.committed.is_set()
    assert counts(result) == {"deleted": 1, "resurrected": 1}
    assert repository.read("a", ref="dev") == b"12345"
