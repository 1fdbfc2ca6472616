"""Branches that a list of a look lacks, or has with an old head, and that may be deleted during it (rules 6 and 12)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import Protections
from lakefs_gc.engine.collect.references.active_ranges import active_ranges
from lakefs_gc.engine.decide.shown import hidden_twins, shown_objects, unlisted_changes
from lakefs_gc.engine.sweep import second_look
from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc.lakefs.models import PreparedCommits
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.denied_branch import DenyingClient
from lakefs_gc_tests.support.lake import LakeRepository

CONTENT = "x" * 100
CHECKSUM = hashlib.md5(CONTENT.encode()).hexdigest()


class Behind(DenyingClient):
    """A replica that is behind while it has an old list of active commits: ``late`` is at ``head``, or not there."""

    old: PreparedCommits | None = None
    head = ""

    def branch_heads(self, repository: str) -> Iterator[tuple[str, str]]:
        for name, commit_id in super().branch_heads(repository):
            if name != "late" or self.old is None:
                yield name, commit_id
            elif self.head:
                yield name, self.head

    def prepare_commits(self, repository: str, *, timeout_seconds: float) -> PreparedCommits:
        return self.old or super().prepare_commits(repository, timeout_seconds=timeout_seconds)


class Looking:
    """A marked object that ``late`` gets then, in a commit before its head or as a hidden twin of it."""

    def __init__(self, spark: SparkSession, repository: LakeRepository, patch: pytest.MonkeyPatch) -> None:
        self.repository, self.patch = repository, patch
        repository.put("hidden", CONTENT)
        repository.put("a")
        repository.commit()
        repository.keep_days(10, late=100)
        self.key = repository.put_stray("data/s/object", CONTENT.encode())
        self.garbage = repository.put_stray("data/s/garbage", b"garbage")
        self.server = Behind(repository, "late")
        self.collector = Collector(spark, repository, server=self.server)
        self.mark = self.collector.collect_and_mark()
        assert marked(repository, self.mark) == {self.key, self.garbage}

    def stage(self, path: str, branch: str = "main") -> None:
        self.repository.stage(path, self.key, branch=branch, size_bytes=len(CONTENT), checksum=CHECKSUM)

    def be_behind(self, *, head: str = "") -> None:
        """From now on the server is as it would be now, or where ``late`` is at ``head``."""
        self.server.head, self.server.old = head, self.server.prepare_commits("lake", timeout_seconds=60)

    def first_commit(self) -> str:
        self.repository.branch("late")
        self.repository.put("z", branch="late")
        return self.repository.commit(branch="late", age_days=40)

    def commit_and_delete(self, age_days: int = 20) -> str:
        """Have it in a commit of ``late`` before its head. Returns the head, which is so old."""
        self.stage("p", "late")
        self.repository.commit(branch="late", age_days=age_days + 1)
        self.repository.delete("p", branch="late")
        return self.repository.commit(branch="late", age_days=age_days)

    def hide(self) -> None:
        """Have it as a hidden twin of the head of ``late``."""
        self.repository.put("q", CONTENT, branch="late")
        self.repository.commit(branch="late")
        self.stage("q", "late")

    def move(self) -> None:
        """Let it be a hidden twin of another branch, and delete ``late``."""
        self.stage("hidden")
        self.repository.delete_branch("late")

    def around(self, what: object, name: str, before: Callable[[], object], after: Callable[[], object]) -> None:
        """Do this before and after the first call of a function."""
        called, calls = getattr(what, name), list[int]()

        def calling(*arguments: Any, **options: Any) -> Any:
            calls.append(1)
            if len(calls) > 1:
                return called(*arguments, **options)
            before()
            answer = called(*arguments, **options)
            after()
            return answer

        self.patch.setattr(what, name, calling)

    def catch_up_for_list(self, number: int) -> None:
        """From now on, only this list of branches is not old."""
        old, listed, lists = self.server.old, self.server.branch_heads, list[int]()

        def heads(repository: str) -> Iterator[tuple[str, str]]:
            lists.append(1)
            self.server.old = None if len(lists) == number else old
            answer = list(listed(repository))
            self.server.old = old
            return iter(answer)

        self.patch.setattr(self.server, "branch_heads", heads)

    def move_after_second_lookups(self) -> None:
        self.around(hidden_twins.TwinPaths, "look_up_again", nothing, self.move)

    def catch_up(self) -> None:
        self.server.old = None

    def sweep(self) -> None:
        self.collector.sweep(self.mark)
        assert self.collector.swept == {self.key: "resurrected", self.garbage: "deleted"}


def nothing() -> None:
    """Do nothing."""


@pytest.fixture
def looking(spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch) -> Looking:
    return Looking(spark, repository, monkeypatch)


@pytest.mark.parametrize("is_behind", [False, True], ids=["created meanwhile", "not listed at first"])
def test_what_leaves_a_commit_of_a_late_branch_is_kept(looking: Looking, is_behind: bool) -> None:
    """The first reading of commits has not seen the branch, the search has."""
    looking.be_behind()
    looking.first_commit()
    head = looking.commit_and_delete()
    if not is_behind:
        looking.catch_up()
        looking.repository.delete_branch("late")
    appear = looking.catch_up if is_behind else lambda: looking.repository.branch("late", head)
    looking.around(second_look, "find_shown", appear, nothing)
    looking.move_after_second_lookups()
    looking.sweep()


def test_a_commit_that_the_default_rule_would_retain_without_any_branch_is_read(looking: Looking) -> None:
    """In the end it has another branch, whose rule does not retain it."""
    repository = looking.repository
    repository.keep_days(10, late=100, dev=1)
    repository.branch("dev")
    looking.be_behind()
    looking.first_commit()
    head = looking.commit_and_delete(age_days=3)

    def move() -> None:
        looking.stage("hidden")
        repository.delete_branch("dev")
        repository.branch("dev", head)
        repository.delete_branch("late")

    looking.around(second_look, "find_shown", looking.catch_up, nothing)
    looking.around(hidden_twins.TwinPaths, "look_up_again", nothing, move)
    looking.sweep()


@pytest.mark.parametrize("how", ["deleted and created again", "old head"])
def test_heads_that_were_others_during_the_reading(looking: Looking, how: str) -> None:
    """The lists before and after the first reading of commits are equal."""
    first = looking.first_commit()
    head = looking.commit_and_delete()
    looking.move_after_second_lookups()
    if how == "old head":
        looking.around(second_look, "active_ranges", lambda: looking.be_behind(head=first), looking.catch_up)
    else:
        delete, create = looking.repository.delete_branch, looking.repository.branch
        looking.around(second_look, "active_ranges", lambda: delete("late"), lambda: create("late", head))
    looking.sweep()


@pytest.mark.parametrize("is_listed", [False, True], ids=["not listed", "with an old head"])
@pytest.mark.parametrize("is_hidden", [False, True], ids=["in a commit", "hidden"])
def test_what_leaves_a_branch_that_only_the_second_search_has_seen(
    looking: Looking, is_listed: bool, is_hidden: bool
) -> None:
    first = looking.first_commit()
    looking.be_behind(head=first if is_listed else "")
    if is_hidden:
        looking.hide()
    else:
        looking.commit_and_delete()
    looking.around(unlisted_changes.OmittedSearch, "look_up", nothing, looking.catch_up)
    if is_listed:
        looking.around(second_look, "find_shown", nothing, looking.move)
    else:
        looking.move_after_second_lookups()
    looking.sweep()


def test_a_head_that_only_the_reading_of_commits_has_seen_is_searched(looking: Looking) -> None:
    """Nothing moves. All other lists before the end of the search have an old head."""
    first = looking.first_commit()
    looking.hide()
    looking.be_behind(head=first)
    looking.around(second_look, "active_ranges", looking.catch_up, lambda: looking.be_behind(head=first))
    looking.around(second_look, "find_shown", nothing, looking.catch_up)
    looking.sweep()


def test_a_head_that_only_the_last_reading_of_commits_has_seen_is_searched(looking: Looking) -> None:
    """Nothing moves. All lists before the end of the search have an old head."""
    first = looking.first_commit()
    looking.hide()
    looking.be_behind(head=first)
    looking.around(second_look, "find_shown", nothing, looking.catch_up)
    looking.sweep()


@pytest.mark.parametrize("is_last", [False, True], ids=["before the second search", "after the search of a new branch"])
def test_a_head_that_one_more_reading_of_commits_has_seen_is_searched(looking: Looking, is_last: bool) -> None:
    """Nothing moves. Commits are read once more because of other rules, or of a new branch. All other lists are old."""
    first = looking.first_commit()
    looking.hide()
    looking.be_behind(head=first)
    if is_last:
        looking.around(second_look, "find_shown", nothing, lambda: looking.repository.branch("another"))
    else:
        other_rules = lambda: looking.repository.keep_days(11, late=100)  # noqa: E731
        looking.around(unlisted_changes.OmittedSearch, "look_up", nothing, other_rules)
    number = 3 if is_last else 2
    readings = list[int]()

    def reading(*arguments: Any, **options: Any) -> Any:
        readings.append(1)
        if len(readings) != number:
            return active_ranges(*arguments, **options)
        looking.catch_up()
        output = active_ranges(*arguments, **options)
        looking.be_behind(head=first)
        return output

    looking.patch.setattr(second_look, "active_ranges", reading)
    looking.sweep()
    assert len(readings) == 3


@pytest.mark.parametrize("number", [1, 2], ids=["before the server's list of commits", "after it"])
@pytest.mark.parametrize("is_hidden", [True, False], ids=["hidden", "in a commit"])
def test_a_head_that_one_list_of_the_last_reading_of_commits_has_is_searched(
    looking: Looking, number: int, is_hidden: bool
) -> None:
    """Nothing moves. All other lists have an old head."""
    first = looking.first_commit()
    looking.be_behind(head=first)
    if is_hidden:
        looking.hide()
    else:
        looking.commit_and_delete()
    looking.around(second_look, "find_shown", nothing, lambda: looking.catch_up_for_list(number))
    looking.sweep()


@pytest.mark.parametrize("number", [1, 3], ids=["to compare the count", "to compare the second count"])
def test_a_head_that_only_a_list_between_the_searches_has_is_searched(looking: Looking, number: int) -> None:
    """Nothing moves. All other lists have an old head."""
    first = looking.first_commit()
    looking.be_behind(head=first)
    looking.hide()
    looking.around(shown_objects, "counting_changes", lambda: looking.catch_up_for_list(number), nothing)
    looking.sweep()


def test_the_commits_of_a_head_that_only_the_first_list_of_a_look_has_are_read(looking: Looking) -> None:
    """Nothing moves. All other lists have an old head."""
    first = looking.first_commit()
    looking.be_behind(head=first)
    looking.commit_and_delete()
    looking.around(second_look, "uncommitted", lambda: looking.catch_up_for_list(1), nothing)
    looking.sweep()


def test_a_branch_that_is_denied_during_the_first_search(looking: Looking) -> None:
    """Only the first reading of commits has its head. Nothing moves."""
    first = looking.first_commit()
    looking.hide()
    looking.be_behind(head=first)
    looking.around(second_look, "active_ranges", looking.catch_up, lambda: looking.be_behind(head=first))
    searches = list[int]()

    def search(*arguments: Any, **options: Any) -> shown_objects.Shown:
        searches.append(1)
        with looking.server.denying() if len(searches) == 1 else nullcontext():
            return shown_objects.find_shown(*arguments, **options)

    looking.patch.setattr(second_look, "find_shown", search)
    looking.sweep()
    assert looking.server.denials


@pytest.mark.parametrize("number", [2, 3], ids=["before the first search", "before the second"])
def test_longer_rules_that_one_answer_of_a_look_has(looking: Looking, number: int) -> None:
    """Nothing moves."""
    repository, server = looking.repository, looking.server
    repository.keep_days(10)
    head = looking.first_commit()
    head = looking.commit_and_delete()
    looking.be_behind(head=head)
    old = server.retention_rules("lake")
    repository.keep_days(10, late=100)
    rules, answers = server.retention_rules, list[int]()

    def answer(name: str) -> GCRules | None:
        answers.append(1)
        return rules(name) if len(answers) == number else old

    start = lambda: looking.patch.setattr(server, "retention_rules", answer)  # noqa: E731
    looking.around(second_look, "uncommitted", start, nothing)
    looking.sweep()


def test_without_rules_a_head_that_is_searched_last_needs_one_more_reading(looking: Looking) -> None:
    """Each reading lists all metadata files. The one that follows the search has all commits that are older."""
    first = looking.first_commit()
    looking.hide()
    looking.be_behind(head=first)
    looking.repository.keep_everything()
    looking.around(second_look, "find_shown", nothing, looking.catch_up)
    readings = list[int]()

    def reading(*arguments: Any, **options: Any) -> Any:
        readings.append(1)
        return active_ranges(*arguments, **options)

    looking.patch.setattr(second_look, "active_ranges", reading)
    looking.around(second_look, "find_twins", lambda: looking.repository.put("n"), looking.repository.commit)
    looking.sweep()
    assert len(readings) == 3


@pytest.mark.parametrize("denials", [1, 2])
def test_a_branch_that_is_denied_when_its_last_head_is_searched(looking: Looking, denials: int) -> None:
    first = looking.first_commit()
    looking.hide()
    looking.be_behind(head=first)
    looking.around(second_look, "find_shown", nothing, looking.catch_up)
    searches = list[int]()

    def search(*arguments: Any) -> hidden_twins.TwinPaths:
        searches.append(1)
        is_denied = len(searches) <= denials
        with looking.server.denying() if is_denied else nullcontext():
            paths = hidden_twins.find_twins(*arguments)
        again = paths.look_up_again

        def look_up_again() -> None:
            with looking.server.denying() if is_denied else nullcontext():
                again()

        looking.patch.setattr(paths, "look_up_again", look_up_again)
        return paths

    looking.patch.setattr(second_look, "find_twins", search)
    looking.sweep()
    assert looking.server.denials


def test_one_old_answer_when_the_last_head_is_searched(looking: Looking) -> None:
    """Nothing moves. The list has the head, but the first lookup of its path goes to a replica that is behind."""
    first = looking.first_commit()
    looking.hide()
    looking.be_behind(head=first)
    looking.around(second_look, "find_shown", nothing, looking.catch_up)
    looking.around(
        second_look,
        "find_twins",
        lambda: looking.repository.put("q", CONTENT, branch="late"),
        lambda: looking.stage("q", "late"),
    )
    looking.sweep()


def test_one_old_answer_when_the_second_search_meets_a_new_head(looking: Looking) -> None:
    """Nothing moves. The first search had an old head."""
    first = looking.first_commit()
    looking.hide()
    looking.be_behind(head=first)
    looking.around(unlisted_changes.OmittedSearch, "look_up", nothing, looking.catch_up)
    searches = list[int]()

    def search(*arguments: Any, **options: Any) -> hidden_twins.TwinPaths:
        searches.append(1)
        if len(searches) != 2:
            return hidden_twins.find_twins(*arguments, **options)
        looking.repository.put("q", CONTENT, branch="late")
        paths = hidden_twins.find_twins(*arguments, **options)
        looking.stage("q", "late")
        return paths

    looking.patch.setattr(shown_objects, "find_twins", search)
    looking.sweep()
    assert len(searches) == 2


@pytest.mark.parametrize("creates", [False, True], ids=["commits", "branches"])
def test_on_a_busy_server_a_look_searches_a_few_times(looking: Looking, creates: bool) -> None:
    """The heads of each list are new, and only those of the first lists need a search."""
    heads, searches = looking.server.branch_heads, list[int]()

    def while_committing(repository: str) -> Iterator[tuple[str, str]]:
        number = len(list(heads(repository)))
        if creates and number < 30:
            looking.repository.branch(f"b{number}")
        looking.repository.put("p", f"{len(searches)}")
        looking.repository.commit(allow_empty=True)
        return heads(repository)

    def search(*arguments: Any, **options: Any) -> hidden_twins.TwinPaths:
        searches.append(1)
        return hidden_twins.find_twins(*arguments, **options)

    looking.patch.setattr(looking.server, "branch_heads", while_committing)
    looking.patch.setattr(shown_objects, "find_twins", search)
    looking.patch.setattr(second_look, "find_twins", search)
    looking.collector.sweep(looking.mark)
    assert looking.collector.swept == {looking.key: "deleted", looking.garbage: "deleted"}
    assert len(searches) <= (10 if creates else 3), len(searches)


def test_what_is_committed_elsewhere_while_the_last_head_is_searched(looking: Looking) -> None:
    first = looking.first_commit()
    looking.hide()
    looking.be_behind(head=first)

    def move() -> None:
        looking.stage("b")
        looking.repository.commit()
        looking.repository.delete_branch("late")

    looking.around(second_look, "find_shown", nothing, looking.catch_up)
    looking.around(second_look, "find_twins", move, nothing)
    looking.sweep()


def test_each_look_searches_the_heads_of_its_lists(spark: SparkSession, looking: Looking) -> None:
    """The object becomes a hidden twin after the first look, which has searched the head that the next sees last."""
    first = looking.first_commit()
    looking.repository.put("q", CONTENT, branch="late")
    looking.repository.commit(branch="late")
    look = looking.collector.second_look(looking.collector.begin(), looking.mark)
    objects = spark.createDataFrame([(looking.key, len(CONTENT))], "address string, size long").localCheckpoint()
    assert looking.key not in {row["address"] for row in look(objects).collect()}
    looking.stage("q", "late")
    looking.be_behind(head=first)
    looking.around(second_look, "find_shown", nothing, looking.catch_up)
    assert looking.key in {row["address"] for row in look(objects).collect()}


def test_a_branch_that_is_reset_to_an_old_commit(looking: Looking) -> None:
    """The first search has added its parent to the history, where no rule retained it then."""
    repository = looking.repository
    repository.keep_days(10, late=1, dev=100)
    repository.branch("dev")
    looking.be_behind()
    looking.first_commit()
    looking.stage("p", "late")
    repository.commit(branch="late", age_days=5)
    repository.delete("p", branch="late")
    head = repository.commit(branch="late", age_days=3)

    def reset(commit_id: str) -> None:
        repository.delete_branch("dev")
        repository.branch("dev", commit_id)

    def move() -> None:
        looking.stage("hidden")
        reset("main")

    looking.around(unlisted_changes.OmittedSearch, "look_up", nothing, lambda: reset(head))
    looking.around(second_look, "find_shown", looking.catch_up, move)
    looking.sweep()


def test_a_deleted_branch_with_a_shorter_rule(looking: Looking) -> None:
    """The default rule retains its commits, until another branch with a shorter rule has them."""
    repository = looking.repository
    repository.keep_days(100, late=1, dev=1)
    repository.branch("dev")
    looking.first_commit()
    head = looking.commit_and_delete()

    def move() -> None:
        looking.stage("hidden")
        repository.delete_branch("dev")
        repository.branch("dev", head)

    looking.around(second_look, "find_shown", lambda: repository.delete_branch("late"), nothing)
    looking.around(hidden_twins.TwinPaths, "look_up_again", nothing, move)
    looking.sweep()


def test_a_tag_that_protects_a_commit_only_during_the_look(looking: Looking) -> None:
    """It is created after the first reading of commits, and deleted before the last."""
    repository, collector = looking.repository, looking.collector
    repository.keep_days(10)
    collector.safety = collector.safety.model_copy(update={"protect": Protections(tags=("keep*",))})
    looking.first_commit()
    looking.stage("p", "late")
    commit = repository.commit(branch="late", age_days=21)
    repository.delete("p", branch="late")
    repository.commit(branch="late", age_days=20)

    def move() -> None:
        looking.stage("hidden")
        repository.delete_tag("keep-1")

    looking.around(second_look, "find_shown", lambda: repository.tag("keep-1", commit), nothing)
    looking.around(hidden_twins.TwinPaths, "look_up_again", nothing, move)
    looking.sweep()


@pytest.mark.parametrize("is_busy", [False, True])
def test_rules_that_become_longer(looking: Looking, is_busy: bool) -> None:
    """After the first reading of commits they retain one that has the object, until its branch is deleted."""
    repository = looking.repository
    repository.keep_days(10)
    repository.branch("dev")
    looking.first_commit()
    looking.commit_and_delete()

    def longer() -> None:
        repository.keep_days(10, late=100)
        if is_busy:
            repository.put("n", branch="dev")
            repository.commit(branch="dev")

    looking.around(second_look, "find_shown", longer, looking.move)
    looking.sweep()


def test_on_a_busy_server_commits_are_listed_twice(looking: Looking) -> None:
    """Whatever is committed during a look, the server lists its active commits at its begin and at its end."""
    listed, lists = looking.server.prepare_commits, list[int]()

    def counted(*arguments: Any, **options: Any) -> PreparedCommits:
        lists.append(1)
        return listed(*arguments, **options)

    heads = looking.server.branch_heads

    def while_committing(repository: str) -> Iterator[tuple[str, str]]:
        looking.repository.put("p", f"{len(lists)}")
        looking.repository.commit(allow_empty=True)
        return heads(repository)

    looking.patch.setattr(looking.server, "prepare_commits", counted)
    looking.patch.setattr(looking.server, "branch_heads", while_committing)
    looking.collector.sweep(looking.mark)
    assert looking.collector.swept == {looking.key: "deleted", looking.garbage: "deleted"}
    assert len(lists) == 2
