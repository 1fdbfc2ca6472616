"""Asks a branch what it shows at some paths: in pages of its list if they are near each other, or else one by one.

A page of 100 paths takes a lakeFS server twice the time of one path (measured: 1,100 pages and 2,000 paths a second). A
page is only a shortcut: a path that it should have, and lacks, is asked for alone.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

from lakefs_gc.engine.run import GCRun
from lakefs_gc.errors import IncompleteAnswerError, RepositoryNotFoundError, ServerError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.pagination import INCOMPLETE_REMEDY, REPLACEMENT_CHARACTER

logger = logging.getLogger(__name__)

_PAGE = 1000  # the most of the API
_FIRST_PAGE = 100
_SMALLEST_PAGE = 8
_ENTRIES_OF_A_LOOKUP = 50  # of a page, in the time of a lookup
_LAST_CHARACTER = "\U0010ffff"


@dataclass(frozen=True)
class Lookup:
    """A path of a branch to look up. ``size`` and ``md5`` (empty if unknown) are those of the object it may show."""

    branch: str
    path: bytes
    size: int
    md5: str


class BudgetExceededError(Exception):
    """Raised by ``Budget.spend``."""


@dataclass
class Budget:
    """How many lookups may be made, or as much work for the server; None: any number.

    ``without_pages``: a page could not be read, so each path is asked for alone.
    """

    lookups: float | None
    without_pages: bool = False
    _one: Lock = field(default_factory=Lock)

    def spend(self, lookups: float) -> None:
        """Count this much work. Raise ``BudgetExceededError`` if it was too much."""
        if self.lookups is None:
            return
        with self._one:
            self.lookups -= lookups
            if self.lookups < 0:
                raise BudgetExceededError


Answer = tuple[Lookup, tuple[str, ...] | None]
"""The addresses that the branch may show; empty if they are none of this namespace; None if unknown."""


def ask(
    part: Sequence[Lookup], server: LakeFSClient, run: GCRun, budget: Budget, riders: Mapping[str, Lookup]
) -> tuple[list[Answer], list[Answer]]:
    """Return the answers to lookups of one branch, which are in the order of their paths, and those to ``riders``.

    ``riders`` are other lookups of this branch, by their paths. Those in the pages for ``part`` are answered, too.
    Raises ``BudgetExceededError``, and what lookups of single paths raise.
    """
    answered = list[Answer]()
    return list(_answers(part, server, run, budget, riders, answered)), answered


def _answers(
    part: Sequence[Lookup],
    server: LakeFSClient,
    run: GCRun,
    budget: Budget,
    riders: Mapping[str, Lookup],
    answered: list[Answer],
) -> Iterator[Answer]:
    named = list[tuple[str, Lookup]]()
    for lookup in part:
        try:
            named.append((lookup.path.decode(), lookup))
        except UnicodeDecodeError:
            yield lookup, None  # the API cannot name a path that is not UTF-8
    amount, place = min(max(_FIRST_PAGE, 2 * len(named)), _PAGE), 0
    while place < len(named):
        if budget.without_pages or amount < _SMALLEST_PAGE or len(named) - place < 2:
            budget.spend(1)
            yield named[place][1], _ask(*named[place], server, run)
            place += 1
            continue
        try:
            shown, has_more = _page(named[place][0], named[place][1].branch, amount, server, run)
        except RepositoryNotFoundError:  # the branch is deleted: ``shown_page`` has proved it
            yield from ((lookup, None if REPLACEMENT_CHARACTER in path else ()) for path, lookup in named[place:])
            return
        except ServerError as error:
            # The server fails for a whole page if it cannot show one object, which may be none of the wanted ones.
            logger.warning("each path is looked up alone, because a page cannot be read: %s", error.message)
            budget.without_pages = True
            continue
        budget.spend(1 + len(shown) / _ENTRIES_OF_A_LOOKUP)
        end = len(named)
        if has_more:
            end = max(place + 1, bisect_right(named, max(shown, default=""), key=lambda pair: pair[0]))
        for path, lookup in named[place:end]:
            url = shown.get(path)
            if url is None or REPLACEMENT_CHARACTER in path:
                budget.spend(1)
                yield lookup, _ask(path, lookup, server, run)
            else:
                yield lookup, run.known_folders.keys_of(url)
        for path in shown.keys() & riders.keys():
            if REPLACEMENT_CHARACTER not in path:
                answered.append((riders[path], run.known_folders.keys_of(shown[path])))
        is_worth_it = end - place > 1 + len(shown) / _ENTRIES_OF_A_LOOKUP
        amount = min(2 * amount, _PAGE) if is_worth_it else amount // 2
        place = end


def _page(path: str, branch: str, amount: int, server: LakeFSClient, run: GCRun) -> tuple[dict[str, str], bool]:
    """Return path and URL of what the branch shows from about this path on, and whether more follows."""
    before = _before(path)
    shown, has_more = server.shown_page(run.repository, branch, amount, after=before)
    if any(shown_path <= before and REPLACEMENT_CHARACTER not in shown_path for shown_path in shown):
        raise IncompleteAnswerError(
            f"list {branch} of {run.repository}: the answer is not what follows {before}", remedy=INCOMPLETE_REMEDY
        )
    return shown, has_more


def _before(path: str) -> str:
    """Return a string before ``path``, with as little as possible in between."""
    previous = ord(path[-1]) - 1 if path else -1
    if previous < 0 or 0xD800 <= previous <= 0xDFFF:  # surrogates are no characters
        return path[:-1]
    return path[:-1] + chr(previous) + _LAST_CHARACTER


def _ask(path: str, lookup: Lookup, server: LakeFSClient, run: GCRun) -> tuple[str, ...] | None:
    try:
        url = server.shown_address(run.repository, lookup.branch, path)
    except ServerError as error:
        if error.facts.get("status") == 410:
            return None  # the entry is marked as deleted, and the answer does not include its address
        raise
    if not url:
        # The server shows a path that is not UTF-8 with this character, and cannot find it by that name.
        return None if REPLACEMENT_CHARACTER in path else ()
    return run.known_folders.keys_of(url)
