"""Apply the protections that users add to the retention rules. A protection can only keep more objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from lakefs_gc.config import Protections
from lakefs_gc.lakefs.active_commits import Commit


def protected_commits(
    commits: Mapping[str, Commit],
    branch_heads: Mapping[str, str],
    tags: Mapping[str, str],
    protections: Protections,
    now: datetime,
) -> dict[str, str]:
    """Return the id of each commit that a protection keeps, with the reason for people.

    ``branch_heads`` and ``tags`` map names to commit ids. Ids that are not among ``commits`` are skipped. Takes time
    linear in the number of commits and branches.
    """
    reasons: dict[str, str] = {}
    walked = set[str]()
    for tag, commit_id in sorted(tags.items()):
        if _matches(tag, protections.tags) and commit_id in commits:
            reasons.setdefault(commit_id, f"tag {tag}")
    for branch, head in sorted(branch_heads.items()):
        if _matches(branch, protections.branches):
            for commit in _ancestors(commits, head, walked):
                reasons.setdefault(commit.id, f"history of branch {branch}")
        for number, commit in enumerate(_first_parents(commits, head)):
            if number >= protections.last_commits:
                break
            reasons.setdefault(commit.id, f"one of the last {protections.last_commits} commits of branch {branch}")
    since = protected_since(protections, now)
    if since is not None:
        for commit in commits.values():
            if commit.creation_date > since:
                reasons.setdefault(commit.id, f"newer than {protections.days:g} days")
    return reasons


def protected_since(protections: Protections, now: datetime) -> datetime | None:
    """Return the time since which ``days`` protects commits. None if it protects nothing."""
    if not protections.days:
        return None
    try:
        return now - timedelta(days=protections.days)
    except OverflowError:
        return datetime.min.replace(tzinfo=now.tzinfo)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _first_parents(commits: Mapping[str, Commit], start: str) -> Iterator[Commit]:
    commit = commits.get(start)
    while commit is not None:
        yield commit
        commit = commits.get(commit.main_parent)


def _ancestors(commits: Mapping[str, Commit], start: str, walked: set[str]) -> Iterator[Commit]:
    """Yield a commit and its ancestors, except those of earlier calls (``walked``)."""
    left = [start]
    while left:
        commit = commits.get(left.pop())
        if commit is not None and commit.id not in walked:
            walked.add(commit.id)
            yield commit
            left.extend(commit.parents)
