"""A list of branches that omits one hides no object that only this branch shows."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.collect.references import uncommitted
from lakefs_gc.engine.decide.shown import shown_objects
from lakefs_gc.engine.decide.shown.hidden_twins import TwinPaths, find_twins
from lakefs_gc.engine.decide.shown.lookups import TwinSearch
from lakefs_gc.engine.decide.shown.shown_objects import find_shown
from lakefs_gc.engine.sweep import second_look
from lakefs_gc.engine.sweep.commit_readings import CommitReadings
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.errors import IncompleteAnswerError, RepositoryNotFoundError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.collector import Collector, counts
from lakefs_gc_tests.support.denied_branch import DenyingClient
from lakefs_gc_tests.support.lake import LakeRepository


@pytest.fixture
def collector(spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch) -> Collector:
    """Of a repository with the branch ``dev``, whose staged objects the server's list omits."""
    monkeypatch.setattr(uncommitted, "_shown_uncommitted", lambda *_: [])
    repository.put("committed")
    repository.commit()
    repository.keep_days(10)
    repository.branch("dev")
    return Collector(spark, repository)


class OmitsABranch(LakeFSClient):
    """Lists branch ``dev`` only where ``has_dev`` says so of the number of the list."""

    lists = 0

    def has_dev(self, number: int) -> bool:
        return True

    def branch_heads(self, repository: str) -> Iterator[tuple[str, str]]:
        self.lists += 1
        is_whole = self.has_dev(self.lists)
        return (head for head in super().branch_heads(repository) if is_whole or head[0] != "dev")


@pytest.fixture
def omitting(repository: LakeRepository) -> OmitsABranch:
    return OmitsABranch(repository.lake.credentials)


@pytest.fixture
def twin_on_dev(repository: LakeRepository, collector: Collector) -> str:
    """Only ``dev`` shows it."""
    repository.put("committed", "of size 9")
    repository.commit()
    repository.delete_branch("dev")
    repository.branch("dev")
    twin = repository.put("committed", "of size 9", branch="dev")
    collector.collect(until="uncommitted")
    assert twin not in collector.addresses("uncommitted")
    return twin


