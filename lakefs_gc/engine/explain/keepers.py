"""What keeps an object, until when, and what would keep it: from the commits that show it, and the rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from lakefs_gc.config import Protections
from lakefs_gc.engine.explain.answers import CommitFacts, Keeper, KeptBy, PathHistory
from lakefs_gc.engine.explain.history import History, Sighting
from lakefs_gc.engine.explain.words import day, short
from lakefs_gc.lakefs.active_commits import Commit, Retainer
from lakefs_gc.lakefs.protections import protected_commits
from lakefs_gc.lakefs.retained_until import NEVER, Retained, retained_until

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Commits:
    """The commits of a history, with the time until which each is kept."""

    history: History
    protections: Protections
    now: datetime

    @cached_property
    def retained(self) -> dict[str, Retained]:
        """Until when the rules keep each commit. Empty without rules: then every commit is kept."""
        rules = self.history.rules
        return retained_until(self.history.commits.values(), self.history.heads, rules) if rules else {}

    @cached_property
    def protected(self) -> dict[str, str]:
        """The commits that the settings protect, each with the reason."""
        return protected_commits(
            self.history.commits, self.history.heads, self.history.tags, self.protections, self.now
        )

    @cached_property
    def branch_of(self) -> dict[str, str]:
        """The branch on whose main line a commit is: of several, the first by the length of its retention."""
        if self.history.rules:
            return {commit_id: retained.branch for commit_id, retained in self.retained.items()}
        branches: dict[str, str] = {}
        for branch, head in sorted(self.history.heads.items()):
            commit: Commit | None = self.history.commits.get(head)
            while commit is not None and commit.id not in branches:
                branches[commit.id] = branch
                commit = self.history.commits.get(commit.main_parent)
        return branches

    @cached_property
    def _children(self) -> dict[str, list[Commit]]:
        children: dict[str, list[Commit]] = {}
        for commit in self.history.commits.values():
            if commit.main_parent:
                children.setdefault(commit.main_parent, []).append(commit)
        return children

    def facts(self, commit: Commit) -> CommitFacts:
        """Return a commit as answers have it."""
        return CommitFacts(commit.id, commit.creation_date, self.branch_of.get(commit.id, ""))

    def paths(self, sightings: Collection[Sighting], shown: Mapping[str, list[Commit]]) -> tuple[PathHistory, ...]:
        """Return the history of each path at which an object is. ``shown``: ``History.showing`` of the ranges."""
        ranges_of: dict[str, set[str]] = {}
        for sighting in sightings:
            ranges_of.setdefault(sighting.path, set()).add(sighting.range_id)
        return tuple(self._path(path, ranges, shown) for path, ranges in sorted(ranges_of.items()))

    def _path(self, path: str, ranges: Collection[str], shown: Mapping[str, list[Commit]]) -> PathHistory:
        commits = {commit.id: commit for range_id in ranges for commit in shown[range_id]}
        ordered = sorted(commits.values(), key=lambda commit: (commit.creation_date, commit.id))
        ends = {
            child.id: child
            for commit in ordered
            for child in self._children.get(commit.id, ())
            if child.id not in commits
        }
        newest_first = sorted(ends.values(), key=lambda commit: (commit.creation_date, commit.id), reverse=True)
        return PathHistory(
            path,
            len(ordered),
            self.facts(ordered[0]) if ordered else None,
            self.facts(ordered[-1]) if ordered else None,
            tuple(map(self.facts, newest_first)),
        )

    def keepers(self, commits: Mapping[str, Commit]) -> list[Keeper]:
        """Return what keeps an object that these commits show."""
        keepers = []
        for branch, head in sorted(self.history.heads.items()):
            if head in commits:
                idle_days = (self.now - commits[head].creation_date) // _DAY
                ends = f"never: head of branch `{branch}`, no commit for {_days(idle_days)}"
                keepers.append(Keeper(KeptBy.HEAD, f"head of branch `{branch}`, commit {short(head)}", ends))
        if commits and self.history.rules is None:
            ends = "never: without retention rules every commit is active"
            keepers.append(Keeper(KeptBy.NO_RULES, f"{_count(len(commits))}, and no retention rules are set", ends))
        longest = self.longest(commits)
        if longest is not None and NEVER > longest[1].until > self.now:
            commit, retained = longest
            what = f"commit {short(commit.id)} of {day(commit.creation_date)}: {self._rule(retained)}"
            keepers.append(Keeper(KeptBy.COMMIT, what, self._end(commit, retained), retained.until))
        keepers += [
            Keeper(
                KeptBy.PROTECTED_COMMIT, f"commit {short(commit_id)}: {self.protected[commit_id]}", *self._until(commit)
            )
            for commit_id, commit in commits.items()
            if commit_id in self.protected
        ][:3]
        return keepers

    def longest(self, commits: Mapping[str, Commit]) -> tuple[Commit, Retained] | None:
        """Return the commit that the rules keep longest beside heads, and until when; None if the rules keep none."""
        kept = [
            (commit, self.retained[commit_id]) for commit_id, commit in commits.items() if commit_id in self.retained
        ]
        ends = [(commit, retained) for commit, retained in kept if retained.retainer is not Retainer.HEAD]
        return max(ends, key=lambda one: (one[1].until, one[0].id), default=None)

    def expired(self, commits: Mapping[str, Commit]) -> str:
        """Return until when, and by which rule, the commits kept an object; empty if they still do or never did."""
        longest = self.longest(commits)
        if longest is None or longest[1].until > self.now or any(h in commits for h in self.history.heads.values()):
            return ""
        commit, retained = longest
        return f"kept until {day(retained.until)}: {self._end(commit, retained)}"

    def would_keep(self, paths: Collection[PathHistory], commits: Mapping[str, Commit]) -> list[str]:
        """Return what a user can do so that an object with this history is kept."""
        advice = []
        longest = self.longest(commits)
        if longest is not None:
            commit, retained = longest
            since = self.history.commits[retained.child] if retained.child else commit
            days = (self.now - since.creation_date) // _DAY + 1
            rule = f"of branch `{retained.branch}`" if retained.branch else "by default"
            advice.append(f"a retention {rule} of at least {_days(days)}, now {_days(retained.retention_days)}")
        if commits:
            last = max(commits.values(), key=lambda commit: (commit.creation_date, commit.id))
            advice.append(f"a branch whose head is commit {last.id}")
        advice += [f"safety.protect.path_prefixes with a prefix of {path.path}" for path in list(paths)[:1]]
        return advice

    def _rule(self, retained: Retained) -> str:
        days = _days(retained.retention_days)
        if not retained.branch:
            return f"commit of a deleted branch, within the default retention of {days}"
        rules = self.history.rules
        own = rules is not None and retained.branch in rules.branches
        rule = "the rule of" if own else "the default rule, which applies to"
        return f"within the {days} of {rule} branch `{retained.branch}`"

    def _end(self, commit: Commit, retained: Retained) -> str:
        if not retained.child:
            return f"{_days(retained.retention_days)} after commit {short(commit.id)}; {self._rule(retained)}"
        child = self.history.commits[retained.child]
        return (
            f"commit {short(commit.id)} was followed by {short(child.id)} on {day(child.creation_date)}; "
            f"{self._rule(retained)}"
        )

    def _until(self, commit: Commit) -> tuple[str, datetime | None]:
        if self.protected[commit.id].startswith("newer than"):
            until = commit.creation_date + timedelta(days=self.protections.days)
            return f"safety.protect.days is {self.protections.days:g}", until
        return "not while safety.protect names it", None


def tags_of(history: History, commits: Collection[str]) -> list[str]:
    """Return the tags whose commit is among ``commits``."""
    return sorted(tag for tag, commit_id in history.tags.items() if commit_id in commits)


def _days(number: int) -> str:
    return f"{number:,} {'day' if number == 1 else 'days'}"


def _count(commits: int) -> str:
    return f"{commits:,} {'commit shows' if commits == 1 else 'commits show'} it"
