"""Lists of the server that decide about objects: its repositories, and their branches (rules 5 and 12).

What is not listed is not read, and what it refers to looks like garbage. lakeFS does not tell how long a list is. So
each list must have what earlier lists had, unless the server says that it was deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lakefs_gc.errors import IncompleteAnswerError, RepositoryNotFoundError, ServerError
from lakefs_gc.lakefs.models import Repository
from lakefs_gc.storage.concurrency import map_unordered

logger = logging.getLogger(__name__)

Listed = TypeVar("Listed")

_LISTS = 2
"""How often the server is asked for the list, if it lacks something that exists."""
_ABSENCES = 3
"""In so many lists a name must be missing, and not exist, until it is forgotten: one 404 may come from a proxy."""
_PAUSES_SECONDS = (5, 5)
"""The pauses before a missing repository is asked for once more: lakeFS shows a deleted one for up to 7 s more
(``graveler.repository_cache``)."""
_CALLS_AT_ONCE = 16
IN_DELETION = 410
"""The status for a repository whose deletion has begun. lakeFS lists it until the deletion has ended."""
_LOG = "check the log of the lakeFS server if the error persists"


@dataclass(frozen=True)
class Existing(Generic[Listed]):
    """Something that exists although it is not listed. ``value`` is None if it is being deleted."""

    value: Listed | None


@dataclass(frozen=True)
class RememberedList(Generic[Listed]):
    """A list of the server, whose names are remembered. ``what`` says what is listed, e.g. ``"branches of lake"``.

    ``read`` returns name and value of what the server lists now. ``find`` asks for something that it does not list, and
    returns None if that does not exist. It is asked again after each of ``pauses_seconds``. ``if_incomplete`` says what
    to do about a list without a name that every list has.
    """

    what: str
    read: Callable[[], Mapping[str, Listed]]
    find: Callable[[str], Existing[Listed] | None]
    if_incomplete: str
    sleep: Callable[[float], None]
    pauses_seconds: tuple[float, ...] = ()
    _known: set[str] = field(default_factory=set)
    _absences: dict[str, int] = field(default_factory=dict)
    _recorded: set[tuple[str, Listed]] = field(default_factory=set)

    @property
    def names(self) -> frozenset[str]:
        """Return all names that were listed or expected, except those that the server has deleted."""
        return frozenset(self._known)

    def expect(self, names: Iterable[str]) -> None:
        """Remember the names that an earlier list had, e.g. when a mark was made."""
        self._known.update(name for name in names if self._absences.get(name, 0) < _ABSENCES)

    def record(self) -> set[tuple[str, Listed]]:
        """Return a set to which ``having`` adds every name and value that it sees, until the next call empties it.

        Also those of a list that it does not accept.
        """
        self._recorded.clear()
        return self._recorded

    def having(self, name: str) -> dict[str, Listed]:
        """Return name and value of everything that the server lists, which includes ``name``.

        Something that is known and exists may be missing in one list, because it was deleted and created again: it is
        in the result. Raises ``IncompleteAnswerError`` if two lists lack it, and for a list without ``name``.
        """
        lacking: set[str] | None = None
        for _ in range(_LISTS):
            listed = dict(self.read())
            if name not in listed:
                raise IncompleteAnswerError(
                    f"The server lists {len(listed)} {self.what}, but not {name}. The list is incomplete",
                    remedy=self.if_incomplete,
                )
            self._known.update(listed)
            self._recorded.update(listed.items())
            for again in self._absences.keys() & listed.keys():
                self._absences.pop(again, None)
            omitted = self._existing(self._known - listed.keys())
            found = {other: existing.value for other, existing in omitted.items() if existing.value is not None}
            self._recorded.update(found.items())
            if not omitted or (lacking is not None and found.keys() == omitted.keys() and not lacking & found.keys()):
                return listed | found
            lacking = set(omitted)
        raise IncompleteAnswerError(
            f"The server has these {self.what}, but does not list them: {', '.join(sorted(lacking or ()))}",
            remedy=f"Start a new run. They may have been deleted and created again at that time. Otherwise {_LOG}",
        )

    def _existing(self, names: set[str]) -> dict[str, Existing[Listed]]:
        """Return those of ``names`` that exist. The others are forgotten once that was so in several lists.

        The same names are asked for again after a pause. In another list, one that was deleted meanwhile would be
        missing: on a server where repositories come and go, no list might be accepted.
        """
        existing: dict[str, Existing[Listed]] = {}
        asked = names
        for pause_seconds in (0, *self.pauses_seconds):
            if not asked:
                break
            if pause_seconds:
                self.sleep(pause_seconds)
            with closing(map_unordered(self.find, asked, _CALLS_AT_ONCE)) as answers:
                existing = {name: found for name, found in answers if found is not None}
            # At once: after the pause, another thread may have seen a new one of this name.
            for name in asked - existing.keys():
                self._absences[name] = self._absences.get(name, 0) + 1
                if self._absences[name] >= _ABSENCES:
                    self._known.discard(name)
            asked = set(existing)
        if deleted := names - existing.keys():
            logger.debug("these %s were deleted since an earlier list: %s", self.what, ", ".join(sorted(deleted)))
        return existing


def list_of_repositories(
    read_all: Callable[[], Iterable[Repository]], read_one: Callable[[str], Repository], sleep: Callable[[float], None]
) -> RememberedList[Repository]:
    """Return the list of repositories. ``read_one`` raises ``RepositoryNotFoundError`` if the repository is unknown."""
    return RememberedList(
        "repositories",
        lambda: {repository.name: repository for repository in read_all()},
        _asking(read_one, "repository {name}", "fs:ReadRepository on all repositories"),
        f"Allow fs:ListRepositories on all repositories. If they are allowed, start a new run, and {_LOG}",
        sleep,
        _PAUSES_SECONDS,
    )


def list_of_branches(
    repository: str,
    read_all: Callable[[], Iterable[tuple[str, str]]],
    read_one: Callable[[str], str],
    sleep: Callable[[float], None],
) -> RememberedList[str]:
    """Return the list of the branches of a repository (name and commit id).

    ``read_one`` returns the commit id. It raises ``RepositoryNotFoundError`` if the branch does not exist. lakeFS does
    not delete the default branch, so only a bare repository that was not restored yet has none.
    """
    return RememberedList(
        f"branches of {repository}",
        lambda: dict(read_all()),
        _asking(read_one, f"branch {{name}} of {repository}", f"fs:ReadBranch on all branches of {repository}"),
        "If this is its default branch, and the repository is bare, restore its branches (`lakectl refs-restore`), or "
        f"create this one. Otherwise start a new run, and {_LOG}",
        sleep,
    )


def _asking(read_one: Callable[[str], Listed], what: str, permission: str) -> Callable[[str], Existing[Listed] | None]:
    """Return a function that asks the server for something that it does not list."""

    def find(name: str) -> Existing[Listed] | None:
        try:
            return Existing(read_one(name))
        except RepositoryNotFoundError:
            return None
        except ServerError as error:
            if error.facts.get("status") == IN_DELETION:
                return Existing(None)  # still there, and soon gone
            if error.facts.get("status") not in (401, 403):
                raise
            # lakeFS checks the permission first, also for what does not exist.
            raise IncompleteAnswerError(
                f"The server does not list {what.format(name=name)}, and whether it exists is unknown: {error.message}",
                remedy=f"Allow {permission}",
            ) from error

    return find
