"""Branches that a list of a look lacks, or has with an old head, and that may be deleted during it (rules 6 and 12)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import Protections
from lakefs_gc.engine.collect.references.active_ranges import active_ranges
from lakefs_gc.engine.decide.shown import hidden_twins, shown_objects, unlisted_changes
from lakefs_gc.engine.sweep import commit_readings, second_look
from lakefs_gc.lakefs.models import PreparedCommits
from lakefs_gc_tests.support.looking import CONTENT, Looking, nothing


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
        looking.around(commit_readings, "active_ranges", lambda: looking.be_behind(head=first), looking.catch_up)
    else:
        delete, create = looking.repository.delete_branch, looking.repository.branch
        looking.around(commit_readings, "active_ranges", lambda: delete("late"), lambda: create("late", head))
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

    looking.patch.setattr(commit_readings, "active_ranges", reading)
    looking.around(second_look, "find_twins", lambda: looking.repository.put("n"), looking.repository.commit)
    looking.sweep()
    assert len(readings) == 3


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
