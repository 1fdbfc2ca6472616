"""The one loop over the pages of a list of the lakeFS API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lakefs_gc.errors import IncompleteAnswerError

INCOMPLETE_REMEDY = (
    "Start a new run. If the error persists, check the log of the lakeFS server, and that its version is 1.x"
)

REPLACEMENT_CHARACTER = "\N{REPLACEMENT CHARACTER}"
"""What the JSON of a server has in place of bytes that are not UTF-8: the real name is unknown."""


@dataclass(frozen=True)
class Pagination:
    """Whether another page follows, and the offset at which it begins."""

    has_more: bool
    next_offset: str


@dataclass(frozen=True)
class Page:
    """A page of a list as JSON."""

    results: list[dict[str, Any]]
    pagination: Pagination


def parse_page(what: str, body: bytes) -> Page:
    """Return a page of a list. Raises ``IncompleteAnswerError`` if the answer is none.

    The models of the SDK take ten times as long, which matters for lists of millions.
    """
    try:
        content = json.loads(body)
        results, pagination = content["results"], content["pagination"]
        page = Page(results, Pagination(pagination["has_more"], pagination["next_offset"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _no_page(what) from error
    is_page = (
        isinstance(results, list)
        and all(isinstance(result, dict) for result in results)
        and isinstance(page.pagination.has_more, bool)
        and isinstance(page.pagination.next_offset, str)
    )
    if not is_page:
        raise _no_page(what)
    return page


def _no_page(what: str) -> IncompleteAnswerError:
    return IncompleteAnswerError(f"{what}: the answer is not a page of a list of lakeFS", remedy=INCOMPLETE_REMEDY)


def all_pages(what: str, read_page: Callable[[str], Any]) -> Iterator[Any]:
    """Yield the results of every page, in the order of the server. ``read_page`` gets the offset of the page.

    Each page is requested when the results of the page before are consumed. Raises ``IncompleteAnswerError`` when the
    server reports another page without an offset, or with one that does not advance: a list that ends early or never
    ends must not pass for a complete one. Raises it also for an offset with ``REPLACEMENT_CHARACTER``: it may sort
    after names that follow the real one, and the next page would omit these.
    """
    after = ""
    while True:
        page = read_page(after)
        yield from page.results
        if not page.pagination.has_more:
            return
        next_offset = page.pagination.next_offset
        if not next_offset or next_offset <= after:
            raise IncompleteAnswerError(
                f"{what}: the server reports another page, but its next_offset {next_offset!r} does not advance past "
                f"{after!r}",
                remedy=INCOMPLETE_REMEDY,
            )
        if REPLACEMENT_CHARACTER in next_offset:
            raise IncompleteAnswerError(
                f"{what}: a page ends at {next_offset!r}, a name that is not valid UTF-8. The next may omit others",
                remedy="Commit or delete that path, then start a new run",
            )
        after = next_offset
