"""What is committed while a second look searches for what branches show outlives the sweep."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from threading import Event, Lock

import lakefs_sdk
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.collect.references import uncommitted
from lakefs_gc.engine.decide.shown.lookups import TwinSearch
from lakefs_gc.engine.decide.shown.shown_objects import find_shown
from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import Change
from lakefs_gc_tests.support.collector import Collector, counts, marked
from lakefs_gc_tests.support.lake import LakeRepository


class MovesDuringTheSearch(LakeFSClient):
    """Calls ``then`` once: when the ``heads`` are known and before changes are read, before the first ``lookup``, or
    before ``rules`` are read again after that.
    """

    then: Callable[[], None] | None = None
    at = ""
    has_counted = False
    _one = Lock()  # lookups run at the same time

    def prepare(self, then: Callable[[], None], at: str = "heads") -> None:
        self.then, self.at, self.moved = then, at, Event()

    def _reached(self, at: str) -> None:
        with self._one:
            if self.then is not None and self.at == at and not self.moved.is_set():
                self.then()
                self.moved.set()

    def metaranges_of(self, repository: str, commit_ids: Collection[str]) -> Iterator[tuple[str, str]]:
        self._reached("heads")
        return super().metaranges_of(repository, commit_ids)

    def shown_address(self, repository: str, branch: str, path: str) -> str:
        self._reached("lookup")
        return super().shown_address(repository, branch, path)

    def retention_rules(self, repository: str) -> GCRules | None:
        if self.has_counted:
            self._reached("rules")
        return super().retention_rules(repository)

    def changes(self, repository: str, branch: str) -> Iterator[Change]:
        self._reached("heads")
        self.has_counted = True
        yield from super().changes(repository, branch)


@pytest.fixture
def server(repository: LakeRepository) -> MovesDuringTheSearch:
    return MovesDuringTheSearch(repository.lake.credentials)


@pytest.fixture
def collector(
    spark: SparkSession, repository: LakeRepository, server: MovesDuringTheSearch, monkeypatch: pytest.MonkeyPatch
) -> Collector:
    """Of a repository with the branch ``dev``, whose staged objects the server's list omits."""
    monkeypatch.setattr(uncommitted, "_shown_uncommitted", lambda *_: [])
    repository.put("committed")
    repository.commit()
    repository.keep_days(10)
    repository.branch("dev")
    return Collector(spark, repository, server=server)


def test_an_object_that_both_searches_find_has_one_row(
    spark: SparkSession, repository: LakeRepository, collector: Collector
) -> None:
    collector.collect(until="uncommitted")
    heads = dict(collector.server.branch_heads("lake"))
    staged = repository.put("committed", "of size 9", branch="dev")
    search = TwinSearch(collector.context, collector.run, "x", None)
    rows = spark.createDataFrame([(staged, 9)], "address string, size long")
    shown = find_shown(rows, {"heads": heads, "listed": 0}, search).objects.collect()
    assert [tuple(row) for row in shown] == [(staged, 9, "shown_by_a_branch")]


@pytest.mark.of_ci("tagged", "overwritten", "reverted")
@pytest.mark.parametrize("then", ["", "overwritten", "reverted", "merged", "tagged", "put back"])
def test_an_omitted_object_that_is_committed_during_a_second_look_outlives_the_sweep(
    repository: LakeRepository,
    collector: Collector,
    server: MovesDuringTheSearch,
    monkeypatch: pytest.MonkeyPatch,
    then: str,
) -> None:
    """No list has it, it is in no commit that was read before, and no branch shows it as a change."""
    garbage, again = repository.put_stray("data/s/garbage", b"1234567"), repository.put_stray("data/s/again", b"12345")
    mark = collector.mark_objects(garbage, again)
    monkeypatch.setattr(uncommitted, "_files", lambda *_: [])
    repository.stage("a", repository.namespace + again, branch="dev", size_bytes=3)  # a wrong size
    commits = []

    def move() -> None:
        commits.append(repository.commit(branch="dev"))
        if then == "overwritten":
            repository.put("a", "other", branch="dev")
        if then == "reverted":
            repository.revert(commits[0], branch="dev")
        if then == "merged":
            repository.merge("dev", "main")
            repository.delete_branch("dev")
        if then == "tagged":
            repository.tag("kept", commits[0])
            repository.delete_branch("dev")
        if then == "put back":
            repository.delete_branch("dev")
            repository.branch("dev")

    server.prepare(move)
    result = collector.sweep(mark)
    assert server.moved.is_set()
    assert counts(result) == {"deleted": 1, "resurrected": 1}
    assert repository.read("a", ref=commits[0]) == b"123"


def hidden_twin(repository: LakeRepository) -> str:
    """Return the key of an object of 9 bytes that only the path ``committed`` of ``main`` shows."""
    repository.put("committed", "of size 9")
    repository.commit()
    return repository.put("committed", "of size 9")


