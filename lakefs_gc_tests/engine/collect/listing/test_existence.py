"""Checks of the existence of many objects: few requests, and the same facts as from HEAD requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakefs_gc.engine.collect.listing.existence import existing_objects
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.faulty_s3 import FaultyS3


@pytest.fixture
def server() -> Iterator[FaultyS3]:
    with FaultyS3() as server, pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        yield server


@pytest.fixture
def store(server: FaultyS3) -> ObjectStore:
    return open_store(StoreLocation("s3://bucket/ns/"))


def requests(server: FaultyS3) -> Counter[str]:
    counted = Counter(request.operation for request in server.requests)
    server.requests.clear()
    return counted


def fill(server: FaultyS3, *keys: str) -> None:
    for key in keys:
        server.objects[f"ns/{key}"] = b"x" * len(key)


def test_keys_close_together_are_listed(server: FaultyS3, store: ObjectStore) -> None:
    keys = [f"data/s/{number:04}" for number in range(1000)]
    fill(server, *keys, "data/r/x", "data/t/x")
    found = existing_objects(store, keys[100:900], concurrency=4)
    assert list(found) == keys[100:900]
    assert {info.size_bytes for info in found.values()} == {len(keys[0])}
    assert requests(server) == {"ListObjectsV2": 1}
    rows = [row for batch in store.list("data/s/") for row in batch.to_pylist()]
    listed = {row["address"]: row["last_modified"] for row in rows}
    assert {key: info.last_modified for key, info in found.items()} == {key: listed[key] for key in found}


def test_keys_that_no_page_shows_are_requested_one_by_one(server: FaultyS3, store: ObjectStore) -> None:
    keys = [f"data/s/{number:04}" for number in range(40)]
    fill(server, *keys[:30])
    assert existing_objects(store, keys, concurrency=4).keys() == set(keys[:30])
    counted = requests(server)
    # One more listing distinguishes a missing key from a missing bucket.
    assert (counted["ListObjectsV2"], counted["HeadObject"]) == (2, 10)


def test_keys_far_apart_are_not_listed(server: FaultyS3, store: ObjectStore) -> None:
    fill(server, *(f"data/s/{number:05}" for number in range(10_000)))
    few = [f"data/s/{number:05}" for number in range(0, 10_000, 1000)]
    assert existing_objects(store, few, concurrency=4).keys() == set(few)
    assert requests(server) == {"HeadObject": 10}
    sparse = [f"data/s/{number:05}" for number in range(0, 10_000, 200)]
    assert existing_objects(store, sparse, concurrency=4).keys() == set(sparse)
    counted = requests(server)
    assert counted == {"ListObjectsV2": 2, "HeadObject": 40}, "two pages show that the next ones are not worth it"


def test_a_page_with_few_keys_does_not_end_the_listing(server: FaultyS3, store: ObjectStore) -> None:
    fill(server, *(f"data/s/{number:05}" for number in range(5000)))
    keys = [f"data/s/{number:05}" for number in (0, 5, *range(4000, 4500))]
    assert list(existing_objects(store, keys, concurrency=4)) == keys
    assert requests(server) == {"ListObjectsV2": 2}


def test_no_page_is_read_twice(server: FaultyS3, store: ObjectStore) -> None:
    """Names of several lengths: what comes before ``part-10000`` without its last character was read long before."""
    fill(server, *(f"data/s/part-{number}" for number in range(30_000)))
    keys = [f"data/s/part-{number}" for number in (*range(2, 10), *range(30, 50), *range(10_000, 10_030))]
    assert existing_objects(store, sorted(keys), concurrency=4).keys() == set(keys)
    assert requests(server)["ListObjectsV2"] <= 31


def test_a_listing_that_omits_a_key_only_costs_a_request(server: FaultyS3, store: ObjectStore) -> None:
    keys = [f"data/s/{number:04}" for number in range(100)]
    fill(server, *keys)
    page = server.page

    def spoiled(query: dict[str, str]) -> str:
        lost = server.objects.pop(f"ns/{keys[50]}")
        try:
            return page(query)
        finally:
            server.objects[f"ns/{keys[50]}"] = lost

    server.page = spoiled  # type: ignore[method-assign]
    assert existing_objects(store, keys, concurrency=4).keys() == set(keys)
    assert requests(server)["HeadObject"] == 1


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.sets(
        st.builds("".join, st.tuples(st.sampled_from(["", "data/s/", "data/s0/"]), st.text("ab0é😀", min_size=1))),
        min_size=20,
    ),
    data=st.data(),
)
def test_the_facts_are_the_same_as_from_head_requests(
    server: FaultyS3, store: ObjectStore, names: set[str], data: st.DataObject
) -> None:
    there = data.draw(st.sets(st.sampled_from(sorted(names))))
    server.objects.clear()
    fill(server, *there)
    asked = sorted(names, key=str.encode)
    assert existing_objects(store, asked, concurrency=4).keys() == there
