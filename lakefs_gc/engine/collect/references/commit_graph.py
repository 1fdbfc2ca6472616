"""The commits of a repository, as far as a client can see them: what its branches and tags, and commits that the server
names, descend from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lakefs_gc.errors import IncompleteAnswerError
from lakefs_gc.lakefs.active_commits import Commit
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.concurrency import map_unordered

_CALLS_AT_ONCE = 8
# Most branches are a commit or two away from what is known already.
_FIRST_PAGE, _PAGE_GROWTH, _LARGEST_PAGE = 10, 10, 1000


@dataclass
class CommitGraph:
    """Commits by id, each with all of its ancestors; ``complete`` unless there were more than ``max_commits``."""

    max_commits: int
    commits: dict[str, Commit] = field(default_factory=dict)
    complete: bool = True

    def add_history_of(self, server: LakeFSClient, repository: str, starts: Iterable[str]) -> None:
        """Read what is not known yet of the history of some commits.

        Raises what the server's client raises, and ``IncompleteAnswerError`` for a log that lacks an ancestor.
        """
        unknown = [commit_id for commit_id in dict.fromkeys(starts) if commit_id not in self.commits]
        # One alone first: the others share most of its history.
        for commits in (unknown[:1], unknown[1:]):
            for _ in map_unordered(
                lambda commit_id: self._walk(server, repository, commit_id), commits, _CALLS_AT_ONCE
            ):
                pass

    def _walk(self, server: LakeFSClient, repository: str, start: str) -> None:
        """Page through the log of a commit, youngest first, until all that is left of it is known."""
        after, amount = "", _FIRST_PAGE
        found: dict[str, Commit] = {}
        wanted = {start}
        while self.complete and not wanted <= self.commits.keys():
            page = server.log_page(repository, start, after=after, amount=amount)
            for commit in page.commits:
                if commit.id not in self.commits:
                    found[commit.id] = commit
                    wanted.update(commit.parents)
            wanted -= found.keys()
            if len(self.commits) + len(found) > self.max_commits:
                self.complete = False
            if not page.next_offset:
                break
            after, amount = page.next_offset, min(amount * _PAGE_GROWTH, _LARGEST_PAGE)
        lost = wanted - self.commits.keys()
        if self.complete and lost:
            raise IncompleteAnswerError(
                f"The log of {start} in {repository} ends without commit {min(lost)}, which it descends from. What "
                "that commit refers to would look like garbage.",
                remedy="start a new run; if it happens again, look at the lakeFS server's log",
            )
        # Only now: whoever meets one of these relies on its ancestors being known.
        self.commits.update(found)
