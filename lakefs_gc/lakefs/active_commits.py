"""Compute the active commits. A collector keeps every object that an active commit references.

The definition (lakeFS documents, "Garbage collection rules", and issue 1932):

- The HEAD of every branch is active.
- From each HEAD, walk the main parents (the first parent, or in records of version 0 the last one). A commit is active
  if its *child* on that walk is newer than the branch's retention. So the first commit older than the retention is
  still active, because the branch showed it when the retention began.
- A commit that is neither a HEAD nor a main parent of another commit ("dangling", for example after its branch was
  deleted) is walked as if it had a child of its own age, under the default retention.
- The walk does not stop at an old commit, because dates may be out of order. Tags retain nothing.

The lakeFS server differs in one point. Its walk ends at a commit that another walk with an equal or longer retention
visited, *before* it marks that commit active. So its answer depends on the order of commit ids. The result of this
module always contains the server's answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from lakefs_gc.errors import IncompleteAnswerError
from lakefs_gc.formats.gc_rules import GCRules

_FIRST_VERSION_WITH_MAIN_PARENT_FIRST = 1


@dataclass(frozen=True)
class Commit:
    """The part of a commit that the walk needs. ``meta_range_id`` is empty for the first commit of a repository."""

    id: str
    parents: tuple[str, ...]
    creation_date: datetime
    meta_range_id: str = ""
    version: int = 1

    @property
    def main_parent(self) -> str:
        """Return the parent that the walk follows. Empty for a first commit."""
        if not self.parents:
            return ""
        return self.parents[0] if self.version >= _FIRST_VERSION_WITH_MAIN_PARENT_FIRST else self.parents[-1]


class Retainer(StrEnum):
    """What makes a commit active."""

    HEAD = "head of a branch"
    PARENT = "main parent of a commit inside the retention"
    DANGLING = "dangling commit inside the default retention"


@dataclass(frozen=True)
class Reason:
    """Why a commit is active: only the strongest reason.

    ``branch`` is empty for a walk from a dangling commit. ``child`` is the newer commit of a ``PARENT``.
    """

    retainer: Retainer
    retention_days: int
    branch: str = ""
    child: str = ""

    def __str__(self) -> str:
        origin = f"branch {self.branch}" if self.branch else "dangling"
        if self.retainer is Retainer.PARENT:
            return f"main parent of {self.child[:12]}, which is inside {self.retention_days} days ({origin})"
        return f"{self.retainer} ({origin}, {self.retention_days} days)"


@dataclass(frozen=True)
class Walk:
    """A walk along main parents, from the head of a branch or from a dangling commit."""

    start: str
    branch: str  # empty: the start is dangling
    retention_days: int


def active_commits(
    commits: Iterable[Commit], branch_heads: Mapping[str, str], rules: GCRules, now: datetime
) -> dict[str, Reason]:
    """Return the id of every active commit, with a reason.

    ``branch_heads`` maps branch to commit id, including hidden branches. ``now`` has a time zone. Takes time linear in
    the number of commits and branches. Raises ``IncompleteAnswerError`` when a HEAD or a main parent is not among the
    commits, because the objects of a missing commit would look like garbage.
    """
    by_id = {commit.id: commit for commit in commits}
    active: dict[str, Reason] = {
        head: Reason(Retainer.HEAD, rules.retention_days(branch), branch)
        for branch, head in sorted(branch_heads.items())
    }
    # The walks with the longest retention come first, so a later walk can stop at a commit that they visited.
    visited: set[str] = set()
    for walk in walks_of(by_id, branch_heads, rules):
        threshold = _threshold(now, walk.retention_days)
        commit = get_commit(by_id, walk.start, f"the head of branch {walk.branch}")
        if not walk.branch and commit.creation_date > threshold:
            active.setdefault(commit.id, Reason(Retainer.DANGLING, walk.retention_days))
        while commit.id not in visited:
            visited.add(commit.id)
            if not commit.main_parent:
                break
            parent = get_commit(by_id, commit.main_parent, f"a parent of {commit.id}")
            if commit.creation_date > threshold:
                active.setdefault(parent.id, Reason(Retainer.PARENT, walk.retention_days, walk.branch, commit.id))
            commit = parent
    return active


def walks_of(by_id: Mapping[str, Commit], branch_heads: Mapping[str, str], rules: GCRules) -> list[Walk]:
    """Return the walks that the definition has, those with the longest retention first."""
    heads = [Walk(head, branch, rules.retention_days(branch)) for branch, head in branch_heads.items()]
    main_parents = {commit.main_parent for commit in by_id.values()}
    dangling = by_id.keys() - main_parents - set(branch_heads.values())
    walks = heads + [Walk(commit, "", rules.default_retention_days) for commit in dangling]
    return sorted(walks, key=lambda walk: (-walk.retention_days, walk.branch, walk.start))


def _threshold(now: datetime, retention_days: int) -> datetime:
    """Return the time at which the retention began. Like the server, accepts absurd numbers of days."""
    try:
        return now - timedelta(days=retention_days)
    except OverflowError:
        extreme = datetime.min if retention_days > 0 else datetime.max
        return extreme.replace(tzinfo=now.tzinfo)


def get_commit(by_id: Mapping[str, Commit], commit_id: str, what: str) -> Commit:
    """Return a commit. Raise ``IncompleteAnswerError`` if it is missing: ``what`` says what it is."""
    commit = by_id.get(commit_id)
    if commit is None:
        raise IncompleteAnswerError(
            f"Commit {commit_id}, {what}, is not among the commits of the repository",
            remedy="Start a new run. If the error persists, restore the commit record before you collect",
        )
    return commit
