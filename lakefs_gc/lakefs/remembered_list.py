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
_PAUSES_SECONDS = (5, 5)
"""The pauses before a missing repository is asked for once more: lakeFS shows a deleted one for up to 7 s more
(``graveler.repository_cache``)."""
_CALLS_AT_ONCE = 16
IN_DELETION = 410
"""The status for a repository whose deletion has begun. lakeFS lists it until the deletion has ended."""
_START_AGAIN = "start a new run, and check the log of the lakeFS server if the error persists"


@dataclass(frozen=True)
class RememberedList(Generic[Listed]):
    """A list of the server, whose names are remembered. ``what`` says what is listed, e.g. ``"branches of lake"``.

    ``read`` returns name and value of what the server lists now. ``exists`` says whether the server has something that
    it does not list. It is asked again after each of ``pauses_seconds``. ``if_incomplete`` says what to do about a list
    without a name that every list has.
    """

    what: str
    read: Callable[[], Mapping[str, Listed]]
    exists: Callable[[str], bool]
    if_incomplete: str
    sleep: Callable[[float], None]
    pauses_seconds: tuple[float, ...] = ()
    _known: set[str] = field(default_factory=set)

    def expect(self, names: Iterable[str]) -> None:
        """Remember the names that an earlier list had, e.g. when a mark was made."""
        self._known.update(names)

    def having(self, name: str) -> dict[str, Listed]:
        """Return name and value of everything that the server lists, which includes ``name``.

        Raises ``IncompleteAnswerError`` for a list without ``name``, or without something that is known and exists.
        """
        omitted = set[str]()
        for _ in range(_LISTS):
            listed = dict(self.read())
            if name not in listed:
                raise IncompleteAnswerError(
                    f"The server lists {len(listed)} {self.what}, but not {name}. The list is incomplete",
                    remedy=self.if_incomplete,
                )
            self._known.update(listed)
            omitted = self._existing(self._known - listed.keys())
            if not omitted:
                return listed
        raise IncompleteAnswerError(
            f"The server has these {self.what}, but no longer lists them: {', '.join(sorted(omitted))}",
            remedy=_START_AGAIN.capitalize(),
        )

    def _existing(self, names: set[str]) -> set[str]:
        """Return those of ``names`` that exist. The others are forgotten.

        The same names are asked for again after a pause. In another list, one that was deleted meanwhile would be
        missing: on a server where repositories come and go, no list might be accepted.
        """
        existing = names
        for pause_seconds in (0, *self.pauses_seconds):
            if not existing:
                break
            if pause_seconds:
                self.sleep(pause_seconds)
            with closing(map_unordered(self.exists, existing, _CALLS_AT_ONCE)) as answers:
                deleted = {name for name, exists in answers if not exists}
            # At once: after the pause, another thread may have seen a new one of this name.
            self._known.difference_update(deleted)
            existing = existing - deleted
        if deleted := names - existing:
            logger.debug("these %s were deleted since an earlier list: %s", self.what, ", ".join(sorted(deleted)))
        return existing


def list_of_repositories(
    read_all: Callable[[], Iterable[Repository]], read_one: Callable[[str], object], sleep: Callable[[float], None]
) -> RememberedList[Repository]:
    """Return the list of repositories. ``read_one`` raises ``RepositoryNotFoundError`` if there is no such one."""
    return RememberedList(
        "repositories",
        lambda: {repository.name: repository for repository in read_all()},
        _asking(read_one, "repository {name}", "fs:ReadRepository on all repositories"),
        f"Allow fs:ListRepositories on all repositories. If they are allowed, {_START_AGAIN}",
        sleep,
        _PAUSES_SECONDS,
    )


def list_of_branches(
    repository: str,
    read_all: Callable[[], Iterable[tuple[str, str]]],
    read_one: Callable[[str], object],
    sleep: Callable[[float], None],
) -> RememberedList[str]:
    """Return the list of the branches of a repository (name and commit id).

    ``read_one`` raises ``RepositoryNotFoundError`` if there is no such branch. lakeFS refuses to delete the default
    branch, so only a bare repository that was not restored yet has none.
    """
    return RememberedList(
        f"branches of {repository}",
        lambda: dict(read_all()),
        _asking(read_one, f"branch {{name}} of {repository}", f"fs:ReadBranch on all branches of {repository}"),
        "If this is its default branch, and the repository is bare, restore its branches (`lakectl refs-restore`), or "
        f"create this one. Otherwise {_START_AGAIN}",
        sleep,
    )


def _asking(read_one: Callable[[str], object], what: str, permission: str) -> Callable[[str], bool]:
    """Return a function that asks the server whether something exists that it does not list."""

    def exists(name: str) -> bool:
        try:
            read_one(name)
        except RepositoryNotFoundError:
            return False
        except ServerError as error:
            if error.facts.get("status") == IN_DELETION:
                return True  # still there, and soon gone
            if error.facts.get("status") not in (401, 403):
                raise
            # lakeFS checks the permission first, also for what does not exist.
            raise IncompleteAnswerError(
                f"The server no longer lists {what.format(name=name)}, and whether it still exists is unknown: "
                f"{error.message}",
                remedy=f"Allow {permission}",
            ) from error
        return True

    return exists
