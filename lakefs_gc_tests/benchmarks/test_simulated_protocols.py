"""The simulated stores of Azure and Google answer as the contract of all stores demands."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lakefs_gc.storage.base import DeletionOutcome, ObjectInfo, ObjectStore, VersionedTarget
from lakefs_gc.storage.listing.key_ranges import KeyRange
from lakefs_gc.storage.listing.range_listing import ListingLimits, RangeLister
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.benchmarks.simulated_keys import KeyShape, SimulatedKeys
from lakefs_gc_tests.benchmarks.simulated_store import SimulatedStore

_SHAPE = KeyShape(slices=3, objects_per_slice=2500, at_root=7)
KEYS = [SimulatedKeys(_SHAPE, "").key(number).decode() for number in range(_SHAPE.objects)]


@pytest.fixture(params=["azure", "gcs"])
def simulated(request: pytest.FixtureRequest) -> Iterator[SimulatedStore]:
    with SimulatedStore(_SHAPE, protocol=request.param) as simulated, simulated.environment():
        yield simulated


def keys_of(store: ObjectStore, prefix: str = "", start_after: str = "") -> list[str]:
    return [key for batch in store.list(prefix, start_after=start_after) for key in batch["address"].to_pylist()]


def test_listings(simulated: SimulatedStore) -> None:
    store = open_store(simulated.location)
    assert keys_of(store) == KEYS
    assert keys_of(store, start_after=KEYS[4000]) == KEYS[4001:]
    slices, objects = store.list_level("")
    assert (slices, objects.num_rows) == (["data/"], 7)
    ranges = [KeyRange(name) for name in store.list_level("data/")[0]]
    listed = RangeLister(store, ranges, ListingLimits(4, cut_after_pages=2)).batches()
    assert sorted(key for batch in listed for key in batch["address"].to_pylist()) == KEYS[7:]


def test_objects(simulated: SimulatedStore) -> None:
    store = open_store(simulated.location)
    content = os.urandom(1000)
    store.put("data/written é", content)
    assert store.read("data/written é") == content
    seen = store.stat_many(["data/written é", KEYS[5], "data/none"])
    assert {key: info.size_bytes for key, info in seen.items()} == {"data/written é": 1000, KEYS[5]: 1005}
    written = seen[KEYS[5]].last_modified
    targets = [VersionedTarget(key, ObjectInfo(1, written, ""), written) for key in KEYS[:300]]
    answers = [*store.delete_many(["data/written é", "data/none"]), *store.delete_unchanged(targets)]
    assert {answer.outcome for answer in answers} == {DeletionOutcome.DELETED}
    assert keys_of(store) == KEYS[300:]
    requests = simulated.stats().requests
    assert requests["Batch"] >= 3
    assert requests.get("Delete", 0) <= 2
