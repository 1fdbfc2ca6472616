"""The commits of a repository that a client can see: the history of branches, of tags, and of listed commits."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.errors import IncompleteAnswerError, LakeFSGCError
from lakefs_gc.lakefs.active_commits import Commit
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.concurrency import map_unordered

logger = logging.getLogger(__name__)

_HISTORY = "history"
_CALLS_AT_ONCE = 8
# Most branches are only a commit or two ahead of the known commits.
_FIRST_PAGE, _PAGE_GROWTH, _LARGEST_PAGE = 10, 10, 1000


@dataclass
class CommitGraph:
    """Commits by id, each with all of its ancestors. Not ``complete`` if there are more than ``max_commits``."""

    max_commits: int
    commits: dict[str, Commit] = field(default_factory=dict)
    complete: bool = True

    def add_history_of(self, server: LakeFSClient, repository: str, starts: Iterable[str]) -> None:
        """Read the unknown commits in the history of ``starts``.

        Raises the errors of ``LakeFSClient``, and ``IncompleteAnswerError`` for a log that omits an ancestor.
        """
        unknown = [commit_id for commit_id in dict.fromkeys(starts) if commit_id not in self.commits]
        # One first: the others share most of its history.
        for commits in (unknown[:1], unknown[1:]):
            for _ in map_unordered(
                lambda commit_id: self._walk(server, repository, commit_id), commits, _CALLS_AT_ONCE
            ):
                pass

    def reached_from(self, starts: Iterable[str]) -> dict[str, Commit]:
        """Return the known commits in the history of ``starts``."""
        reached: dict[str, Commit] = {}
        waiting = list(starts)
        while waiting:
            commit = self.commits.get(waiting.pop())
            if commit is not None and commit.id not in reached:
                reached[commit.id] = commit
                waiting += commit.parents
        return reached

    def _walk(self, server: LakeFSClient, repository: str, start: str) -> None:
        """Read the log of a commit page by page, newest first, until the rest of it is known."""
        after, amount = "", _FIRST_PAGE
        new_commits: dict[str, Commit] = {}
        wanted = {start}
        while self.complete and not wanted <= self.commits.keys():
            page = server.log_page(repository, start, after=after, amount=amount)
            for commit in page.commits:
                if commit.id not in self.commits:
                    new_commits[commit.id] = commit
                    wanted.update(commit.parents)
            wanted -= new_commits.keys()
            if len(self.commits) + len(new_commits) > self.max_commits:
                self.complete = False
            if not page.next_offset:
                break
            after, amount = page.next_offset, min(amount * _PAGE_GROWTH, _LARGEST_PAGE)
        # Not ``wanted - self.commits.keys()``, which goes through all known commits, for each branch.
        missing = {commit_id for commit_id in wanted if commit_id not in self.commits}
        if self.complete and missing:
            raise IncompleteAnswerError(
                f"The log of {start} in {repository} omits its ancestor {min(missing)}. The objects of that commit "
                "would look like garbage",
                remedy="Start a new run. If the error persists, check the log of the lakeFS server",
            )
        # At the end, because a commit in ``commits`` implies that all its ancestors are known.
        self.commits.update(new_commits)


def read_history_ahead(context: RunContext, run: GCRun, heads: Iterable[str]) -> None:
    """Begin to read the history of the commits ``heads``. It only grows, so what is read too early is a part of it."""
    server, graph = context.server, CommitGraph(context.safety.max_commits)

    def read() -> CommitGraph:
        graph.add_history_of(server, run.repository, heads)
        return graph

    context.ahead.begin(run, _HISTORY, read)


def wait_for_history(context: RunContext, run: GCRun) -> None:
    """Wait until the history was read ahead. If it was not begun, or cannot be read, who needs it reads it."""
    context.ahead.wait(run, _HISTORY)


def history_so_far(context: RunContext, run: GCRun) -> CommitGraph:
    """Return the history that was read ahead; an empty one if there is none, or the server did not answer."""
    try:
        graph: CommitGraph | None = context.ahead.take(run, _HISTORY)
    except LakeFSGCError as error:  # who needs the history reads it now, and raises this as its own error
        logger.info("the history was not read ahead: %s", error.message)
        graph = None
    return CommitGraph(context.safety.max_commits) if graph is None else graph
