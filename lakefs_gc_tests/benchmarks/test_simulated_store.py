"""The simulated store answers like a sorted list of the same keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lakefs_gc.errors import ObjectNotFoundError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.s3.client import new_clients
from lakefs_gc_tests.benchmarks.simulated_bucket import BUCKET
from lakefs_gc_tests.benchmarks.simulated_keys import KeyShape, SimulatedKeys
from lakefs_gc_tests.benchmarks.simulated_store import SimulatedStore

SHAPE = KeyShape(slices=3, objects_per_slice=1700, at_root=1200, in_one_slice=2500)


@pytest.fixture
def simulated() -> Iterator[SimulatedStore]:
    with SimulatedStore(SHAPE) as store, store.environment():
        yield store


@pytest.fixture
def store(simulated: SimulatedStore) -> ObjectStore:
    return open_store(simulated.location)


def names() -> list[str]:
    keys = SimulatedKeys(SHAPE, "")
    return [keys.key(number).decode() for number in range(len(keys))]


def listed(store: ObjectStore, prefix: str = "", start_after: str = "") -> list[str]:
    return [key for batch in store.list(prefix, start_after=start_after) for key in batch["address"].to_pylist()]


def test_numbers_are_in_the_order_of_the_keys() -> None:
    everything = names()
    assert everything == sorted(everything)
    assert len(set(everything)) == SHAPE.objects == 1200 + 3 * 1700 + 2500
    keys = SimulatedKeys(SHAPE, "ns/")
    assert all(keys.number_of(keys.key(number)) == number for number in range(0, len(keys), 13))
    assert keys.number_of(b"ns/data/g0000000000000000009/" + keys.key(0)[3:]) is None
    assert keys.number_of(b"other") is None


@pytest.mark.parametrize("prefix", ["", "data/", "data/h", "data/g0000000000000000001/", "c", "none/"])
def test_a_listing_returns_the_existing_keys(store: ObjectStore, prefix: str) -> None:
    everything = [name for name in names() if name.startswith(prefix)]
    assert listed(store, prefix) == everything
    for after in ("data/g0000000000000000001/c0000000000000000999", "zzz", everything[7] if everything else "c1"):
        assert listed(store, prefix, after) == [name for name in everything if name > after]


def test_a_listing_of_one_level_returns_keys_and_prefixes(store: ObjectStore) -> None:
    sub_prefixes, objects = store.list_level()
    assert (sub_prefixes, objects["address"].to_pylist()) == (["data/"], names()[:1200])
    slices = [f"data/g{number:019d}/" for number in range(3)] + ["data/h" + "0" * 19 + "/"]
    assert store.list_level("data/")[0] == slices


def test_pages_have_the_requested_size(simulated: SimulatedStore) -> None:
    client: Any = new_clients()[1]
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket=BUCKET, Prefix="namespace/", Delimiter="/", PaginationConfig={"PageSize": 500}
    )
    sizes = [(len(page.get("Contents", [])), len(page.get("CommonPrefixes", []))) for page in pages]
    assert sizes == [(500, 0), (500, 0), (200, 1)]
    first = client.list_objects_v2(Bucket=BUCKET, Prefix="namespace/data/", MaxKeys=1)
    assert (first["KeyCount"], first["IsTruncated"]) == (1, True)
    assert first["Contents"][0]["Size"] == 1000


def test_written_keys_are_listed_in_order(store: ObjectStore) -> None:
    keys = ["_lakefs/retention/x", "data/g0000000000000000001/c0000000000000000500", "data/h/ü b%20", "zz"]
    for key in keys:
        store.put(key, key.encode())
    assert listed(store) == sorted([*names(), *keys])
    assert store.list_level()[0] == ["_lakefs/", "data/"]
    assert store.read("data/h/ü b%20") == "data/h/ü b%20".encode()
    assert listed(store, "_lakefs/") == ["_lakefs/retention/x"]


def test_deleted_keys_are_not_listed(simulated: SimulatedStore, store: ObjectStore) -> None:
    gone = names()[1100:3500] + names()[-1000:]
    store.put("new", b"")
    deletions = store.delete_many([*gone, "new", "never-there"])
    assert [deletion.error for deletion in deletions] == [""] * (len(gone) + 2)
    assert simulated.stats().deleted == len(gone)
    left = sorted(set(names()) - set(gone))
    assert listed(store) == left
    assert set(store.stat_many([gone[0], left[0], "new"])) == {left[0]}
    with pytest.raises(ObjectNotFoundError):
        store.read(gone[0])


def test_list_head_and_get_report_the_same_size(store: ObjectStore) -> None:
    name = names()[3000]
    (row,) = [row for batch in store.list(name) for row in batch.to_pylist()]
    info = store.stat_many([name])[name]
    assert len(store.read(name)) == info.size_bytes == row["size"] == 1000 + 3000 - 1200 - 1700
    assert info.last_modified == row["last_modified"]


def test_requests_are_throttled_and_counted() -> None:
    shape = KeyShape(slices=30, objects_per_slice=2)
    with SimulatedStore(shape, requests_per_second=20) as simulated, simulated.environment():
        store = open_store(simulated.location)
        store.list_level("data/")
        everything = sum(len(listed(store, f"data/g{number:019d}/")) for number in range(40))
        assert everything == 60
        stats = simulated.stats()
    assert stats.requests["ListObjectsV2"] == 41
    assert stats.requests["SlowDown"] > 0
    assert stats.cpu_seconds > 0
