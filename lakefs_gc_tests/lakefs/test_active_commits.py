"""Active commits: against recordings of a real server, case by case, and against a model of the server's own
walk.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefs_gc.errors import IncompleteAnswerError
from lakefs_gc.formats.gc_rules import GCRules, rules_from_api
from lakefs_gc.lakefs.active_commits import Commit, Retainer, active_commits
from lakefs_gc_tests.golden import golden_file

NOW = datetime(2026, 7, 1, tzinfo=UTC)


def load(scenario: str, file: str) -> Any:
    return json.loads(golden_file(scenario, file))


@pytest.mark.parametrize(
    "scenario", ["retention-graph", "esti-unified", "slices-and-copies", "old-layout", "big-ranges", "empty"]
)
def test_the_active_commits_include_those_of_a_real_server(scenario: str) -> None:
    expected = load(scenario, "expected.json")
    commits = [
        Commit(
            c["id"],
            tuple(c["parents"]),
            datetime.fromtimestamp(c["creation_date"], UTC),
            c["meta_range_id"],
            c["version"],
        )
        for c in load(scenario, "api/all_commits.json")
    ]
    heads = {branch["id"]: branch["commit_id"] for branch in load(scenario, "api/branches.json")}
    rules = rules_from_api(expected["rules"])
    active = active_commits(commits, heads, rules, datetime.fromisoformat(expected["now"]))
    retained = expected["retained_commits"] + expected["retained_by_definition_only"]
    assert set(active) == {commit["id"] for commit in retained}
    assert len(commits) == expected["counts"]["commits"]
    for commit in expected["retained_commits"]:
        is_head = any(why.startswith("HEAD") for why in commit["why"])
        assert (active[commit["id"]].retainer is Retainer.HEAD) == is_head


def commit(name: str, *parents: str, days: float, version: int = 1) -> Commit:
    return Commit(name, parents, NOW - timedelta(days=days), f"metarange of {name}", version)


def test_the_first_commit_older_than_the_retention_is_active() -> None:
    commits = [
        commit("a", days=30),
        commit("b", "a", days=20),
        commit("c", "b", days=5),
        commit("d", "c", days=1),
    ]
    assert set(active_commits(commits, {"main": "d"}, GCRules(10), NOW)) == {"b", "c", "d"}


def test_a_commit_exactly_as_old_as_the_retention_is_outside() -> None:
    commits = [commit("a", days=30), commit("b", "a", days=10)]
    assert set(active_commits(commits, {"main": "b"}, GCRules(10), NOW)) == {"b"}
    assert set(active_commits(commits, {"main": "b"}, GCRules(10), NOW - timedelta(seconds=1))) == {"a", "b"}


def test_zero_and_negative_days_keep_only_the_head() -> None:
    commits = [commit("a", days=2), commit("b", "a", days=1), commit("c", "b", days=0)]
    for days in (0, -1, -(10**9)):
        assert set(active_commits(commits, {"main": "c"}, GCRules(days), NOW)) == {"c"}


def test_an_absurdly_long_retention_keeps_everything() -> None:
    commits = [commit("a", days=2000), commit("b", "a", days=1000)]
    assert set(active_commits(commits, {"main": "b"}, GCRules(2**31 - 1), NOW)) == {"a", "b"}


def test_the_walk_continues_past_an_old_commit() -> None:
    commits = [
        commit("k0", days=100),
        commit("k1", "k0", days=2),
        commit("k2", "k1", days=40),
        commit("k3", "k2", days=1),
    ]
    assert set(active_commits(commits, {"skew": "k3"}, GCRules(10), NOW)) == {"k3", "k2", "k0"}


def test_the_longer_retention_wins_where_branches_share_history() -> None:
    commits = [commit("a", days=30), commit("b", "a", days=20), commit("c", "b", days=9)]
    rules = GCRules(1, {"short": 2, "long": 25})
    active = active_commits(commits, {"short": "c", "long": "c"}, rules, NOW)
    assert set(active) == {"a", "b", "c"}
    assert active["a"].branch == "long"
    assert active["a"].child == "b"


def test_a_dangling_commit_has_the_default_retention_and_no_head() -> None:
    commits = [commit("a", days=30), commit("x", "a", days=8), commit("m", "a", days=30)]
    assert set(active_commits(commits, {"main": "m"}, GCRules(10), NOW)) == {"m", "x", "a"}
    assert set(active_commits(commits, {"main": "m"}, GCRules(7), NOW)) == {"m"}


def test_second_parents_are_not_followed_and_version_0_has_its_main_parent_last() -> None:
    commits = [commit("left", days=90), commit("right", days=90)]
    merge = commit("merge", "left", "right", days=1)
    assert set(active_commits([*commits, merge], {"main": "merge"}, GCRules(7), NOW)) == {"merge", "left"}
    old_merge = commit("merge", "left", "right", days=1, version=0)
    assert set(active_commits([*commits, old_merge], {"main": "merge"}, GCRules(7), NOW)) == {
        "merge",
        "right",
    }


def test_a_commit_that_the_server_omits_by_the_order_of_ids_is_active() -> None:
    # The dangling commit "z" is the last in the order of ids. The server's walk from it ends at "m" before it marks "m"
    # active, because the walk from main, with the same retention, has visited "m".
    commits = [commit("m", days=30), commit("a", "m", days=20), commit("z", "m", days=5)]
    heads, rules = {"main": "a"}, GCRules(10)
    assert "m" not in _server_walk(commits, heads, rules)
    assert set(active_commits(commits, heads, rules, NOW)) == {"a", "z", "m"}


@pytest.mark.parametrize("heads", [{"main": "gone"}, {"main": "b"}])
def test_a_history_with_a_missing_commit_is_refused(heads: dict[str, str]) -> None:
    commits = [commit("b", "missing", days=1)]
    with pytest.raises(IncompleteAnswerError):
        active_commits(commits, heads, GCRules(10), NOW)


def _server_walk(commits: list[Commit], heads: dict[str, str], rules: GCRules) -> set[str]:
    """Compute the server's answer, with its bug: one pass over starting points in the order of commit ids."""
    by_id = {c.id: c for c in commits}
    parents = {c.main_parent for c in commits}
    starts = [(head, branch) for branch, head in heads.items()]
    starts += [(c.id, "") for c in commits if c.id not in parents and c.id not in heads.values()]
    processed: dict[str, datetime] = {}
    active: set[str] = set()
    for start, branch in sorted(starts):
        threshold = NOW - timedelta(days=rules.retention_days(branch) if branch else rules.default_retention_days)
        age, next_id = by_id[start].creation_date, by_id[start].main_parent
        if branch:
            active.add(start)
            processed[start] = threshold
        else:
            next_id = start
        while next_id and not (next_id in processed and processed[next_id] <= threshold):
            if age > threshold:
                active.add(next_id)
            processed[next_id] = threshold
            age, next_id = by_id[next_id].creation_date, by_id[next_id].main_parent
    return active


