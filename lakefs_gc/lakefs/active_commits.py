"""Which commits are active: a collector keeps everything that an active commit refers to.

The definition (lakeFS documents, "Garbage collection rules", and issue 1932):

- The HEAD of every branch is active.
- From each HEAD, walk the main parents (the first parent; in records of version 0 the last one).  A commit is
  active while its *child* on that walk is younger than the branch's retention: so the first commit that is
  older than the retention still is, because it was what the branch showed when the retention began.
- A commit that is no main parent of another and no HEAD ("dangling", e.g. what a deleted branch left behind)
  is walked as if it had a child of its own age, under the default retention.
- The walk does not stop at an old commit: dates need not be monotonic.  Tags retain nothing.

The lakeFS server deviates in one place: its walk ends at a commit that another walk with an equal or longer
retention has visited, *before* marking that commit active, so the answer depends on the order of commit ids.
What is computed here contains the server's answer, always.
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
    """What the walk needs of a commit.  ``meta_range_id`` is empty for the first commit of a repository."""

    id: str
    parents: tuple[str, ...]
    creation_date: datetime
    meta_range_id: str = ""
    version: int = 1

    @property
    def main_parent(self) -> str:
        """The parent that the walk follows; empty for a first commit."""
        if not self.parents:
            return ""
        return self.parents[0] if self.version >= _FIRST_VERSION_WITH_MAIN_PARENT_FIRST else self.parents[-1]


class Retainer(StrEnum):
    """What keeps a commit active."""

    HEAD = "head of a branch"
    PARENT = "main parent of a commit inside the retention"
    DANGLING = "dangling commit inside the default retention"


@dataclass(frozen=True)
class Reason:
    """Why a commit is active: the strongest reason found, not all of them.

    ``branch`` is empty for a walk that began at a dangling commit; ``child`` is the younger commit of a
    ``PARENT``.
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
class _Walk:
    start: str
    branch: str  # empty: the start is dangling
    retention_days: int


def active_commits(
    commits: Iterable[Commit], branch_heads: Mapping[str, str], rules: GCRules, now: datetime
) -> dict[str, Reason]:
    """Id of every active commit, with a reason.

    ``branch_heads`` maps branch to commit id, hidden branches included; ``now`` knows its time zone.  Linear
    in the number of commits and branches.  Raises ``IncompleteAnswerError`` when a HEAD or a main parent is
    not among the commits: with a commit missing, what it retains would look like garbage.
    """
    by_id = {commit.id: commit for commit in commits}
    active: dict[str, Reason] = {
        head: Reason(Retainer.HEAD, rules.retention_days(branch), branch)
        for branch, head in sorted(branch_heads.items())
    }
    # The longest retention walks first: where a later walk meets its trail, the rest of the way is done
    # already.
    visited: set[str] = set()
    for walk in sorted(_walks(by_id, branch_heads, rules), key=lambda w: (-w.retention_days, w.branch, w.start)):
        threshold = _threshold(now, walk.retention_days)
        commit = _get(by_id, walk.start, f"the head of branch {walk.branch}")
        if not walk.branch and commit.creation_date > threshold:
            active.setdefault(commit.id, Reason(Retainer.DANGLING, walk.retention_days))
        while commit.id not in visited:
            visited.add(commit.id)
            if not commit.main_parent:
                break
            parent = _get(by_id, commit.main_parent, f"a parent of {commit.id}")
            if commit.creation_date > threshold:
                active.setdefault(parent.id, Reason(Retainer.PARENT, walk.retention_days, walk.branch, commit.id))
            commit = parent
    return active


def _walks(by_id: Mapping[str, Commit], branch_heads: Mapping[str, str], rules: GCRules) -> list[_Walk]:
    heads = [_Walk(head, branch, rules.retention_days(branch)) for branch, head in branch_heads.items()]
    main_parents = {commit.main_parent for commit in by_id.values()}
    dangling = by_id.keys() - main_parents - set(branch_heads.values())
    return heads + [_Walk(commit, "", rules.default_retention_days) for commit in dangling]


def _threshold(now: datetime, retention_days: int) -> datetime:
    """When the retention began; the server accepts absurd numbers of days, and so does this."""
    try:
        return now - timedelta(days=retention_days)
    except OverflowError:
        extreme = datetime.min if retention_days > 0 else datetime.max
        return extreme.replace(tzinfo=now.tzinfo)


def _get(by_id: Mapping[str, Commit], commit_id: str, what: str) -> Commit:
    commit = by_id.get(commit_id)
    if commit is None:
        raise IncompleteAnswerError(
            f"commit {commit_id}, {what}, is not among the repository's commits",
            remedy="read the commits again; if it stays missing, restore the commit record before collecting",
        )
    return commit
