"""A store in memory that lists by pages, in the order of S3 or in the order of stores that walk folders."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pyarrow as pa

from lakefs_gc.storage.base import LISTING_SCHEMA, ListingPage, SubPrefixes
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def batch_of(keys: list[str]) -> pa.RecordBatch:
    rows = [{"address": key, "size": len(key), "last_modified": NOW} for key in keys]
    return pa.RecordBatch.from_pylist(rows, schema=LISTING_SCHEMA)


class PagedStore(LocalStore):
    """``keys`` in pages of ``page_size``.

    ``walks_folders``: a folder with its content is sorted by its name without the slash, as in SeaweedFS.
    ``start_after`` is then a position in that order, within one level. ``shuffled``: in random order, as in S3's
    directory buckets. ``forgets_start``: the store ignores ``start_after``, and earlier keys are omitted here, as in
    ``S3Store``. ``spoil`` may raise, or change the page with a number.
    """

    lists_by_page = True

    def __init__(self, keys: set[str], page_size: int, *, walks_folders: bool = False, shuffled: bool = False) -> None:
        super().__init__(StoreLocation("file:///nowhere"))
        self.keys = keys
        self.page_size = page_size
        self.walks_folders = walks_folders
        self.shuffled = shuffled
        self.spoil: Callable[[int, ListingPage], ListingPage] | None = None
        self.forgets_start = False
        self.levels: dict[str, list[str]] = {}
        self.latency_seconds = 0.0
        self.requests = 0
        self.running = self.most_at_once = 0
        self.lock = threading.Lock()

    def pages(
        self, prefix: str, *, start_after: str = "", until: str = "", one_level: bool = False
    ) -> Iterator[ListingPage]:
        entries = self._level(prefix) if one_level else [key for key in self.keys if key.startswith(prefix)]
        entries.sort(key=lambda name: hash(name)) if self.shuffled else entries.sort(key=self._order)
        after = self._order(start_after)
        if not self.forgets_start:
            entries = [entry for entry in entries if not start_after or self._order(entry) > after]
        for begin in range(0, max(1, len(entries)), self.page_size):
            page = self._page(entries[begin : begin + self.page_size])
            later = [key for key in page.objects["address"].to_pylist() if key > start_after]
            yield ListingPage(batch_of(later), page.sub_prefixes) if self.forgets_start else page

    def first_name_after(self, prefix: str, start_after: str) -> str | None:
        with self.lock:
            self.requests += 1
        names = [
            name.removesuffix("/")
            for name in self._level(prefix)
            if self.forgets_start or self._order(name) > self._order(start_after)
        ]
        return min(names, default=None)

    def list_level(self, prefix: str = "") -> tuple[SubPrefixes, pa.RecordBatch]:
        pages = list(self.pages(prefix, one_level=True))
        return [name for page in pages for name in page.sub_prefixes], pa.concat_batches([p.objects for p in pages])

    def _level(self, prefix: str) -> list[str]:
        """Return the objects and folders (with their slash) of a level."""
        if prefix not in self.levels:
            below = (key[len(prefix) :] for key in self.keys if key.startswith(prefix))
            self.levels[prefix] = list({prefix + n + slash for n, slash, _ in (rest.partition("/") for rest in below)})
        return list(self.levels[prefix])

    def _order(self, name: str) -> tuple[str, ...]:
        return tuple(name.removesuffix("/").split("/")) if self.walks_folders else (name,)

    def _page(self, entries: list[str]) -> ListingPage:
        with self.lock:
            self.requests += 1
            number = self.requests
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
        try:
            time.sleep(self.latency_seconds)
            folders = [entry for entry in entries if entry.endswith("/")]
            page = ListingPage(batch_of([entry for entry in entries if not entry.endswith("/")]), folders)
            return self.spoil(number, page) if self.spoil else page
        finally:
            with self.lock:
                self.running -= 1
