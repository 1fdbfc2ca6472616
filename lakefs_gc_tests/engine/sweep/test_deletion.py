"""What a worker deletes of a plan, by the clock."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakefs_gc.engine.collect.listing.existence import existing_objects
from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.restore_log import is_stopped
from lakefs_gc.engine.spark.witness import Witness
from lakefs_gc.engine.spark.workers import WorkerError
from lakefs_gc.engine.sweep import deletion
from lakefs_gc.engine.sweep.deletion import DELETE, DeleteTask, Pacing, delete_objects, delete_objects_here
from lakefs_gc.engine.sweep.store_clock import Deadline
from lakefs_gc.storage.base import Deletion, ObjectInfo, ObjectStore, ObjectVersions, VersionedTarget
from lakefs_gc.storage.delete_window import DELETE_DEADLINE_SECONDS, NOT_TRIED, DeleteWindow
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

MARK = "_lakefs/mark.json"
WITNESS = "_lakefs/passes/1"
ADDRESSES = [f"data/slice/{name}" for name in "abc"]


@pytest.fixture
def location(tmp_path: Path) -> StoreLocation:
    location = StoreLocation(tmp_path.as_uri())
    for address in ADDRESSES:
        open_store(location).put(address, b"x")
    open_store(location).put(MARK, b"{}")
    open_store(location).put(WITNESS, b"of this look")
    return location


def delete(
    location: StoreLocation,
    until: float,
    verdict: str = DELETE,
    begun: bool = False,
    versions: bool = False,
    marked_at: Sequence[datetime] = (),
    stopped: threading.Event | None = None,
) -> list[int]:
    """One object in a chunk, one chunk at a time; for each whether it was done.  ``until`` is by the store's clock.

    With ``stopped``, as in the process of a small sweep.
    """
    now = datetime.now(UTC)
    stored = open_store(location).stat_many(ADDRESSES)
    columns = {
        "address": ADDRESSES,
        "size": [1] * 3,
        "last_modified": marked_at or [stored[key].last_modified if key in stored else now for key in ADDRESSES],
        "verdict": [verdict] * 3,
        "begun": [begun] * 3,
    }
    plan = pa.RecordBatch.from_pydict(columns)
    task = DeleteTask(
        store=location,
        mark_file=MARK,
        ledger_folder="ledger/",
        sequence="1",
        objects_per_request=1,
        cutoff=now,
        delete_versions=versions,
        deadline=Deadline(0.0, until),
        pacing=Pacing(1, 0.0),
        restores_folder="restores/",
        witness=Witness(location, WITNESS, b"of this look"),
    )
    work = delete_objects(task) if stopped is None else delete_objects_here(task, stopped)
    return [count for batch in work(iter([plan])) for count in batch["done"].to_pylist()]


def left(location: StoreLocation) -> list[str]:
    return sorted(address for batch in open_store(location).list("data/") for address in batch["address"].to_pylist())


def records(location: StoreLocation) -> list[str]:
    """The files of the ledger."""
    return [key for batch in open_store(location).list("ledger/") for key in batch["address"].to_pylist()]


def recorded(location: StoreLocation) -> list[tuple[str, str, str]]:
    """Address, outcome and error of each record that is no intent."""
    store = open_store(location)
    rows = [row for key in records(location) for row in ledger.read_records(key, store.read(key)).to_pylist()]
    return sorted((r["address"], r["outcome"], r["error"]) for r in rows if r["outcome"] != ledger.INTENT)


def goes_by(monkeypatch: pytest.MonkeyPatch, clock: str) -> Callable[[float], None]:
    """Sets a clock of this machine forward (``time`` or ``monotonic``), as time would that goes by."""
    real, seconds = getattr(time, clock), [0.0]
    monkeypatch.setattr(time, clock, lambda: real() + sum(seconds))
    return seconds.append


def asks(monkeypatch: pytest.MonkeyPatch, seconds: float, clock: str = "time") -> list[str]:
    """Let it take so long to ask for what is still there; what was asked for."""
    asked: list[str] = []
    go_by = goes_by(monkeypatch, clock)

    def slowly(store: ObjectStore, addresses: Sequence[str], *, concurrency: int) -> dict[str, ObjectInfo]:
        asked.extend(addresses)
        found = existing_objects(store, addresses, concurrency=concurrency)
        go_by(seconds)
        return found

    monkeypatch.setattr(deletion, "existing_objects", slowly)
    return asked


@pytest.mark.parametrize("verdict", [DELETE, ledger.RESURRECTED])
def test_an_object_that_is_gone_with_the_mark_itself_is_not_gone(
    location: StoreLocation, tmp_path: Path, verdict: str
) -> None:
    """The folder was unmounted when the deletes had found their witness, and its mount point has no other file."""
    aside = tmp_path.with_name(f"{tmp_path.name}-aside")
    tmp_path.rename(aside)
    tmp_path.mkdir()
    open_store(location).put(WITNESS, b"of this look")
    with pytest.raises(WorkerError, match="does not show _lakefs"):
        delete(location, time.time() + 3600, verdict)
    assert records(location) == []
    assert left(StoreLocation(aside.as_uri())) == ADDRESSES
    (tmp_path / MARK).touch()
    assert delete(location, time.time() + 3600) == [1, 1, 1], "gone without doubt"


def test_all_is_deleted_in_time(location: StoreLocation) -> None:
    assert delete(location, time.time() + 3600) == [1, 1, 1]
    assert left(location) == []


@pytest.mark.parametrize(("content", "seconds"), [(b"larger", 0), (b"y", 5)])
def test_an_object_that_was_written_again_is_kept_although_it_looks_old(
    location: StoreLocation, tmp_path: Path, content: bytes, seconds: float
) -> None:
    """The time of an upload in parts is its start, and the clock of one machine of a store may be behind."""
    marked = open_store(location).stat_many(ADDRESSES)
    marked_at = [marked[key].last_modified for key in ADDRESSES]
    (tmp_path / ADDRESSES[0]).write_bytes(content)
    os.utime(tmp_path / ADDRESSES[0], (marked_at[0].timestamp() - seconds,) * 2)
    assert delete(location, time.time() + 3600, marked_at=marked_at) == [1, 1, 1]
    assert left(location) == ADDRESSES[:1]
    assert recorded(location)[0] == (ADDRESSES[0], ledger.RESURRECTED, "written again since the mark")


def test_nothing_after_the_time(location: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    """No chunk is exempt: a task that had to wait for its executor begins late."""
    asked = asks(monkeypatch, 0)
    assert delete(location, time.time() - 1) == [0, 0, 0]
    assert left(location) == ADDRESSES
    assert asked == []


@pytest.mark.parametrize("hours", [-5, 5])
def test_the_clock_of_the_executor_does_not_matter(
    location: StoreLocation, monkeypatch: pytest.MonkeyPatch, hours: float
) -> None:
    """Neither where it is behind, and would delete on an old look, nor where it is ahead."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + hours * 3600)
    assert delete(location, real() - 60) == [0, 0, 0]
    assert left(location) == ADDRESSES
    assert delete(location, real() + 60) == [1, 1, 1]


