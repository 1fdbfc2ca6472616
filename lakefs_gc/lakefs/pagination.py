"""The one loop over the pages of a list of the lakeFS API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lakefs_gc.errors import IncompleteAnswerError

INCOMPLETE_REMEDY = (
    "Start a new run. If the error persists, check the log of the lakeFS server, and that its version is 1.x"
)


def all_pages(what: str, read_page: Callable[[str], Any]) -> Iterator[Any]:
    """Yield the results of every page, in the order of the server. ``read_page`` gets the offset of the page.

    Each page is requested when the results of the page before are consumed. Raises ``IncompleteAnswerError`` when the
    server reports another page without an offset, or with one that does not advance: a list that ends early or never
    ends must not pass for a complete one.
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
        after = next_offset
