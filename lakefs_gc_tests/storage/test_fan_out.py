"""Listing many prefixes at once: whole, bounded, and over at once on an error."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakefs_gc.errors import StorageError
from lakefs_gc.storage import fan_out
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.fan_out import list_concurrently
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation


class CountingStore(LocalStore):
    """A local store that counts its listings, and whose listing of ``data/bad/`` fails."""

    def __init__(self, folder: Path) -> None:
        super().__init__(StoreLocation(f"file://{folder}"))
        self.listed: list[str] = []

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[pa.RecordBatch]:
        self.listed.append(prefix)
        if prefix == "data/bad/":
            raise StorageError("told by the test")
        return super().list(prefix, start_after=start_after)


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    store = CountingStore(tmp_path)
    for number in range(40):
        for name in "abc":
            store.put(f"data/{number:02d}/{name}", b"x")
    return store


PREFIXES = [f"data/{number:02d}/" for number in range(40)]


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("store")]


def wait_for_end_of_threads() -> None:
    deadline = time.monotonic() + 5
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() == []


def test_everything_once_and_merged(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "BATCH_ROWS", 50)
    batches = list(list_concurrently(store, PREFIXES, 7))
    assert [batch.num_rows for batch in batches] == [51, 51, 18]
    keys = [key for batch in batches for key in batch["address"].to_pylist()]
    assert sorted(keys) == sorted(f"{prefix}{name}" for prefix in PREFIXES for name in "abc")
    wait_for_end_of_threads()


def test_nothing_to_list(store: CountingStore) -> None:
    assert list(list_concurrently(store, [], 4)) == []
    assert list(list_concurrently(store, ["none/"], 4)) == []


def test_an_error_is_raised_and_ends_the_rest(store: CountingStore) -> None:
    endless = iter(["data/00/", "data/bad/"] + ["data/01/"] * 1_000_000)
    with pytest.raises(StorageError, match="told by the test"):
        list(list_concurrently(store, endless, 4))
    wait_for_end_of_threads()
    assert len(store.listed) < 10_000


def test_an_error_of_the_prefixes_is_raised(store: CountingStore) -> None:
    def prefixes() -> Iterator[str]:
        yield "data/00/"
        raise ValueError("no more prefixes")

    with pytest.raises(ValueError, match="no more prefixes"):
        list(list_concurrently(store, prefixes(), 4))
    wait_for_end_of_threads()


def test_threads_end_when_the_iterator_is_closed(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "BATCH_ROWS", 1)
    batches = list_concurrently(store, iter(PREFIXES * 1000), 4)
    next(batches)
    time.sleep(0.2)  # the queue is full by now, and the threads wait
    taken = len(store.listed)
    assert taken <= 1 + 2 * 4 + 2 * 4, "more prefixes were listed than the queue and the threads hold"
    batches.close()  # type: ignore[attr-defined]
    wait_for_end_of_threads()
    assert len(store.listed) <= taken + 4


def test_calls_in_flight_are_bounded() -> None:
    running = 0
    most = 0
    lock = threading.Lock()

    def work(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1
        return number * 2

    assert sorted(map_unordered(work, range(50), 5)) == [(number, number * 2) for number in range(50)]
    assert most == 5
    wait_for_end_of_threads()


def test_calls_go_on_while_the_caller_is_at_work() -> None:
    """Calls that end together must not leave the store idle until the caller has been through all of them."""
    together = threading.Barrier(4)
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        if number < 4:
            together.wait(10)
        return number

    results = map_unordered(work, range(100), 4)
    for taken in range(1, 40):
        next(results)
        deadline = time.monotonic() + 10
        while len(begun) < taken + 4 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert len(begun) == taken + 4, "one more for each that was taken, and no more than that"
    results.close()
    wait_for_end_of_threads()


def test_the_first_error_of_a_call_is_raised_at_once() -> None:
    def work(number: int) -> int:
        if number == 3:
            raise StorageError("three")
        return number

    begun = []

    def numbers() -> Iterator[int]:
        for number in range(1000):
            begun.append(number)
            yield number

    with pytest.raises(StorageError, match="three"):
        list(map_unordered(work, numbers(), 2))
    assert len(begun) < 10
    wait_for_end_of_threads()