@pytest.mark.of_ci("another path")
@pytest.mark.parametrize("moved_to", ["another path", "another branch"])
def test_a_hidden_twin_that_is_moved_before_its_lookup_outlives_the_sweep(
    repository: LakeRepository, collector: Collector, server: MovesDuringTheSearch, moved_to: str
) -> None:
    """It is no change when the changes are read, so they are read again."""
    garbage = repository.put_stray("data/s/garbage", b"1234567")
    twin = hidden_twin(repository)
    mark = collector.mark_objects(twin, garbage)
    collector.collect(until="uncommitted")
    assert twin not in collector.addresses("uncommitted")

    def move() -> None:
        branch = "main" if moved_to == "another path" else "dev"
        repository.stage("moved", repository.namespace + twin, size_bytes=9, branch=branch)
        repository.delete("committed")

    server.prepare(move, at="lookup")
    result = collector.sweep(mark)
    assert server.moved.is_set()
    assert counts(result) == {"deleted": 1, "resurrected": 1}
    assert repository.read("moved", ref="main" if moved_to == "another path" else "dev") == b"of size 9"


def test_an_object_that_leaves_its_commit_during_a_second_look_outlives_the_sweep(
    spark: SparkSession, repository: LakeRepository, collector: Collector, server: MovesDuringTheSearch
) -> None:
    """A person saves an expired commit by a branch, then stages the object elsewhere, and deletes the branch."""
    repository.keep_days(10, rescue=100)
    expired = repository.put("expired", "12345")
    repository.commit(age_days=30)
    repository.delete("expired")
    child = repository.commit(age_days=20)  # no branch shows the object
    repository.put("live")
    repository.commit()
    garbage = repository.put_stray("data/s/garbage", b"1234567")
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {expired, garbage}
    repository.branch("rescue", child)

    def move() -> None:
        repository.stage("again", repository.namespace + expired, size_bytes=5)
        repository.delete_branch("rescue")

    server.has_counted = False
    server.prepare(move, at="rules")
    result = collector.sweep(mark)
    assert server.moved.is_set()
    assert counts(result) == {"deleted": 1, "resurrected": 1}
    assert repository.read("again") == b"12345"


@pytest.mark.of_ci("hidden twin")
@pytest.mark.parametrize("shown_as", ["hidden twin", "omitted"])
def test_an_object_that_another_repository_imports_during_a_second_look_outlives_the_sweep(
    repository: LakeRepository,
    collector: Collector,
    server: MovesDuringTheSearch,
    monkeypatch: pytest.MonkeyPatch,
    shown_as: str,
) -> None:
    """The branch that showed it no longer does when it is asked."""
    other = repository.lake.repository("other")
    other.put("of other")
    other.commit()
    garbage = repository.put_stray("data/s/garbage", b"1234567")
    if shown_as == "hidden twin":
        repository.put("committed", "of size 9")
        repository.commit()
        shared = repository.put("committed", "of size 9")
        mark = collector.mark_objects(shared, garbage)
    else:
        shared = repository.put_stray("data/s/shared", b"of size 9")
        mark = collector.mark_objects(shared, garbage)
        monkeypatch.setattr(uncommitted, "_files", lambda *_: [])
        repository.stage("staged", repository.namespace + shared, branch="dev", size_bytes=9)

    def move() -> None:
        other.stage("imported", repository.namespace + shared, size_bytes=9)
        other.commit()
        if shown_as == "hidden twin":
            repository.put("committed", "another version")
        else:
            repository.delete_branch("dev")

    server.prepare(move, at="lookup" if shown_as == "hidden twin" else "heads")
    result = collector.sweep(mark)
    assert server.moved.is_set()
    assert counts(result) == {"deleted": 1, "resurrected": 1}
    assert other.read("imported") == b"of size 9"


def test_a_hidden_twin_that_is_moved_to_a_path_of_a_head_that_moved_outlives_the_sweep(
    repository: LakeRepository, collector: Collector, server: MovesDuringTheSearch
) -> None:
    """The heads were read before, so nothing looks for it at that path in the first search of branches."""
    garbage = repository.put_stray("data/s/garbage", b"1234567")
    twin = hidden_twin(repository)
    mark = collector.mark_objects(twin, garbage)
    collector.collect(until="uncommitted")

    def move() -> None:
        repository.put("new", "of size 9", branch="dev")
        repository.commit(branch="dev")
        checksum = hashlib.md5(b"of size 9").hexdigest()
        repository.stage("new", twin, branch="dev", size_bytes=9, checksum=checksum)
        creation = lakefs_sdk.ResetCreation(type="object", path="committed")
        repository.lake.client.branches_api.reset_branch("lake", "main", creation)

    server.prepare(move)
    assert counts(collector.sweep(mark)) == {"deleted": 1, "resurrected": 1}
    assert server.moved.is_set()
    assert repository.lake.client.objects_api.stat_object("lake", "dev", "new").physical_address.endswith(twin)
