"""Until when each commit is active: the definition of ``active_commits``, solved for the time.

A commit is active while its child on the walk from a head is newer than the retention. So it stays active until the
creation of that child plus the days of the walk's rule. The head of a branch is active without end. A dangling commit
is active until its own creation plus the default days.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc.lakefs.active_commits import Commit, Retainer, get_commit, walks_of

NEVER = datetime.max.replace(tzinfo=UTC)
"""The end of what has no end."""


@dataclass(frozen=True)
class Retained:
    """Until when a commit is active, and by which rule: only the one that keeps it longest.

    ``until`` is ``NEVER`` for a head. ``branch`` is empty for a walk from a dangling commit. ``child`` is the newer
    commit of a ``PARENT``.
    """

    until: datetime
    retainer: Retainer
    retention_days: int
    branch: str = ""
    child: str = ""


def retained_until(commits: Iterable[Commit], branch_heads: Mapping[str, str], rules: GCRules) -> dict[str, Retained]:
    """Return until when each commit is active, by its id. A commit whose time is past is expired.

    ``branch_heads`` maps branch to commit id, including hidden branches. No new commits are assumed. Raises
    ``IncompleteAnswerError`` as ``active_commits`` does.
    """
    by_id = {commit.id: commit for commit in commits}
    retained = {
        head: Retained(NEVER, Retainer.HEAD, rules.retention_days(branch), branch)
        for branch, head in sorted(branch_heads.items(), reverse=True)
    }

    def add(commit_id: str, reason: Retained) -> None:
        if commit_id not in retained or retained[commit_id].until < reason.until:
            retained[commit_id] = reason

    visited: set[str] = set()
    for walk in walks_of(by_id, branch_heads, rules):
        commit, days = get_commit(by_id, walk.start, f"the head of branch {walk.branch}"), walk.retention_days
        if not walk.branch:
            add(commit.id, Retained(_days_after(commit.creation_date, days), Retainer.DANGLING, days))
        # A walk with a longer retention visited the rest of this one: no end there can be later.
        while commit.id not in visited:
            visited.add(commit.id)
            if not commit.main_parent:
                break
            parent = get_commit(by_id, commit.main_parent, f"a parent of {commit.id}")
            until = _days_after(commit.creation_date, days)
            add(parent.id, Retained(until, Retainer.PARENT, days, walk.branch, commit.id))
            commit = parent
    return retained


def _days_after(moment: datetime, days: int) -> datetime:
    """Return the end of a retention. Like the server, accepts absurd numbers of days."""
    try:
        return moment + timedelta(days=days)
    except OverflowError:
        return NEVER if days > 0 else datetime.min.replace(tzinfo=UTC)
