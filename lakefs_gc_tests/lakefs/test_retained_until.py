"""Until when commits are active: the same answer as ``active_commits``, at every time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefs_gc.errors import IncompleteAnswerError
from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc.lakefs.active_commits import Commit, Retainer, active_commits
from lakefs_gc.lakefs.retained_until import NEVER, Retained, retained_until

NOW = datetime(2026, 7, 1, tzinfo=UTC)


def commit(name: str, *parents: str, days: float) -> Commit:
    return Commit(name, parents, NOW - timedelta(days=days), f"metarange of {name}")


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Commit], dict[str, str], GCRules]:
    """Histories with branches, merges, dates out of order, dangling commits and absurd rules."""
    commits: list[Commit] = []
    for number in range(draw(st.integers(1, 12))):
        earlier = [commit.id for commit in commits]
        parents = draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)) if earlier else []
        commits.append(commit(f"c{number}", *parents, days=draw(st.integers(0, 40))))
    ids = st.sampled_from([commit.id for commit in commits])
    heads = draw(st.dictionaries(st.sampled_from(["main", "dev", "exp"]), ids, max_size=3))
    days = st.integers(-1, 30) | st.just(10**9)
    rules = GCRules(draw(days), draw(st.dictionaries(st.sampled_from(["main", "dev"]), days)))
    return commits, heads, rules


@given(graphs(), st.integers(-5, 60))
def test_a_commit_is_active_until_then(graph: tuple[list[Commit], dict[str, str], GCRules], days: int) -> None:
    commits, heads, rules = graph
    now = NOW + timedelta(days=days, seconds=days % 2)
    retained = retained_until(commits, heads, rules)
    active = active_commits(commits, heads, rules, now)
    assert {commit_id for commit_id, kept in retained.items() if kept.until > now} == active.keys()
    assert {commit_id for commit_id, kept in retained.items() if kept.retainer is Retainer.HEAD} == set(heads.values())


def test_the_rule_that_keeps_longest_is_named() -> None:
    commits = [
        commit("a", days=30),
        commit("b", "a", days=20),
        commit("dev", "a", days=18),
        commit("d", "b", days=3),
        commit("lost", "b", days=1),
    ]
    retained = retained_until(commits, {"main": "d", "dev": "dev"}, GCRules(7, {"main": 30}))
    assert retained["d"] == Retained(NEVER, Retainer.HEAD, 30, "main")
    assert retained["b"] == Retained(NOW + timedelta(days=27), Retainer.PARENT, 30, "main", "d")
    assert retained["a"] == Retained(NOW + timedelta(days=10), Retainer.PARENT, 30, "main", "b")
    assert retained["lost"] == Retained(NOW + timedelta(days=6), Retainer.DANGLING, 7)


def test_a_newer_child_under_a_shorter_rule_may_keep_a_commit_longer() -> None:
    commits = [commit("a", days=30), commit("b", "a", days=20), commit("c", "a", days=1)]
    retained = retained_until(commits, {"main": "b", "dev": "c"}, GCRules(14, {"main": 30}))
    assert retained["a"] == Retained(NOW + timedelta(days=13), Retainer.PARENT, 14, "dev", "c")


def test_a_missing_parent_is_an_error() -> None:
    with pytest.raises(IncompleteAnswerError, match="a parent of b"):
        retained_until([commit("b", "a", days=1)], {"main": "b"}, GCRules(7))
