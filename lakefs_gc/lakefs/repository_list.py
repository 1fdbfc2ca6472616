"""The list of repositories that decides about objects (rules 5 and 12).

A repository that is not listed is not read, and what it imported looks like garbage. lakeFS does not tell how many
repositories there are. So each list must have what earlier lists had, unless the server says that it was deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import closing

from lakefs_gc.errors import IncompleteAnswerError, RepositoryNotFoundError, ServerError
from lakefs_gc.lakefs.models import Repository
from lakefs_gc.storage.concurrency import map_unordered

logger = logging.getLogger(__name__)

_LISTS = 2
"""How often the server is asked for the list, if it lacks a repository that exists."""
_PAUSES_SECONDS = (0, 5, 5)
"""The pauses before a missing repository is asked for: lakeFS shows a deleted one for up to 7 s more
(``graveler.repository_cache``)."""
_CALLS_AT_ONCE = 16
IN_DELETION = 410
"""The status for a repository whose deletion has begun. lakeFS lists it until the deletion has ended."""


class RepositoryList:
    """Lists the repositories of one server, and remembers their names.

    ``read_all`` returns those that the server lists now. ``read_one`` returns one, and raises
    ``RepositoryNotFoundError`` if it does not exist.
    """

    def __init__(
        self,
        read_all: Callable[[], Iterable[Repository]],
        read_one: Callable[[str], Repository],
        sleep: Callable[[float], None],
    ) -> None:
        self._read_all, self._read_one, self._sleep = read_all, read_one, sleep
        self._known = set[str]()

    def expect(self, names: Iterable[str]) -> None:
        """Remember the names that an earlier list had, e.g. when a mark was made."""
        self._known.update(names)

    def without(self, name: str) -> list[Repository]:
        """Return all repositories except the existing repository ``name``.

        Raises ``IncompleteAnswerError`` for a list without ``name``, or without a known repository that exists.
        """
        omitted = set[str]()
        for _ in range(_LISTS):
            listed = list(self._read_all())
            names = {repository.name for repository in listed}
            if name not in names:
                raise IncompleteAnswerError(
                    f"The server lists {len(listed)} repositories, but not {name}. The list is incomplete",
                    remedy="Allow fs:ListRepositories on all repositories. If they are allowed, start a new run, and "
                    "check the log of the lakeFS server if the error persists",
                )
            self._known.update(names)
            omitted = self._existing(self._known - names)
            if not omitted:
                return [repository for repository in listed if repository.name != name]
        raise IncompleteAnswerError(
            f"The server has these repositories, but no longer lists them: {', '.join(sorted(omitted))}",
            remedy="Start a new run. If the error persists, check the log of the lakeFS server",
        )

    def _existing(self, names: set[str]) -> set[str]:
        """Return those of ``names`` that exist. The others are forgotten.

        The same names are asked for again after a pause. In another list, one that was deleted meanwhile would be
        missing: on a server where repositories come and go, no list might be accepted.
        """
        existing = names
        for pause_seconds in _PAUSES_SECONDS:
            if not existing:
                break
            if pause_seconds:
                self._sleep(pause_seconds)
            with closing(map_unordered(self._exists, existing, _CALLS_AT_ONCE)) as answers:
                deleted = {name for name, exists in answers if not exists}
            # At once: after the pause, another thread may have seen a new repository of this name.
            self._known.difference_update(deleted)
            existing = existing - deleted
        if deleted := names - existing:
            logger.debug("these repositories were deleted since an earlier list: %s", ", ".join(sorted(deleted)))
        return existing

    def _exists(self, name: str) -> bool:
        """Return whether the server has a repository that it does not list."""
        try:
            self._read_one(name)
        except RepositoryNotFoundError:
            return False
        except ServerError as error:
            if error.facts.get("status") == IN_DELETION:
                return True  # still there, and soon gone
            if error.facts.get("status") not in (401, 403):
                raise
            # lakeFS checks the permission first, also for a repository that does not exist.
            raise IncompleteAnswerError(
                f"The server no longer lists repository {name}, and whether it still exists is unknown: "
                f"{error.message}",
                remedy="Allow fs:ReadRepository on all repositories",
            ) from error
        return True
