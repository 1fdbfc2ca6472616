"""Listing by ranges: whatever the keys and wherever it is cut, each key comes once, or the listing fails."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakefs_gc.errors import StorageError, StoreUnavailableError
from lakefs_gc.storage.base import ListingPage, ObjectStore
from lakefs_gc.storage.listing import range_listing
from lakefs_gc.storage.listing.key_ranges import KeyRange, find_cuts
from lakefs_gc.storage.listing.range_listing import ListingLimits, RangeLister, _Listing, _Origin
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.paged_store import PagedStore, batch_of

# Few characters, so that names share beginnings; among them those around the slash, and of more than one byte.
part = st.text(st.sampled_from("ab0,.-/~ \x7fé\ue000\U0001f600\U0010ffff"), min_size=1, max_size=5)
key_sets = st.sets(part.map("data/s/".__add__), max_size=60)


def is_key(key: str) -> bool:
    return not key.endswith("/") and "//" not in key


def list_all(store: ObjectStore, ranges: list[KeyRange], limits: ListingLimits) -> list[str]:
    """Round after round until nothing is left over, as the stage does."""
    found: list[str] = []
    listed: set[KeyRange] = set()
    while ranges:
        listed.update(ranges)
        lister = RangeLister(store, ranges, limits)
        found += [key for batch in lister.batches() for key in batch["address"].to_pylist()]
        ranges = [left for left in lister.left_over if left.one_level or left not in listed]
    return found


@settings(max_examples=300, deadline=None)
@given(
    keys=key_sets,
    page_size=st.integers(1, 4),
    cut_after_pages=st.integers(0, 3),
    pages_per_range=st.integers(0, 6),
    walks_folders=st.booleans(),
    one_level=st.booleans(),
    threads=st.integers(1, 6),
)
@example({"data/s/0", "data/s/0/0", "data/s/a"}, 1, 1, 1, False, False, 1)
@example({"data/s/a/x", "data/s/a.b", "data/s/a,c", "data/s/a-", "data/s/b"}, 1, 1, 2, True, True, 4)
def test_each_key_once(
    keys: set[str],
    page_size: int,
    cut_after_pages: int,
    pages_per_range: int,
    walks_folders: bool,
    one_level: bool,
    threads: int,
) -> None:
    # A store that walks folders cannot have a folder and an object of one name.
    keys = {key for key in keys if is_key(key)}
    if walks_folders:
        keys = {key for key in keys if not any(other.startswith(key + "/") for other in keys)}
    store = PagedStore(keys, page_size, walks_folders=walks_folders)
    found = list_all(
        store, [KeyRange("data/s/", one_level=one_level)], ListingLimits(threads, cut_after_pages, pages_per_range)
    )
    assert sorted(found) == sorted(keys)


def test_what_was_left_over_is_not_cut_as_well() -> None:
    """The place for a cut may be found when the range was left over already, and its thread is about to end."""

    class SlowToTell(PagedStore):
        def first_name_after(self, prefix: str, start_after: str) -> str | None:
            wait_for(lambda: bool(lister.left_over))
            return super().first_name_after(prefix, start_after)

    keys = many_keys(30)
    store = SlowToTell(keys, 1)
    store.latency_seconds = 0.05
    lister = RangeLister(store, [KeyRange("data/s/", one_level=True)], ListingLimits(2, 1, pages_per_range=6))
    batches = lister._batches()
    found = [next(batches)]  # four more fill the queue, and the thread waits with the sixth, which was its last
    wait_for(lambda: bool(lister.left_over))
    time.sleep(0.5)
    found += batches
    rest = list_all(PagedStore(keys, 10), lister.left_over, ListingLimits(1))
    assert sorted([key for batch in found for key in batch["address"].to_pylist()] + rest) == sorted(keys)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def many_keys(count: int = 3000) -> set[str]:
    return {f"data/s/c{number:012d},{'s' * 20}" for number in range(count)}


def test_one_large_slice_is_listed_by_many() -> None:
    store = PagedStore(many_keys(), 10)
    store.latency_seconds = 0.01  # beside whatever else the machine does
    found = list_all(store, [KeyRange("data/s/")], ListingLimits(16, 4))
    assert sorted(found) == sorted(many_keys())
    assert store.most_at_once >= 4
    assert store.requests < 300 * 2, "cuts cost more than they gain"


def test_what_goes_on_for_long_is_left_over_in_parts() -> None:
    store = PagedStore(many_keys(), 10)
    store.latency_seconds = 0.03
    lister = RangeLister(store, [KeyRange("data/s/")], ListingLimits(8, 2, pages_per_range=60))
    found = [key for batch in lister.batches() for key in batch["address"].to_pylist()]
    assert 590 <= len(found) < 1500
    assert len(lister.left_over) >= 2
    rest = list_all(store, lister.left_over, ListingLimits(4, 2))
    assert sorted(found + rest) == sorted(many_keys())


def test_nothing_is_cut_whose_parts_would_only_wait() -> None:
    lister = RangeLister(PagedStore(many_keys(30), 10), [], ListingLimits(1, 2))
    listing = _Listing(KeyRange("data/s/", one_level=True), _Origin(), position="c000000000020", pages=2)
    lister._running.append(listing)
    assert lister._longest() is listing
    with lister._pace.request():
        assert lister._longest() is None


def test_a_store_without_order_is_listed_whole_and_never_cut() -> None:
    store = PagedStore(many_keys(500), 10, shuffled=True)
    assert sorted(list_all(store, [KeyRange("data/s/")], ListingLimits(4, 2, 10))) == sorted(many_keys(500))
    assert store.requests == 50


def test_a_store_that_does_not_know_where_to_start() -> None:
    store = PagedStore(many_keys(800), 10)
    store.forgets_start = True
    store.latency_seconds = 0.001
    assert sorted(list_all(store, [KeyRange("data/s/")], ListingLimits(4, 2, 20))) == sorted(many_keys(800))


def test_order_that_breaks_after_a_cut_fails_the_listing() -> None:
    def repeat_a_key(number: int, page: ListingPage) -> ListingPage:
        keys = page.objects["address"].to_pylist()
        return ListingPage(batch_of([*keys[:-1], keys[0]]), []) if number > 150 and len(keys) > 1 else page

    store = PagedStore(many_keys(), 10)
    store.spoil = repeat_a_key
    store.latency_seconds = 0.001
    with pytest.raises(StorageError, match="not list in the order") as failure:
        list_all(store, [KeyRange("data/s/")], ListingLimits(4, 2))
    assert "cut_after_pages" in failure.value.remedy


def test_an_error_in_one_part_fails_the_listing() -> None:
    def fail_late(number: int, page: ListingPage) -> ListingPage:
        if number >= 200:  # the 200th may be no page, but a look for where to cut
            raise StoreUnavailableError("told by the test")
        return page

    store = PagedStore(many_keys(), 10)
    store.spoil = fail_late
    with pytest.raises(StoreUnavailableError, match="told by the test"):
        list_all(store, [KeyRange("data/s/")], ListingLimits(4, 2))
    wait_for_end_of_threads()


def test_an_error_of_the_ranges_is_raised() -> None:
    def ranges() -> Iterator[KeyRange]:
        yield KeyRange("data/s/")
        raise ValueError("no more ranges")

    with pytest.raises(ValueError, match="no more ranges"):
        list(RangeLister(PagedStore(many_keys(30), 10), ranges(), ListingLimits(4)).batches())
    wait_for_end_of_threads()


def test_threads_end_when_the_iterator_is_closed() -> None:
    store = PagedStore(many_keys(40_000), 10)
    batches = RangeLister(store, [KeyRange("data/s/")], ListingLimits(4, 2)).batches()
    assert next(batches).num_rows >= 32_000
    batches.close()  # type: ignore[attr-defined]
    wait_for_end_of_threads()


def wait_for_end_of_threads() -> None:
    deadline = time.monotonic() + 5
    while threads := [thread for thread in threading.enumerate() if thread.name == "store-list"]:
        assert time.monotonic() < deadline, threads
        time.sleep(0.01)


def test_a_cut_leaves_names_on_both_sides() -> None:
    choose = random.Random(7)
    names = sorted(f"c{choose.randrange(10**7):019d},{choose.random()}" for _ in range(2000))
    probes = 0

    def first_name_after(text: str) -> str | None:
        nonlocal probes
        probes += 1
        return next((name for name in names if name > text), None)

    (cut,) = find_cuts(first_name_after, names[20], "", 1)
    left = sum(names[20] < name <= cut for name in names)
    assert 200 < left < 1800
    assert probes < 20
    (second,) = find_cuts(first_name_after, names[20], cut, 1)
    assert names[20] < second < cut
    several = find_cuts(first_name_after, names[20], "", 4)
    assert several == sorted(set(several))
    assert 3 <= len(several) <= 4
    assert all(cut > names[20] for cut in several)


def test_nothing_to_cut() -> None:
    assert find_cuts(lambda text: None, "abc", "", 4) == []
    assert find_cuts(lambda text: "zz" if text < "zz" else None, "abc", "b", 4) == [], "beyond the end of the range"


@pytest.mark.parametrize("one_level", [True, False])
def test_on_a_real_store_that_walks_folders(s3_namespace: StoreLocation, one_level: bool) -> None:
    store = open_store(s3_namespace)
    names = ["a/x", "a.b", "a,b", "a-/y", "b", "b c", "bé", *(f"c{number:03d}" for number in range(40)), "d/e/f", "z"]
    for name in names:
        store.put(f"data/s/{name}", b"")
    small_pages(store)
    found = list_all(store, [KeyRange("data/s/", one_level=one_level)], ListingLimits(4, 2, 8))
    assert sorted(found) == sorted(f"data/s/{name}" for name in names)


def small_pages(store: ObjectStore) -> None:
    """Let the store answer with three keys at once."""
    lister = store._s3().lister  # type: ignore[attr-defined]
    ask = lister.list_objects_v2
    lister.list_objects_v2 = lambda **request: ask(**{"MaxKeys": 3, **request})


@given(st.sampled_from(["", "data/", "data/é/"]), st.lists(st.text("/aé", max_size=4)), st.integers(0, 3))
def test_folders_are_seen_in_names(prefix: str, rests: list[str], skipped: int) -> None:
    names = pa.array([prefix + rest for rest in rests], pa.string())[skipped:]
    assert range_listing._any_in_folder(names, prefix) == any("/" in rest for rest in rests[skipped:])
