"""Each protection keeps the commits that it names, with a reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakefs_gc.config import Protections
from lakefs_gc.lakefs.active_commits import Commit
from lakefs_gc.lakefs.protections import protected_commits

NOW = datetime(2026, 7, 1, tzinfo=UTC)


def commit(id_: str, days: float, *parents: str) -> Commit:
    return Commit(id_, parents, NOW - timedelta(days=days))


# a - b - c - m - d (main)
#   \ x - y /      y: also branch side, z above it
COMMITS = {
    c.id: c
    for c in (
        commit("a", 50),
        commit("b", 40, "a"),
        commit("c", 30, "b"),
        commit("x", 35, "a"),
        commit("y", 25, "x"),
        commit("m", 20, "c", "y"),
        commit("d", 10, "m"),
        commit("z", 5, "y"),
    )
}
HEADS = {"main": "d", "side": "z"}
TAGS = {"v1": "b", "v2": "y", "w1": "x", "lost": "not-seen"}


@pytest.mark.parametrize(
    ("protections", "kept"),
    [
        (Protections(), ""),
        (Protections(tags=("v*",)), "by"),
        (Protections(tags=("v1", "w?", "lost")), "bx"),
        (Protections(tags=("V1", "v")), ""),
        (Protections(branches=("main",)), "abcxymd"),
        (Protections(branches=("s*",)), "axyz"),
        (Protections(branches=("mai",)), ""),
        (Protections(branches=("*",)), "abcxymdz"),
        (Protections(days=25.5), "ymdz"),
        (Protections(days=25), "mdz"),
        (Protections(days=1e12), "abcxymdz"),
        (Protections(last_commits=1), "dz"),
        (Protections(last_commits=3), "dmczyx"),
        (Protections(last_commits=99), "dmcbazyx"),
        (Protections(tags=("v1",), days=6), "bz"),
        (Protections(path_prefixes=("a/",)), ""),
    ],
)
def test_each_protection_keeps_its_commits(protections: Protections, kept: str) -> None:
    assert protected_commits(COMMITS, HEADS, TAGS, protections, NOW).keys() == set(kept)


def test_each_kept_commit_has_a_reason() -> None:
    reasons = protected_commits(
        COMMITS, HEADS, TAGS, Protections(tags=("v1",), branches=("side",), last_commits=1, days=21), NOW
    )
    assert reasons["b"] == "tag v1"
    assert reasons["x"] == "history of branch side"
    assert reasons["d"] == "one of the last 1 commits of branch main"
    assert reasons["m"] == "newer than 21 days"


def test_histories_that_branches_share_are_walked_once() -> None:
    class Counted(dict[str, Commit]):
        asked = 0

        def get(self, key: str, default: Any = None) -> Any:
            self.asked += 1
            return super().get(key, default)

    history = Counted({f"{number}": commit(f"{number}", 1, f"{number - 1}") for number in range(100)})
    heads = {f"branch-{number}": "99" for number in range(50)}
    kept = protected_commits(history, heads, {}, Protections(branches=("*",)), NOW)
    assert kept.keys() == history.keys()
    assert history.asked < 3 * (len(history) + len(heads))
