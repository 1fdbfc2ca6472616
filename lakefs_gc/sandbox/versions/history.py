"""Walk the history of a repository."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from lakefs_gc.sandbox.context import Sandbox
from lakefs_gc.sandbox.problems import ApiError
from lakefs_gc.sandbox.versions.refs import CommitRecord, Repository


def log(
    sandbox: Sandbox, repository: Repository, start: CommitRecord, *, first_parent: bool, since: float | None
) -> Iterator[CommitRecord]:
    """Yield a commit and its ancestors, the newest first."""
    queue = [_NewestFirst(start)] if since is None or start.creation_date >= since else []
    seen: set[str] = set()
    while queue:
        current = heapq.heappop(queue).commit
        yield current
        for parent in current.parents[:1] if first_parent else current.parents:
            if parent in seen:
                continue
            seen.add(parent)
            record = sandbox.refs.commit(repository.name, parent)
            if since is None or record.creation_date >= since:
                heapq.heappush(queue, _NewestFirst(record))


def merge_base(sandbox: Sandbox, repository: Repository, left: CommitRecord, right: CommitRecord) -> CommitRecord:
    """Return the best common ancestor, by generation. Raise ``ApiError`` if none exists."""
    if left.id == right.id:
        return left
    reached = {left.id: 1, right.id: 2}
    queue = [(-left.generation, left.id, left), (-right.generation, right.id, right)]
    heapq.heapify(queue)
    while queue:
        _, commit_id, current = heapq.heappop(queue)
        for parent in current.parents:
            if parent not in reached:
                record = sandbox.refs.commit(repository.name, parent)
                heapq.heappush(queue, (-record.generation, record.id, record))
            reached[parent] = reached.get(parent, 0) | reached[commit_id]
            if reached[parent] == 3:  # from both sides
                return sandbox.refs.commit(repository.name, parent)
    raise ApiError(500, "no merge base")


@dataclass(frozen=True)
class _NewestFirst:
    """The order of commits in a heap: the latest first, and the greater id first for commits of the same second."""

    commit: CommitRecord

    def __lt__(self, other: _NewestFirst) -> bool:
        mine, others = self.commit, other.commit
        return (mine.creation_date, mine.id) > (others.creation_date, others.id)
