"""What a worker deletes of a plan, by the clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from lakefs_gc.engine import deletion
from lakefs_gc.engine.deletion import DELETE, Pacing, delete_objects
from lakefs_gc.engine.still_there import still_there
from lakefs_gc.storage.base import ObjectInfo, ObjectStore, StoreLocation
from lakefs_gc.storage.open import open_store

ADDRESSES = [f"data/slice/{name}" for name in "abc"]


@pytest.fixture
def location(tmp_path: Path) -> StoreLocation:
    location = StoreLocation(tmp_path.as_uri())
    for address in ADDRESSES:
        open_store(location).put(address, b"x")
    return location


def delete(location: StoreLocation, until: float) -> list[int]:
    """One object in a chunk, one chunk at a time; for each whether it was done."""
    now = datetime.now(UTC)
    columns = {"address": ADDRESSES, "size": [1] * 3, "last_modified": [now] * 3, "verdict": [DELETE] * 3}
    plan = pa.RecordBatch.from_pydict(columns)
    work = delete_objects(location, "ledger/", "1", 1, now, False, until, Pacing(1, 0.0))
    return [count for batch in work(iter([plan])) for count in batch["done"].to_pylist()]


def left(location: StoreLocation) -> list[str]:
    return [address for batch in open_store(location).list("data/") for address in batch["address"].to_pylist()]


def asks(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[str]:
    """Let it take so long to ask for what is still there; what was asked for."""
    asked: list[str] = []

    def slowly(store: ObjectStore, addresses: Sequence[str], *, concurrency: int) -> dict[str, ObjectInfo]:
        asked.extend(addresses)
        found = still_there(store, addresses, concurrency=concurrency)
        time.sleep(seconds)
        return found

    monkeypatch.setattr(deletion, "still_there", slowly)
    return asked


def test_all_is_deleted_in_time(location: StoreLocation) -> None:
    assert delete(location, time.time() + 3600) == [1, 1, 1]
    assert left(location) == []


def test_after_the_time_nothing_but_the_first_chunk(location: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asks(monkeypatch, 0)
    assert delete(location, time.time() - 1) == [1, 0, 0]
    assert left(location) == ADDRESSES[1:]
    assert asked == ADDRESSES[:1]


def test_no_delete_after_the_time_although_it_was_asked_for_before(
    location: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asks(monkeypatch, 1.0)
    assert delete(location, time.time() + 1.5) == [1, 0, 0]
    assert left(location) == ADDRESSES[1:]
    assert asked == ADDRESSES[:2], "what is there was asked for in time, and told too late"
