"""The heads of a look: which ones lists of branches had, and which of them were searched (rules 6 and 12).

A look reads the list of branches several times. Each list may be an old one, of a replica that is behind. So a head
that any of them has must be searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import Heads


class LookHeads:
    """The branches of ``repository``, and the commits that they had in any list that ``server`` gave since this began.

    A newer one for the same server and repository takes over: this one sees only what the newer one does.
    """

    def __init__(self, server: LakeFSClient, repository: str) -> None:
        self._server, self._repository = server, repository
        self._seen = server.record_heads(repository)
        self._searched = set[tuple[str, str]]()

    @contextmanager
    def searching(self) -> Iterator[set[tuple[str, str]]]:
        """Count the branches and commits that are added to the set as searched when the block ends without an error.

        Except branches for which the server said in this block that they do not exist: that answer may be wrong.
        """
        before = self._server.absences.copy()
        searched = set[tuple[str, str]]()
        yield searched
        after, repository = self._server.absences, self._repository
        denied = {branch for branch, _ in searched if after[repository, branch] != before[repository, branch]}
        self._searched |= {(branch, commit_id) for branch, commit_id in searched if branch not in denied}

    def unsearched(self, among: Iterable[Heads] | None = None) -> list[Heads]:
        """Return the heads, of those that were seen or of ``among``, that were not searched.

        A branch that had several heads has them in several parts of the list.

        A branch that the server has deleted (``LakeFSClient.known_branches``) is not searched.
        """
        known = self._server.known_branches(self._repository)
        seen = self._seen if among is None else {head for part in among for head in part.items()}
        parts = list[dict[str, str]]()
        for branch, commit_id in sorted(seen - self._searched):
            if branch not in known:
                continue
            part = next((each for each in parts if branch not in each), None)
            if part is None:
                parts.append(part := {})
            part[branch] = commit_id
        return list(parts)
