"""Lists of branches and other answers of a look that are old: those of a replica that is behind (rules 6 and 12)."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from lakefs_gc.engine.collect.references.active_ranges import active_ranges
from lakefs_gc.engine.decide.shown import hidden_twins, shown_objects, unlisted_changes
from lakefs_gc.engine.sweep import commit_readings, second_look
from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc_tests.support.looking import CONTENT, Looking, nothing


def test_a_head_that_only_the_reading_of_commits_has_seen_is_searched(looking: Looking) -> None:
    """Nothing moves. All other lists before the end of the search have an old head."""
    first = looking.first_commit()
    looking.hide()
    looking.be_behind(head=first)
    looking.around(commit_readings, "active_ranges", looking.catch_up, lambda: looking.be_behind(head=first))
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

    looking.patch.setattr(commit_readings, "active_ranges", reading)
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
    looking.around(second_look, "begin_uncommitted", lambda: looking.catch_up_for_list(1), nothing)
    looking.sweep()


def test_a_branch_that_is_denied_during_the_first_search(looking: Looking) -> None:
    """Only the first reading of commits has its head. Nothing moves."""
    first = looking.first_commit()
    looking.hide()
    looking.be_behind(head=first)
    looking.around(commit_readings, "active_ranges", looking.catch_up, lambda: looking.be_behind(head=first))
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
    looking.first_commit()
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


@pytest.mark.parametrize("seen_by", ["first list", "search"])
@pytest.mark.parametrize("changes", [False, True], ids=["rules stay", "rules change"])
def test_the_commits_of_a_head_that_one_list_has_are_read_also_by_other_rules(
    looking: Looking, seen_by: str, changes: bool
) -> None:
    """Nothing moves, and an unrelated rule is added. All other lists have an old head, also those by the new rules."""
    first = looking.first_commit()
    looking.be_behind(head=first)
    looking.commit_and_delete()

    def add_a_rule() -> None:
        if changes:
            looking.repository.keep_days(10, late=100, unrelated=7)

    def before_the_search() -> None:
        if seen_by == "search":
            looking.catch_up_for_list(1)

    if seen_by == "first list":
        looking.around(second_look, "begin_uncommitted", lambda: looking.catch_up_for_list(1), nothing)
    looking.around(commit_readings, "active_ranges", nothing, add_a_rule)
    looking.around(second_look, "find_shown", before_the_search, nothing)
    looking.sweep()


def test_the_commits_of_a_head_that_one_list_has_are_read_after_an_old_answer_about_rules(looking: Looking) -> None:
    server = looking.server
    rules, old, answers = server.retention_rules, server.retention_rules("lake"), list[str]()
    looking.repository.keep_days(10, late=100, unrelated=7)
    first = looking.first_commit()
    looking.be_behind(head=first)
    looking.commit_and_delete()

    def answer(repository: str) -> GCRules | None:
        answers.append(repository)
        return old if len(answers) == 2 else rules(repository)

    looking.around(second_look, "begin_uncommitted", lambda: looking.catch_up_for_list(1), nothing)
    looking.patch.setattr(server, "retention_rules", answer)
    looking.sweep()
