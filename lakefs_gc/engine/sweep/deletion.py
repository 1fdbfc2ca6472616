"""The deletes themselves, in Spark's workers, chunk by chunk.

See what is there, write the intent, delete in bulk, write the outcome that the store answered for each key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

import pyarrow as pa
from pyspark import TaskContext

from lakefs_gc.engine.collect.listing.existence import still_there
from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.restore_log import notes_in
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.storage.base import DeletionOutcome, ObjectInfo, ObjectStore, VersionedTarget
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.delete_window import DeleteWindow
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.pace import Pace

PLAN = "address string, size long, last_modified timestamp, verdict string, begun boolean"
"""Columns of a plan.  ``verdict`` is ``DELETE``, ``ledger.RESURRECTED`` or ``ledger.NOT_BACKED_UP``.

``begun``: an earlier attempt said that it would delete the object, and not how that ended.
"""
DELETE = "delete"
PROGRESS = "done long, left long"

_NOT_DELETED = {
    DeletionOutcome.FAILED: ledger.FAILED,
    DeletionOutcome.LOCKED: ledger.LOCKED,
    DeletionOutcome.NEWER: ledger.RESURRECTED,
}
# HEAD, GET and a store's clock tell whole seconds where a listing tells milliseconds.
_CLOCK_GRAIN = timedelta(seconds=1)
_CONNECTIONS = 64


@dataclass(frozen=True)
class Pacing:
    """How fast one worker deletes: chunks at once, at most, and requests in a second (0: no ceiling)."""

    chunks_at_once: int
    requests_per_second: float


@worker
def delete_objects(
    batches: Batches,
    store: StoreLocation,
    folder: str,
    sequence: str,
    objects_per_request: int,
    cutoff: datetime,
    delete_versions: bool,
    until: float,
    pacing: Pacing,
    restores: str,
    known_restores: frozenset[str] = frozenset(),
) -> Batches:
    """Delete the objects of a plan: a row of the answer is a chunk, ``done`` or ``left`` of its objects.

    ``sequence`` names this pass.  ``until`` is the time on the store's clock (seconds since 1970) after which no bulk
    delete is begun, of any chunk: what this machine's clock says does not matter, nor how long the task has waited.
    One that has begun is gone through with while its ``DeleteWindow`` is open: what the store is asked again is
    included.
    Nor is one begun once the folder ``restores`` has a note that is not in ``known_restores``.
    Several chunks are under way at once, more while that is quicker, fewer when the store says SlowDown.
    """
    namespace = worker_store(store)
    namespace.limit_requests(pacing.requests_per_second)
    pace = _pace(store, pacing.chunks_at_once)
    context = TaskContext.get()
    writer = ledger.LedgerWriter(namespace, folder, context.partitionId() if context else 0, sequence)
    # Spark tries a task again when its executor is lost: what the first try has deleted is not found gone by chance.
    begun = writer.begun()
    clock = _StoreClock(namespace)

    def is_late() -> bool:
        return clock.latest() > until

    def is_over() -> bool:
        return is_late() or bool(notes_in(namespace, restores).keys() - known_restores)

    def delete(numbered: tuple[int, list[_Planned]]) -> bool:
        number, chunk = numbered
        with pace.request() as done:
            if is_late():
                return False
            # Also what is to be kept: what an earlier attempt deleted must not be counted as kept.
            asked = [planned.address for planned in chunk]
            there = still_there(namespace, asked, concurrency=max(1, _CONNECTIONS // pace.limit))
            # Asking takes long where the store is slow, or requests are limited.
            if is_late() or not _delete_chunk(
                namespace, writer.chunk(number), chunk, there, cutoff, begun, delete_versions, is_over
            ):
                return False
            done(len(chunk), namespace.slow_downs)
        return True

    chunks = enumerate(_chunks(batches, objects_per_request))
    for (_, chunk), is_done in map_unordered(delete, chunks, pacing.chunks_at_once, wait_for_all=True):
        yield pa.record_batch({"done": [len(chunk) * is_done], "left": [len(chunk) * (not is_done)]})


class _StoreClock:
    """The store's clock, asked once: executors' own clocks may be wrong, each in its way."""

    def __init__(self, store: ObjectStore) -> None:
        self._time, self._steady = time.time(), time.monotonic()
        self._asked = (store.now() + _CLOCK_GRAIN).timestamp()

    def latest(self) -> float:
        """Seconds since 1970 on the store's clock, rather too many than too few."""
        # The one may be set back meanwhile, the other stands still while a machine sleeps.
        return self._asked + max(time.time() - self._time, time.monotonic() - self._steady)


