"""Compute for how long the retention rules keep each commit, for every number of days at once.

A commit is active while the commit after it on the walk of a branch is newer than the branch's days. So the age of that
child decides. The head of a branch is always active. A dangling commit is active while it is itself newer than the
default days (``lakefs.active_commits`` has the full definition).

Walks under the same rule form a *class*: the default rule, and each branch that has (or may get) its own rule. For each
commit and class the youngest age counts. With these ages, any rules for these classes can be evaluated later.

An age is a number of whole days. "Newer than N days" is exactly "the whole days are fewer than N", and M days later
each age is M days greater. So no precision is lost for rules of whole days.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakefs_gc.errors import IncompleteAnswerError
from lakefs_gc.lakefs.active_commits import Commit

DEFAULT = ""
"""The class of the default rule: branches without their own rule, and dangling commits."""

PROTECTED = "protected"
"""A setting below ``safety.protect`` keeps the commit, whatever its age."""
LISTED = "listed"
"""The server lists the commit as active for a reason that this module cannot derive, so its end is unknown."""

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Hold:
    """What keeps a commit, or several commits with the same content.

    ``ages`` has one age in days for each class, or None if no walk of that class keeps the commit. ``heads`` are the
    branches with this head. ``endless`` is ``PROTECTED``, ``LISTED`` or empty.
    """

    ages: tuple[int | None, ...]
    heads: frozenset[str] = frozenset()
    endless: str = ""

    def merged(self, other: Hold) -> Hold:
        """Return what keeps the content of both."""
        ages = tuple(
            min((age for age in pair if age is not None), default=None)
            for pair in zip(self.ages, other.ages, strict=True)
        )
        return Hold(ages, self.heads | other.heads, max(self.endless, other.endless))


def whole_days(now: datetime, then: datetime) -> int:
    """Return the number of whole days from ``then`` to ``now``; negative for a time in the future."""
    return (now - then) // _DAY


def classes_of(branch_heads: Iterable[str], ruled_branches: Iterable[str]) -> tuple[str, ...]:
    """Return the classes: ``DEFAULT``, and each existing branch among ``ruled_branches``."""
    return (DEFAULT, *sorted(set(branch_heads) & set(ruled_branches)))


def hold_commits(
    commits: Mapping[str, Commit], branch_heads: Mapping[str, str], classes: Sequence[str], now: datetime
) -> dict[str, Hold]:
    """Return what keeps each commit, by commit id. A commit that no rule can keep has no ages and no heads.

    ``classes`` is the result of ``classes_of``. Takes time linear in commits and classes. Raises
    ``IncompleteAnswerError`` if a head or a main parent is not among ``commits``.
    """
    ages: dict[str, list[int | None]] = {commit_id: [None] * len(classes) for commit_id in commits}
    heads: dict[str, set[str]] = {}
    starts: dict[str, set[str]] = {name: set() for name in classes}
    for branch, head in branch_heads.items():
        heads.setdefault(head, set()).add(branch)
        starts[branch if branch in starts and branch != DEFAULT else DEFAULT].add(head)
    dangling = commits.keys() - {commit.main_parent for commit in commits.values()} - heads.keys()
    for commit_id in dangling:
        _shorten(ages[commit_id], 0, whole_days(now, commits[commit_id].creation_date))
    starts[DEFAULT] |= dangling
    for number, name in enumerate(classes):
        visited: set[str] = set()
        for start in starts[name]:
            commit_id = start
            while commit_id and commit_id not in visited:
                visited.add(commit_id)
                commit = _get(commits, commit_id)
                if commit.main_parent:
                    _get(commits, commit.main_parent)
                    _shorten(ages[commit.main_parent], number, whole_days(now, commit.creation_date))
                commit_id = commit.main_parent
    return {
        commit_id: Hold(tuple(of_classes), frozenset(heads.get(commit_id, ())))
        for commit_id, of_classes in ages.items()
    }


def _shorten(ages: list[int | None], number: int, age: int) -> None:
    known = ages[number]
    ages[number] = age if known is None else min(known, age)


def _get(commits: Mapping[str, Commit], commit_id: str) -> Commit:
    commit = commits.get(commit_id)
    if commit is None:
        raise IncompleteAnswerError(
            f"Commit {commit_id} is not among the commits of the repository",
            remedy="Run the forecast again. If the error persists, check the log of the lakeFS server",
        )
    return commit