@pytest.mark.parametrize("clock", ["time", "monotonic"])
def test_no_delete_after_the_time_although_it_was_asked_for_before(
    location: StoreLocation, monkeypatch: pytest.MonkeyPatch, clock: str
) -> None:
    """Either clock tells: one may be set back meanwhile, the other stands still while a machine sleeps."""
    until = time.time() + 3600
    asked = asks(monkeypatch, 2400, clock)
    assert delete(location, until) == [1, 0, 0]
    assert left(location) == ADDRESSES[1:]
    assert asked == ADDRESSES[:2], "what is there was asked for in time, and told too late"


def test_no_delete_after_the_time_although_its_intent_was_begun_before(
    location: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = time.time() + 60
    write, go_by = ledger.ChunkWriter.intent, goes_by(monkeypatch, "time")

    def slowly(writer: ledger.ChunkWriter, records: pa.RecordBatch) -> None:
        write(writer, records)
        go_by(40)

    monkeypatch.setattr(ledger.ChunkWriter, "intent", slowly)
    assert delete(location, until) == [1, 0, 0]
    assert left(location) == ADDRESSES[1:]


@pytest.mark.parametrize("note", ["20260701T120000000000.json", "1.stop"])
def test_no_chunk_after_one_that_was_stopped_writes_an_intent(
    location: StoreLocation, monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    """A restore waits for intents, and each would cost it minutes."""
    write, written = ledger.ChunkWriter.intent, []

    def stop(writer: ledger.ChunkWriter, records: pa.RecordBatch) -> None:
        write(writer, records)
        written.append(records["address"].to_pylist())
        if len(written) == 2:
            open_store(location).put(f"restores/{note}", b"{}")

    monkeypatch.setattr(ledger.ChunkWriter, "intent", stop)
    assert delete(location, time.time() + 3600) == [1, 0, 0]
    assert left(location) == ADDRESSES[1:]
    assert len(written) == 2


def test_no_chunk_begins_after_the_process_of_the_run_was_told_to_stop(
    location: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not ask the store, which may not have taken the message."""
    write, stopped, written = ledger.ChunkWriter.intent, threading.Event(), []

    def stop(writer: ledger.ChunkWriter, records: pa.RecordBatch) -> None:
        write(writer, records)
        written.append(records["address"].to_pylist())
        if len(written) == 2:
            stopped.set()

    def ask(*arguments: Any) -> bool:
        assert not stopped.is_set()
        return is_stopped(*arguments)

    monkeypatch.setattr(ledger.ChunkWriter, "intent", stop)
    monkeypatch.setattr(deletion, "is_stopped", ask)
    assert delete(location, time.time() + 3600, stopped=stopped) == [1, 0, 0]
    assert left(location) == ADDRESSES[1:]
    assert len(written) == 2


def test_what_no_try_began_for_in_time_has_failed(location: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time counts from before the intent is written; what failed is tried by the next sweep."""
    write, go_by = ledger.ChunkWriter.intent, goes_by(monkeypatch, "monotonic")

    def slowly(writer: ledger.ChunkWriter, records: pa.RecordBatch) -> None:
        write(writer, records)
        go_by(DELETE_DEADLINE_SECONDS)

    with monkeypatch.context() as patched:
        patched.setattr(ledger.ChunkWriter, "intent", slowly)
        assert delete(location, time.time() + 36_000) == [1, 1, 1]
    assert left(location) == ADDRESSES
    assert recorded(location) == [(address, ledger.FAILED, NOT_TRIED) for address in ADDRESSES]
    assert delete(location, time.time() + 36_000) == [1, 1, 1]
    assert left(location) == []


def test_the_listings_of_versions_take_none_of_the_time_of_deletes(
    location: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a ceiling on requests they may take longer than that."""
    find, go_by = LocalStore.find_versions, goes_by(monkeypatch, "monotonic")

    def slowly(store: LocalStore, doomed: Sequence[VersionedTarget]) -> list[ObjectVersions]:
        go_by(2 * DELETE_DEADLINE_SECONDS)
        return find(store, doomed)

    monkeypatch.setattr(LocalStore, "find_versions", slowly)
    assert delete(location, time.time() + 36_000, versions=True) == [1, 1, 1]
    assert left(location) == []


def test_a_restore_sees_deletes_of_versions_of_what_is_gone(location: StoreLocation) -> None:
    """There is nothing to name in the intent; a version without an id of its own may come back under the same name."""
    open_store(location).delete_many(ADDRESSES)
    assert delete(location, time.time() + 3600, versions=True) == [1, 1, 1]
    assert len(list(filter(ledger.is_intent, records(location)))) == 3
    assert recorded(location) == [(address, ledger.ALREADY_GONE, "") for address in ADDRESSES]


@pytest.mark.parametrize("versions", [False, True])
def test_a_try_without_an_answer_is_in_the_ledger(
    location: StoreLocation, monkeypatch: pytest.MonkeyPatch, versions: bool
) -> None:
    delete_many = LocalStore.delete_many

    def lose(store: LocalStore, keys: Sequence[str], window: DeleteWindow | None = None) -> list[Deletion]:
        if window and ADDRESSES[1] in keys:
            window.unanswered = True  # and the next try has succeeded
        return delete_many(store, keys, window)

    monkeypatch.setattr(LocalStore, "delete_many", lose)
    assert delete(location, time.time() + 3600, versions=versions) == [1, 1, 1]
    assert left(location) == []
    intents = sorted(filter(ledger.is_intent, records(location)))
    ends = [end for intent in intents for end in (ledger.outcome_of(intent), ledger.unanswered_of(intent))]
    assert [end in records(location) for end in ends] == [True, False, False, True, True, False]
    assert recorded(location) == [(address, ledger.DELETED, "") for address in ADDRESSES]


@pytest.mark.parametrize("versions", [False, True])
@pytest.mark.parametrize(
    ("verdict", "begun", "of_gone"),
    [
        (ledger.RESURRECTED, True, ledger.DELETED),
        (ledger.RESURRECTED, False, ledger.ALREADY_GONE),
        (ledger.NOT_BACKED_UP, True, ledger.DELETED),
    ],
)
def test_what_is_to_be_kept_and_is_gone_is_not_counted_as_kept(
    location: StoreLocation, verdict: str, begun: bool, of_gone: str, versions: bool
) -> None:
    """A sweep that was killed has deleted it, or somebody else has; what exists is kept whatever was begun."""
    store = open_store(location)
    store.delete_many(ADDRESSES[:1])
    assert delete(location, time.time() + 3600, verdict, begun, versions) == [1, 1, 1]
    assert left(location) == ADDRESSES[1:]
    files = [key for batch in store.list("ledger/") for key in batch["address"].to_pylist()]
    rows = [row for key in files for row in ledger.read_records(key, store.read(key)).to_pylist()]
    assert {row["address"]: row["outcome"] for row in rows} == {
        ADDRESSES[0]: of_gone,
        **dict.fromkeys(ADDRESSES[1:], verdict),
    }
    assert all(row["size"] == 1 for row in rows)


def test_an_object_without_a_known_verdict_is_not_deleted(location: StoreLocation) -> None:
    with pytest.raises(WorkerError, match="has the verdict 'deletf'"):
        delete(location, time.time() + 3600, "deletf", False, False)
    assert left(location) == ADDRESSES
