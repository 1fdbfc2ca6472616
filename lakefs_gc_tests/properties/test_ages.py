"""Objects of emulators that are made old, as random histories need them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lakefs_gc.storage.base import DeletionOutcome, ObjectInfo, ObjectStore, VersionedTarget
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.aging_proxy import AgingProxy, aging_azurite, aging_gcs

_HOURS = 48
_KEYS = ["a&b", "data/old", "data/z"]


@pytest.fixture(params=["azure", "gcs"])
def aged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ObjectStore, AgingProxy]]:
    """A store with three objects of this moment, and the proxy before it."""
    location: StoreLocation = request.getfixturevalue(f"{request.param}_namespace")
    before = (
        aging_azurite(request.getfixturevalue("azurite"))
        if request.param == "azure"
        else aging_gcs(request.getfixturevalue("fake_gcs"))
    )
    with before as (proxy, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        store = open_store(location)
        for key in _KEYS:
            store.put(key, b'{"updated": "json"}')
        yield store, proxy


def listed(store: ObjectStore) -> dict[str, datetime]:
    rows = (row for batch in store.list() for row in batch.to_pylist())
    return {row["address"]: row["last_modified"] for row in rows}


def is_old(time: datetime) -> bool:
    return abs(datetime.now(UTC) - timedelta(hours=_HOURS) - time) < timedelta(minutes=1)


def test_an_object_is_old_in_each_answer_until_it_is_written_again(aged: tuple[ObjectStore, AgingProxy]) -> None:
    store, proxy = aged
    for key in _KEYS[:2]:
        proxy.make_old(store, key, _HOURS)
    assert [is_old(time) for time in listed(store).values()] == [True, True, False]
    assert {key: is_old(info.last_modified) for key, info in store.stat_many(_KEYS).items()} == {
        "a&b": True,
        "data/old": True,
        "data/z": False,
    }
    assert store.read("data/old") == b'{"updated": "json"}'
    store.put("data/old", b"again")
    assert not is_old(listed(store)["data/old"])
    assert not is_old(store.stat_many(["data/old"])["data/old"].last_modified)
    assert abs(store.now() - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize("count", [1, 2])
def test_a_delete_by_the_time_that_a_listing_showed(aged: tuple[ObjectStore, AgingProxy], count: int) -> None:
    """Alone and in a batch; an object that was written again is not deleted."""
    store, proxy = aged
    keys = _KEYS[:count]
    for key in keys:
        proxy.make_old(store, key, _HOURS)
    seen = store.stat_many(keys)
    by_time = [_by_time(key, seen[key]) for key in keys]
    store.put(keys[0], b"again")
    outcomes = {answer.key: answer.outcome for answer in store.delete_unchanged(by_time)}
    assert outcomes == {key: DeletionOutcome.DELETED if key != keys[0] else DeletionOutcome.NEWER for key in keys}
    assert set(listed(store)) == {keys[0], *_KEYS[count:]}
    [again] = store.delete_unchanged([_by_time(keys[0], store.stat_many(keys)[keys[0]])])
    assert again.outcome is DeletionOutcome.DELETED


def _by_time(key: str, seen: ObjectInfo) -> VersionedTarget:
    return VersionedTarget(key, replace(seen, e_tag=""), seen.last_modified)