@lru_cache(maxsize=32)
def _pace(store: StoreLocation, chunks_at_once: int) -> Pace:
    """One for each store in a worker: what was learnt holds for its next task."""
    return Pace(chunks_at_once)


@dataclass(frozen=True)
class _Planned:
    address: str
    size: int | None
    last_modified: datetime | None
    verdict: str
    begun: bool


def _chunks(batches: Batches, rows: int) -> Iterator[list[_Planned]]:
    chunk: list[_Planned] = []
    for batch in batches:
        for row in batch.to_pylist():
            chunk.append(_Planned(**row))
            if len(chunk) == rows:
                yield chunk
                chunk = []
    if chunk:
        yield chunk


def _delete_chunk(
    store: ObjectStore,
    writer: ledger.ChunkWriter,
    chunk: list[_Planned],
    there: dict[str, ObjectInfo],
    cutoff: datetime,
    begun: set[str],
    delete_versions: bool,
    is_over: Callable[[], bool],
) -> bool:
    """False, and nothing is deleted, when it is over once the intent is written: that too may take long."""
    records: list[tuple[str, int | None, str, str]] = []
    expected: dict[str, tuple[int | None, str]] = {}  # size, and what it will be when it is gone
    doomed: list[VersionedTarget] = []
    for planned in chunk:
        info = there.get(planned.address)
        newest = (planned.last_modified or cutoff) + _CLOCK_GRAIN
        ours = planned.begun or planned.address in begun
        is_kept = planned.verdict in (ledger.RESURRECTED, ledger.NOT_BACKED_UP)
        if info is None and is_kept and (ours or planned.verdict == ledger.RESURRECTED):
            # A look takes what is gone for referenced where it cannot tell the content.
            records.append((planned.address, planned.size, ledger.DELETED if ours else ledger.ALREADY_GONE, ""))
        elif planned.verdict == ledger.RESURRECTED:
            records.append((planned.address, planned.size, ledger.RESURRECTED, "referenced again since the mark"))
        elif planned.verdict == ledger.NOT_BACKED_UP and (info is not None or delete_versions):
            error = "the backup has no copy of it: it was gone then; its versions are kept"
            records.append((planned.address, planned.size, ledger.NOT_BACKED_UP, error))
        elif info is None:
            outcome = ledger.DELETED if ours else ledger.ALREADY_GONE
            if delete_versions:  # its versions may still be there
                expected[planned.address] = (planned.size, outcome)
                doomed.append(VersionedTarget(planned.address, None, newest))
            else:
                records.append((planned.address, planned.size, outcome, ""))
        elif info.last_modified > newest:
            records.append((planned.address, planned.size, ledger.RESURRECTED, "written again since the mark"))
        else:
            expected[planned.address] = (info.size_bytes, ledger.DELETED)
            doomed.append(VersionedTarget(planned.address, info, newest))
    # Listings take long, and need not be done in the time that deletes have.
    found = store.find_versions(doomed) if delete_versions else []
    window = DeleteWindow()  # before the intent: a restore counts from when the store has got that
    if doomed:
        writer.intent(_records([(one.key, one.seen.size_bytes, ledger.INTENT, "") for one in doomed if one.seen]))
    if is_over():
        return False
    if delete_versions:
        deletions = store.delete_versions(found, window)
    else:
        deletions = store.delete_many([one.key for one in doomed], window)
    for deletion in deletions:
        size, outcome = expected[deletion.key]
        records.append((deletion.key, size, _NOT_DELETED.get(deletion.outcome, outcome), deletion.error))
    writer.outcome(_records(records), answered=not window.unanswered)
    return True


def _records(rows: list[tuple[str, int | None, str, str]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(ledger.RECORD.names, row, strict=True)) for row in rows], schema=ledger.RECORD
    )
