"""Listing by key ranges on each kind of store: wherever it is cut, each key comes once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc.errors import StorageError
from lakefs_gc.storage.azure.store import AzureStore
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.gcs.store import GCSStore
from lakefs_gc.storage.listing.key_ranges import KeyRange
from lakefs_gc.storage.listing.range_listing import ListingLimits, RangeLister
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.s3.store import S3Store
from lakefs_gc_tests.support.starting_azurite import starting_azurite

_FLAT = ["a.b", "a,b", "b", "b c", "bé", "é", "z", "~", *(f"c{number:03d}" for number in range(40))]
_WITH_FOLDERS = [*_FLAT, "a/x", "a-/y", "d/e/f", "d/g", "zz/1"]
_PAGE = 3


@pytest.fixture(params=["local", "s3", "azure", "gcs"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A fresh namespace whose store answers with three entries at once. Azurite starts at a name by a stand-in."""
    with ExitStack() as stack:
        if request.param == "local":
            location = StoreLocation(f"file://{tmp_path}/namespace")
        else:
            location = request.getfixturevalue(f"{request.param}_namespace")
        if request.param == "azure":
            for name, value in stack.enter_context(starting_azurite(request.getfixturevalue("azurite"))).items():
                monkeypatch.setenv(name, value)
        store = open_store(location)
        small_pages(store)
        yield store


def small_pages(store: ObjectStore) -> None:
    if isinstance(store, S3Store):
        lister = store._s3().lister
        ask = lister.list_objects_v2
        lister.list_objects_v2 = lambda **query: ask(**{"MaxKeys": _PAGE, **query})
    elif isinstance(store, AzureStore | GCSStore):
        every: Any = store._pages
        store._pages = lambda *prefix, **options: every(*prefix, **{"max_results": _PAGE, **options})  # type: ignore[method-assign]


def fill(store: ObjectStore, names: list[str]) -> list[str]:
    for name in names:
        store.put(f"data/s/{name}", b"")
    return sorted(f"data/s/{name}" for name in names)


def list_all(store: ObjectStore, ranges: list[KeyRange], limits: ListingLimits) -> tuple[list[str], int]:
    """Return the keys of all rounds, and the number of ranges that were listed."""
    found: list[str] = []
    listed: set[KeyRange] = set()
    while ranges:
        listed.update(ranges)
        lister = RangeLister(store, ranges, limits)
        found += [key for batch in lister.batches() for key in batch["address"].to_pylist()]
        ranges = [left for left in lister.left_over if left.one_level or left not in listed]
    return sorted(found), len(listed)


@pytest.mark.parametrize("one_level", [False, True])
def test_each_key_once(store: ObjectStore, one_level: bool) -> None:
    keys = fill(store, _WITH_FOLDERS)
    found, _ = list_all(store, [KeyRange("data/s/", one_level=one_level)], ListingLimits(4, 2, 8))
    assert found == keys


def test_a_level_is_cut(store: ObjectStore) -> None:
    """Fake-gcs-server lists a level in order if it has no folders, so there it may be cut like Google's own store."""
    if isinstance(store, GCSStore):
        store.lists_by_page = True
    keys = fill(store, _FLAT)
    found, ranges = list_all(store, [KeyRange("data/s/", one_level=True)], ListingLimits(4, 2, 4))
    assert found == keys
    assert (ranges > 1) is store.lists_by_page


def test_bounds_of_a_range(store: ObjectStore) -> None:
    """The first bound is not a part of the range, the last one is; neither needs to be a key.

    Only stores that list by page are asked for such ranges. Another store lists them completely, or refuses to.
    """
    keys = fill(store, _FLAT)
    choose = random.Random(5)
    bounds = [(choose.choice(keys) + choose.choice(("", "!")), choose.choice(keys)) for _ in range(5)]
    for start, until in [*bounds, ("data/s/c0105", "data/s/c020"), ("data/s/c010", "data/s/c0205")]:
        with refusal_of_a_store_without_order(store):
            found, _ = list_all(store, [KeyRange("data/s/", start, until, one_level=True)], ListingLimits(2))
            assert found == [key for key in keys if start < key <= until], (start, until)


def test_parts_together_are_the_whole(store: ObjectStore) -> None:
    keys = fill(store, _WITH_FOLDERS)
    cuts = ["", "data/s/a.", "data/s/a/", "data/s/c0", "data/s/c0205", "data/s/d/e", "data/s/é", ""]
    parts = [KeyRange("data/s/", start, until, one_level=True) for start, until in pairwise(cuts)]
    with refusal_of_a_store_without_order(store):
        found, _ = list_all(store, parts, ListingLimits(2))
        assert found == keys


def refusal_of_a_store_without_order(store: ObjectStore) -> AbstractContextManager[object]:
    return nullcontext() if store.lists_by_page else suppress(StorageError)


def test_the_first_name_after_a_text(store: ObjectStore) -> None:
    if not store.lists_by_page:
        pytest.skip("for stores that list by page")
    fill(store, _WITH_FOLDERS)
    after = {"a.": "a.b", "b": "b c", "c0205": "c021", "c039": "d", "cz": "d", "é~": None}
    for text, name in after.items():
        found = store.first_name_after("data/s/", f"data/s/{text}")
        assert found == (name and f"data/s/{name}"), text
