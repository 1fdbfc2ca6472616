"""Parallel listing of many key ranges: long ranges are cut, and the number of requests adapts to the store.

One task of a listing runs this with threads. A thread without work cuts the range with the most pages and lists its
second part. A range with very many pages is left over, as it is cut by then, for other tasks.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.errors import StorageError
from lakefs_gc.storage.base import ListingPage, ObjectStore
from lakefs_gc.storage.fan_out import merged
from lakefs_gc.storage.listing.key_ranges import KeyRange, find_cuts
from lakefs_gc.storage.pace import Pace

_FREE_PROBES = 16
_PAGES_PER_PROBE = 6
"""The search for cuts may make one request per this many pages, beyond the first few requests."""
_PAGES_HANDED_OVER = 8
"""The pages that a thread passes on together, because each transfer switches threads at the interpreter."""


@dataclass(frozen=True)
class ListingLimits:
    """The limits of a task's listing.

    ``requests_at_once`` is the maximum; a task finds the useful number itself. A range is cut after ``cut_after_pages``
    (0: never), and left over for other tasks after ``pages_per_range`` (0: never), together with its cut parts.
    ``quick``: by ``ObjectStore.quick_pages``.
    """

    requests_at_once: int = 32
    cut_after_pages: int = 24
    pages_per_range: int = 0
    quick: bool = False


@dataclass
class _Origin:
    """The pages of one given range and of all parts that were cut off it."""

    pages: int = 0
    was_cut: bool = False


@dataclass(eq=False)
class _Listing:
    """A range that waits or is being listed. Fields change under the lock only."""

    range: KeyRange
    origin: _Origin
    position: str = ""
    """The last name that was listed, relative to the prefix."""
    pages: int = 0
    in_order: bool = True
    in_folders: bool = False
    being_cut: bool = False
    ended: bool = False
    """The range was listed or left over completely, so it cannot be cut any more."""
    uncuttable_until: int = 0
    """No cut was found; the search is not repeated before this many pages."""


class RangeLister:
    """Lists ranges of one store. Read ``batches`` once, then ``left_over``."""

    def __init__(self, store: ObjectStore, ranges: Iterable[KeyRange], limits: ListingLimits) -> None:
        self.left_over: list[KeyRange] = []
        """The ranges that remain to be listed: folders that one-level ranges returned, and remainders. A folder may
        appear twice, from different ranges. Complete when ``batches`` has ended."""
        self._store = store
        self._limits = limits
        self._given = iter(ranges)
        self._cut_off: list[_Listing] = []
        self._running: list[_Listing] = []
        self._idle = 0
        self._pages = self._probes = 0
        self._folders: set[str] = set()
        self._lock = threading.Condition()
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._results: queue.Queue[list[pa.RecordBatch] | None] = queue.Queue(maxsize=limits.requests_at_once)
        self._pace = Pace(limits.requests_at_once)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the objects in arbitrary order, in batches of ``fan_out.BATCH_ROWS``.

        The first error is raised as soon as it is known. After an error, or when the iterator is closed, the threads
        stop after their current page. Raise ``StorageError`` if a range that was cut is not in the order of its keys.
        """
        return merged(self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        threads = [
            threading.Thread(target=self._work, name="store-list", daemon=True)
            for _ in range(self._limits.requests_at_once)
        ]
        for thread in threads:
            thread.start()
        working = len(threads)
        try:
            while working:
                if self._failures:
                    raise self._failures[0]
                try:
                    result = self._results.get(timeout=0.1)
                except queue.Empty:
                    continue
                if result is None:
                    working -= 1
                else:
                    yield from (objects for objects in result if objects.num_rows)
            if self._failures:
                raise self._failures[0]
            self.left_over += [KeyRange(folder) for folder in sorted(self._folders)]
        finally:
            self._halt()

    def _halt(self) -> None:
        self._stop.set()
        self._pace.stop()
        with self._lock:
            self._lock.notify_all()

    # -- threads

    def _work(self) -> None:
        try:
            while (listing := self._next()) is not None:
                try:
                    self._list(listing)
                finally:
                    with self._lock:
                        self._running.remove(listing)
                        self._lock.notify_all()
        except BaseException as error:  # raised again in the caller's thread
            self._failures.append(error)
            self._halt()
        finally:
            self._hand_over(None)

    def _hand_over(self, result: list[pa.RecordBatch] | None) -> None:
        while not self._stop.is_set():
            try:
                self._results.put(result, timeout=0.1)
                return
            except queue.Full:
                continue

    def _next(self) -> _Listing | None:
        """Return a range to list: a waiting one, or a part of a long one; None at the end."""
        while True:
            with self._lock:
                if self._stop.is_set():
                    return None
                listing = self._cut_off.pop() if self._cut_off else None
                if listing is None and (given := next(self._given, None)) is not None:
                    listing = _Listing(given, _Origin())
                    listing.position = given.start_after.removeprefix(given.prefix)
                if listing is not None:
                    self._running.append(listing)
                    return listing
                if not self._running:
                    return None
                self._idle += 1
                longest = self._longest()
                if longest is None:
                    self._lock.wait(0.2)
                    self._idle -= 1
                    continue
                longest.being_cut = True
            try:
                self._cut(longest)
            finally:
                with self._lock:
                    self._idle -= 1

    def _list(self, listing: _Listing) -> None:
        """List one range to its end, or until it is left over."""
        again: KeyRange | None = listing.range
        while again is not None:
            again = self._list_from(listing, again)

    def _list_from(self, listing: _Listing, asked: KeyRange) -> KeyRange | None:
        """List a range; return the one-level range to continue with, if the listing should change to one level."""
        list_pages = self._store.quick_pages if self._limits.quick else self._store.pages
        pages = list_pages(asked.prefix, start_after=asked.start_after, until=asked.until, one_level=asked.one_level)
        held: list[pa.RecordBatch] = []
        try:
            # One slot for all pages: releasing it after each page takes 10 % of the processor time.
            with self._pace.request() as done:
                while not self._stop.is_set():
                    page = next(pages, None)
                    done(page.objects.num_rows if page else 0, self._store.slow_downs)
                    if page is None:
                        return None
                    objects, ends, as_level = self._take(listing, page)
                    held.append(objects)
                    if len(held) == _PAGES_HANDED_OVER:
                        self._hand_over(held)
                        held = []
                    if ends:
                        return None
                    if as_level:
                        return listing.range
                    self._pace.give_way()
            return None
        finally:
            if held:
                self._hand_over(held)

    def _take(self, listing: _Listing, page: ListingPage) -> tuple[pa.RecordBatch, bool, bool]:
        """Record a page; return its objects in the range, whether the range ends, and whether to continue by level."""
        prefix, names = listing.range.prefix, page.objects["address"]
        cut_after = self._limits.cut_after_pages
        # Arrow releases the interpreter, so Arrow is not called under the lock: all threads would wait for one.
        # Only this thread changes the fields that are read here.
        in_order = _ascending(names, prefix + listing.position if listing.position else "")
        in_folders = not listing.range.one_level and listing.pages <= cut_after and _any_in_folder(names, prefix)
        last_name = names[-1].as_py() if page.objects.num_rows else ""
        # A folder may arrive before an object that sorts before it, so its name shows how far the listing is.
        last = max([folder[:-1] for folder in page.sub_prefixes] + [last_name])
        with self._lock:
            until, one_level = listing.range.until, listing.range.one_level
            if not in_order and (listing.origin.was_cut or listing.range.start_after):
                raise StorageError(
                    f"{self._store.location.folder_url}{prefix}: the store does not list in the order of the keys",
                    remedy="Set cut_after_pages = 0 in [listing], so that no listing is cut into parts",
                )
            listing.in_order &= in_order
            listing.in_folders |= in_folders
            listing.pages += 1
            listing.origin.pages += 1
            self._pages += 1
            self._folders.update(page.sub_prefixes)
            listing.position = max(listing.position, last[len(prefix) :])
            ends = bool(until) and last > until
            can_be_cut = listing.in_order and self._store.lists_by_page and cut_after > 0
            as_level = can_be_cut and not (ends or one_level or listing.in_folders) and cut_after <= listing.pages
            if as_level:
                listing.range = KeyRange(prefix, start_after=prefix + listing.position, one_level=True)
            spent = 0 < self._limits.pages_per_range <= listing.origin.pages
            at_object = page.objects.num_rows and last == last_name  # otherwise the last folder would be repeated
            if can_be_cut and spent and not ends and listing.range.one_level and at_object:
                self.left_over.append(KeyRange(prefix, prefix + listing.position, until, one_level=True))
                ends = True
            listing.ended = ends
        objects = page.objects.filter(pc.less_equal(names, until)) if until else page.objects
        return objects, ends, as_level

    # -- cutting

    def _longest(self) -> _Listing | None:
        """Return the range to cut: of those that can be cut, the one with the most pages, if a slot is free."""
        least = self._limits.cut_after_pages
        if not self._pace.room:
            return None
        if not least or not self._store.lists_by_page or self._probes > _FREE_PROBES + self._pages // _PAGES_PER_PROBE:
            return None
        fit = [
            listing
            for listing in self._running
            if listing.range.one_level
            and listing.in_order
            and not (listing.being_cut or listing.ended)
            and listing.position
            and listing.pages >= max(least, listing.uncuttable_until)
        ]
        return max(fit, key=lambda listing: listing.pages, default=None)

    def _cut(self, listing: _Listing) -> None:
        """Cut a running range into as many parts as there are idle threads, unless it ends meanwhile."""
        prefix = listing.range.prefix
        with self._lock:
            position, until = listing.position, listing.range.until[len(prefix) :]
            most = max(1, min(self._idle, self._pace.room))

        def first_name_after(text: str) -> str | None:
            with self._pace.request() as done:
                self._probes += 1  # by several threads without a lock: approximate is enough
                name = None if self._stop.is_set() else self._store.first_name_after(prefix, prefix + text)
                done(0, self._store.slow_downs)
            return None if name is None else name[len(prefix) :]

        cuts = find_cuts(first_name_after, position, until, most)
        with self._lock:
            listing.being_cut = False
            if not cuts:
                listing.uncuttable_until = 2 * listing.pages
            # The range has moved on, and a store may answer anything, so accept only cuts in the remaining part.
            until = listing.range.until
            cuts = [cut for cut in cuts if cut > listing.position and (not until or prefix + cut < until)]
            if cuts and listing in self._running and not listing.ended:
                ends = [*(prefix + cut for cut in cuts[1:]), listing.range.until]
                for cut, end in zip(cuts, ends, strict=True):
                    part = KeyRange(prefix, prefix + cut, end, one_level=True)
                    self._cut_off.append(_Listing(part, listing.origin, position=cut))
                listing.range = KeyRange(prefix, listing.range.start_after, prefix + cuts[0], one_level=True)
                listing.origin.was_cut = True
                listing.pages = 0
            self._lock.notify_all()


def _any_in_folder(names: pa.StringArray, prefix: str) -> bool:
    """Return whether any of the names, which all begin with ``prefix``, is in a folder below it."""
    if not len(names):
        return False
    offsets = np.frombuffer(names.buffers()[1], np.int32)[names.offset : names.offset + len(names) + 1]
    content = memoryview(names.buffers()[2])[offsets[0] : offsets[-1]]
    return bytes(content).count(b"/") > len(names) * prefix.count("/")  # 17 µs for a page; by Arrow's functions 98


def _ascending(names: pa.Array, after: str) -> bool:
    """Return whether names are in ascending byte order, without repetition, and all after a text."""
    if not len(names):
        return True
    if after and names[0].as_py().encode() <= after.encode():
        return False
    return bool(pc.all(pc.less(names[:-1], names[1:]), min_count=0).as_py())