def _by_definition(commits: list[Commit], heads: dict[str, str], rules: GCRules) -> set[str]:
    """Compute the active commits by the definition, walk by walk, without optimizations."""
    by_id = {c.id: c for c in commits}
    parents = {c.main_parent for c in commits}
    active = set(heads.values())
    walks = [(head, rules.retention_days(branch)) for branch, head in heads.items()]
    for c in commits:
        if c.id not in parents and c.id not in heads.values():
            walks.append((c.id, rules.default_retention_days))
            if c.creation_date > NOW - timedelta(days=rules.default_retention_days):
                active.add(c.id)
    for start, days in walks:
        current = by_id[start]
        while current.main_parent:
            if current.creation_date > NOW - timedelta(days=days):
                active.add(current.main_parent)
            current = by_id[current.main_parent]
    return active


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Commit], dict[str, str], GCRules]:
    size = draw(st.integers(1, 12))
    ids = draw(st.permutations([chr(ord("a") + i) for i in range(size)]))
    commits: list[Commit] = []
    for i, name in enumerate(ids):
        parents = draw(st.lists(st.sampled_from(ids[:i]), max_size=2, unique=True)) if i else []
        commits.append(commit(name, *parents, days=draw(st.integers(0, 12)), version=draw(st.integers(0, 1))))
    branches = draw(st.lists(st.sampled_from(["main", "dev", "old", "tmp"]), min_size=1, unique=True))
    heads = {branch: draw(st.sampled_from(ids)) for branch in branches}
    rules = GCRules(draw(st.integers(-1, 13)), draw(st.dictionaries(st.sampled_from(branches), st.integers(-1, 13))))
    return commits, heads, rules


@settings(max_examples=300, deadline=None)
@given(histories())
def test_active_commits_equal_the_definition_and_include_the_servers_answer(
    history: tuple[list[Commit], dict[str, str], GCRules],
) -> None:
    commits, heads, rules = history
    active = set(active_commits(commits, heads, rules, NOW))
    assert active == _by_definition(commits, heads, rules)
    assert active >= _server_walk(commits, heads, rules)