@pytest.fixture
def staged_on_dev(repository: LakeRepository, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> str:
    """Only a complete search finds it on ``dev``: no head has its path, and the server's list omits it."""
    monkeypatch.setattr(uncommitted, "_files", lambda *_: [])
    return repository.put("elsewhere", "of size 9", branch="dev")


@pytest.mark.parametrize("whole", [1, 2, 3, 6])
def test_a_list_of_branches_has_what_an_earlier_one_of_the_look_had(
    repository: LakeRepository, collector: Collector, omitting: OmitsABranch, twin_on_dev: str, whole: int
) -> None:
    """Each list alone is as good as any other: nothing tells how many branches there are."""
    mark = collector.mark_objects(twin_on_dev)
    collector.server = omitting
    collector.context.workspace.remove(mark.run["run_key"])  # which no longer has the branches of the mark
    omitting.has_dev = lambda number: number == whole  # type: ignore[method-assign]
    with pytest.raises(IncompleteAnswerError, match="has these branches of lake, but does not list them: dev"):
        collector.sweep(mark)
    assert repository.read("committed", ref="dev") == b"of size 9"


@pytest.mark.of_ci("4-twin_on_dev", "6-twin_on_dev", "8-twin_on_dev", "4-staged_on_dev")
@pytest.mark.parametrize("on_dev", ["twin_on_dev", "staged_on_dev"])
@pytest.mark.parametrize("short", [4, 6, 8])
def test_a_branch_that_only_later_lists_have_is_searched(
    repository: LakeRepository,
    collector: Collector,
    omitting: OmitsABranch,
    request: pytest.FixtureRequest,
    on_dev: str,
    short: int,
) -> None:
    """It may have been created meanwhile, and it may have been missing in all lists before."""
    garbage = repository.put_stray("data/s/garbage", b"1234567")
    mark = collector.mark_objects(request.getfixturevalue(on_dev), garbage)
    collector.server = omitting
    collector.context.workspace.remove(mark.run["run_key"])
    omitting.has_dev = lambda number: number > short  # type: ignore[method-assign]
    assert counts(collector.sweep(mark)) == {"resurrected": 1, "deleted": 1}
    assert omitting.lists > short
    path = "committed" if on_dev == "twin_on_dev" else "elsewhere"
    assert repository.read(path, ref="dev") == b"of size 9"


def test_stages_with_clients_of_their_own_know_the_branches_of_all_lists(
    repository: LakeRepository, collector: Collector, omitting: OmitsABranch, twin_on_dev: str
) -> None:
    """As where each stage has its own process."""
    complete = collector.server
    omitting.has_dev = lambda number: False  # type: ignore[method-assign]
    collector.server = omitting
    collector.materialize("store_listing", "foreign_references", "uncommitted")
    collector.server = complete
    collector.materialize("active_ranges", "committed", "unmatched", "missing")
    collector.server = omitting
    with pytest.raises(IncompleteAnswerError, match="does not list them: dev"):
        collector.materialize("kept")
    mark = collector.mark_objects(twin_on_dev)
    collector.server = OmitsABranch(repository.lake.credentials)
    collector.server.has_dev = lambda number: False  # type: ignore[method-assign]
    with pytest.raises(IncompleteAnswerError, match="does not list them: dev"):
        collector.sweep(mark)
    assert repository.read("committed", ref="dev") == b"of size 9"


def test_a_sweep_knows_the_branches_of_its_mark(
    repository: LakeRepository, collector: Collector, omitting: OmitsABranch, twin_on_dev: str
) -> None:
    mark = collector.mark_objects(twin_on_dev)
    collector.server = omitting
    omitting.has_dev = lambda number: False  # type: ignore[method-assign]
    with pytest.raises(IncompleteAnswerError, match="does not list them: dev"):
        collector.sweep(mark)
    assert repository.read("committed", ref="dev") == b"of size 9"
    repository.delete_branch("dev")
    assert counts(collector.sweep(mark)) == {"deleted": 1}


def test_another_client_knows_the_branches_that_an_earlier_stage_saw(
    spark: SparkSession, repository: LakeRepository, collector: Collector, omitting: OmitsABranch, twin_on_dev: str
) -> None:
    heads = dict(collector.server.branch_heads("lake"))
    omitting.has_dev = lambda number: False  # type: ignore[method-assign]
    collector.server = omitting
    rows = spark.createDataFrame([(twin_on_dev, 9)], "address string, size long")
    with pytest.raises(IncompleteAnswerError, match="does not list them: dev"):
        find_shown(rows, {"heads": heads, "listed": 0}, TwinSearch(collector.context, collector.run, "x", None))


class DeniesABranch(OmitsABranch):
    """Hides ``dev`` from the lists that the functions ``blind`` read. A search of branches sees it in its second list.

    ``denials`` times it says that the branch does not exist. Then it is in all lists of searches that are repeated.
    """

    blind: Collection[str] = ()
    lists_of_search = 0
    denials = 0

    def branch_heads(self, repository: str) -> Iterator[tuple[str, str]]:
        asking = {frame.name for frame in traceback.extract_stack()}
        self.lists_of_search += "find_shown" in asking
        is_blind = not asking.isdisjoint(self.blind) and ("find_shown" not in asking or self.lists_of_search % 2 == 1)
        is_blind = is_blind and (self.denials > 0 or "_search_again" not in asking)
        return (head for head in super().branch_heads(repository) if not is_blind or head[0] != "dev")

    def deny(self, monkeypatch: pytest.MonkeyPatch) -> None:
        get_branch = self._branches.get_branch

        def denied(repository: str, branch: str, **options: Any) -> Any:
            if branch == "dev" and self.denials:
                self.denials -= 1
                raise RepositoryNotFoundError("branch not found")
            return get_branch(repository, branch, **options)

        monkeypatch.setattr(self._branches, "get_branch", denied)


def test_one_404_does_not_hide_a_branch_that_other_lists_of_the_look_have(
    repository: LakeRepository, collector: Collector, twin_on_dev: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = collector.mark_objects(twin_on_dev)
    collector.context.workspace.remove(mark.run["run_key"])
    server = DeniesABranch(repository.lake.credentials)
    server.blind = ("uncommitted", "find_shown")
    server.denials = 1
    server.deny(monkeypatch)
    collector.server = server
    assert counts(collector.sweep(mark)) == {"resurrected": 1}
    assert server.denials == 0


def test_a_sweep_knows_the_branches_that_the_last_search_of_its_mark_saw(
    repository: LakeRepository, collector: Collector, omitting: OmitsABranch, twin_on_dev: str
) -> None:
    server = DeniesABranch(repository.lake.credentials)
    server.blind = ("uncommitted", "active_ranges", "find_shown")
    collector.server = server
    collector.materialize("store_listing", "foreign_references", "uncommitted", "active_ranges")
    collector.materialize("committed", "unmatched", "missing", "kept")
    mark = collector.mark_objects(twin_on_dev)
    omitting.has_dev = lambda number: False  # type: ignore[method-assign]
    collector.server = omitting
    with pytest.raises(IncompleteAnswerError, match="does not list them: dev"):
        collector.sweep(mark)


def test_a_branch_that_is_deleted_and_created_again_during_a_look_is_searched(
    spark: SparkSession, repository: LakeRepository
) -> None:
    """Its name is known, but it was not there when the others were searched."""
    collector = Collector(spark, repository)
    repository.branch("dev")
    repository.put("committed", "of size 9")
    repository.commit()
    stray = repository.put_stray("data/s/stray", b"of size 9")
    mark = collector.mark_objects(stray)

    class CreatesItAgain(LakeFSClient):
        state = "there"

        def branch_heads(self, repository_name: str) -> Iterator[tuple[str, str]]:
            asking = {frame.name for frame in traceback.extract_stack()}
            if self.state == "there" and "find_shown" in asking:
                self.state = "deleted"
                repository.delete_branch("dev")
            elif self.state == "deleted" and "read_active" in asking:
                self.state = "created again"
                repository.branch("dev")
                repository.stage("elsewhere", stray, branch="dev", size_bytes=9)
            return super().branch_heads(repository_name)

    collector.server = server = CreatesItAgain(repository.lake.credentials)
    assert counts(collector.sweep(mark)) == {"resurrected": 1}
    assert server.state == "created again"


class IsBehind(DenyingClient):
    """Denies ``dev`` during the first ``searches_behind`` searches of branches."""

    searches_behind = 1


@pytest.fixture
def behind(repository: LakeRepository, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> IsBehind:
    server = IsBehind(repository, "dev")

    def search(*arguments: Any, **options: Any) -> Any:
        server.searches_behind -= 1
        with server.denying() if server.searches_behind >= 0 else nullcontext():
            return find_shown(*arguments, **options)

    monkeypatch.setattr(second_look, "find_shown", search)
    return server


@pytest.mark.of_ci("1-twin_on_dev", "2-twin_on_dev")
@pytest.mark.parametrize("on_dev", ["twin_on_dev", "staged_on_dev"])
@pytest.mark.parametrize("searches", [1, 2])
def test_a_branch_that_did_not_exist_when_it_was_asked_for_is_searched_again(
    collector: Collector, behind: IsBehind, request: pytest.FixtureRequest, on_dev: str, searches: int
) -> None:
    mark = collector.mark_objects(request.getfixturevalue(on_dev))
    behind.searches_behind = searches
    collector.server = behind
    assert counts(collector.sweep(mark)) == {"resurrected": 1}
    assert behind.denials > 0


@pytest.mark.of_ci("staged")
@pytest.mark.parametrize("is_hidden", [False, True], ids=["staged", "hidden"])
def test_what_was_moved_to_a_branch_that_was_searched_is_found(
    repository: LakeRepository,
    collector: Collector,
    twin_on_dev: str,
    behind: IsBehind,
    monkeypatch: pytest.MonkeyPatch,
    is_hidden: bool,
) -> None:
    mark = collector.mark_objects(twin_on_dev)
    collector.server = behind
    checksum = repository._client.objects_api.stat_object("lake", "main", "committed").checksum
    path, stated = ("committed", {"checksum": checksum}) if is_hidden else ("elsewhere", {})
    events: list[str] = []
    read = CommitReadings.read_active

    def move(readings: CommitReadings, staged: Dataset, again: str = "", **rules: Any) -> Dataset:
        if again == "_again":
            events.append("moved")
            repository.stage(path, twin_on_dev, size_bytes=9, **stated)
            repository.delete_branch("dev")
        return read(readings, staged, again, **rules)

    monkeypatch.setattr(CommitReadings, "read_active", move)
    assert counts(collector.sweep(mark)) == {"resurrected": 1}
    assert events == ["moved"]
    assert repository.read(path) == b"of size 9"


def test_what_is_imported_during_the_search_of_a_new_branch_is_read(
    repository: LakeRepository,
    collector: Collector,
    staged_on_dev: str,
    behind: IsBehind,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = repository.lake.repository("other")
    mark = collector.mark_objects(staged_on_dev)
    collector.server = behind
    events: list[str] = []

    def imported(*arguments: Any, **options: Any) -> StageOutput:
        events.append("listed")
        if events == ["listed", "listed"]:
            other.stage("imported", repository.namespace + staged_on_dev, size_bytes=9)
            other.commit()
            repository.delete_branch("dev")
        return uncommitted.uncommitted(*arguments, **options)

    monkeypatch.setattr(second_look, "uncommitted", imported)
    assert counts(collector.sweep(mark)) == {"resurrected": 1}
    assert events == ["listed", "listed"]
    assert other.read("imported") == b"of size 9"


def create_late(repository: LakeRepository, stray: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have the branch ``late`` created, with ``stray`` staged on it, after a look has searched the others.

    The server's list omits it. Returns the events so far: ``created`` once it is there.
    """
    events: list[str] = []
    files = uncommitted._files
    monkeypatch.setattr(uncommitted, "_files", lambda *arguments: [] if events else files(*arguments))
    read = CommitReadings.read_active

    def create(readings: CommitReadings, staged: Dataset, again: str = "", **rules: Any) -> Dataset:
        if again == "_again":
            events.append("created")
            repository.branch("late")
            repository.stage("other", stray, branch="late", size_bytes=11)
        return read(readings, staged, again, **rules)

    monkeypatch.setattr(CommitReadings, "read_active", create)
    return events


@pytest.mark.long(20)
@pytest.mark.of_ci("merged-no rules", "merged-rules")
@pytest.mark.parametrize("has_rules", [False, True], ids=["no rules", "rules"])
@pytest.mark.parametrize("is_merged", [False, True], ids=["its branch deleted", "merged"])
def test_what_is_committed_during_the_search_of_a_new_branch_is_read(
    repository: LakeRepository, collector: Collector, monkeypatch: pytest.MonkeyPatch, is_merged: bool, has_rules: bool
) -> None:
    """Between its twins and its changes. Then it is overwritten, or its branch is deleted, so that it is in neither."""
    if not has_rules:
        repository.keep_everything()
    stray = repository.put_stray("data/s/stray", b"of size 11!")
    collector.collect(until="uncommitted")
    mark = collector.mark_objects(stray)
    events = create_late(repository, stray, monkeypatch)

    def commit(*arguments: Any) -> TwinPaths:
        twins = find_twins(*arguments)
        if events == ["created"]:
            events.append(repository.commit(branch="late"))
            if is_merged:
                repository.merge("late", "main")
                repository.put("other", "overwritten")
            repository.delete_branch("late")
        return twins

    monkeypatch.setattr(shown_objects, "find_twins", commit)
    assert counts(collector.sweep(mark)) == {"resurrected": 1}
    assert repository.read("other", ref=events[1]) == b"of size 11!"


@pytest.mark.of_ci
def test_another_new_branch_keeps_no_garbage(
    repository: LakeRepository, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though more is staged than can be looked up: the new list has as many rows as there are changes."""
    collector.safety = collector.safety.model_copy(update={"max_twin_lookups": 3})
    for number in range(5):
        repository.put(f"staged-{number}", "of size 11!", branch="dev")
    garbage = repository.put_stray("data/s/garbage", b"of size 11!")
    mark = collector.mark_objects(garbage)
    read = CommitReadings.read_active

    def create(readings: CommitReadings, staged: Dataset, again: str = "", **rules: Any) -> Dataset:
        if again == "_again":
            repository.branch("unrelated")
        return read(readings, staged, again, **rules)

    monkeypatch.setattr(CommitReadings, "read_active", create)
    assert counts(collector.sweep(mark)) == {"deleted": 1}
