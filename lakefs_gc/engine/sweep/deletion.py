"""The deletes of a sweep, in Spark's workers, chunk by chunk (rules 6, 9 and 12).

For each chunk a worker asks the store which objects exist, writes the intent to the ledger, deletes in bulk, and writes
the outcome that the store answered for each key. It stops when the second look is too old, when a restore has begun,
and when the sweep has failed or was canceled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache

import pyarrow as pa
from pyspark import TaskContext

from lakefs_gc.engine.collect.listing.existence import existing_objects
from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.restore_log import is_stopped
from lakefs_gc.engine.spark.witness import Witness, refuse_replica
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.engine.sweep.store_clock import CLOCK_GRAIN, Deadline, StoreClock
from lakefs_gc.errors import CorruptFileError, LakeFSGCError, StorageError
from lakefs_gc.storage.base import DeletionOutcome, ObjectInfo, ObjectStore, VersionedTarget
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.delete_window import DeleteWindow
from lakefs_gc.storage.endpoints import refuse_move
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.pace import Pace

PLAN = "address string, size long, last_modified timestamp, verdict string, begun boolean"
"""Columns of a plan. ``verdict`` is ``DELETE``, ``ledger.RESURRECTED`` or ``ledger.NOT_BACKED_UP``.

``begun``: an earlier attempt recorded the intent to delete the object, but no outcome.
"""
DELETE = "delete"
PROGRESS = "done long, left long"
"""Columns of what ``delete_objects`` returns: objects whose outcome is recorded, and objects that remain."""

_NOT_DELETED = {
    DeletionOutcome.FAILED: ledger.FAILED,
    DeletionOutcome.LOCKED: ledger.LOCKED,
    DeletionOutcome.NEWER: ledger.RESURRECTED,
}
CONNECTIONS = 64


@dataclass(frozen=True)
class Pacing:
    """How fast one worker deletes: the most chunks at once, and the most requests per second (0: no limit)."""

    chunks_at_once: int
    requests_per_second: float


@dataclass(frozen=True)
class DeleteTask:
    """What the workers need beside the plan, for one pass of a sweep.

    ``ledger_folder`` and ``restores_folder`` are folders of the mark, and ``mark_file`` is a file of it;
    ``sequence`` names this pass in the ledger.
    ``cutoff`` (the mark's) stands in for the time of an object whose time the mark does not record. After ``deadline``
    no worker begins a bulk delete, nor once ``restores_folder`` has a note of a restore that is not in
    ``known_restores``, or the stop of this pass.
    Nothing is deleted in a store that lacks the ``witness``.
    """

    store: StoreLocation
    mark_file: str
    ledger_folder: str
    sequence: str
    objects_per_request: int
    cutoff: datetime
    delete_versions: bool
    deadline: Deadline
    pacing: Pacing
    restores_folder: str
    witness: Witness
    known_restores: frozenset[str] = frozenset()


@worker
def delete_objects(batches: Batches, task: DeleteTask) -> Batches:
    """Delete the objects of a plan (columns ``PLAN``). Yields a row for each chunk. Columns: ``PROGRESS``."""
    namespace = worker_store(task.store)
    namespace.limit_requests(task.pacing.requests_per_second)  # which may make a new client
    refuse_move()
    yield from _delete(batches, task, namespace, _pace(task.store, task.pacing.chunks_at_once), threading.Event())


@worker
def delete_objects_here(batches: Batches, task: DeleteTask, stopped: threading.Event) -> Batches:
    """Delete like ``delete_objects``, in a process that goes on. Begins no more deletes once ``stopped`` is set.

    With a client of its own: the limit of requests is one of this pass, and so are requests that hang.
    """
    namespace = open_store(task.store)
    namespace.limit_requests(task.pacing.requests_per_second)  # which may make a new client
    refuse_move()
    of_look = worker_store(task.store)
    refuse_replica(task.witness, namespace, of_look)
    yield from _delete(batches, task, namespace, Pace(task.pacing.chunks_at_once), stopped)


def _delete(
    batches: Batches, task: DeleteTask, namespace: ObjectStore, pace: Pace, stopped: threading.Event
) -> Batches:
    """Delete the objects of a plan. The chunks after one that was stopped write no intents, and set ``stopped``.

    The deadline is read on the store's clock, so neither this machine's clock nor the time that the Spark task waited
    matters. A bulk delete that has begun is completed, with its retries, while its ``DeleteWindow`` is open. Several
    chunks are deleted at once: more while that is faster, fewer when the store answers SlowDown.
    """
    task.witness.refuse_other(namespace)
    context = TaskContext.get()
    shard = context.partitionId() if context else 0
    writer = ledger.LedgerWriter(namespace, task.ledger_folder, shard, task.sequence)
    # Spark repeats a task whose executor was lost: what the first attempt deleted must not count as already gone.
    begun = writer.begun()
    clock = StoreClock(namespace)

    def has_ended() -> bool:
        return stopped.is_set() or task.deadline.has_passed(clock.latest())

    def must_stop() -> bool:
        if not stopped.is_set() and is_stopped(namespace, task.restores_folder, task.sequence, task.known_restores):
            stopped.set()
        return has_ended()

    def delete(numbered: tuple[int, list[_Planned]]) -> bool:
        number, chunk = numbered
        with pace.request() as done:
            if has_ended():
                return False
            # Objects to keep are looked up as well: one that an earlier attempt deleted must not count as kept.
            addresses = [planned.address for planned in chunk]
            existing = existing_objects(namespace, addresses, concurrency=max(1, CONNECTIONS // pace.limit))
            if len(existing) < len(addresses):
                _refuse_blindness(namespace, task)
            task.witness.refuse_other(namespace)  # a mount may lead elsewhere since the last chunk
            # The lookup may have taken long: the store may be slow, or requests limited.
            if has_ended() or not _delete_chunk(
                namespace, writer.chunk(number), _decide_chunk(chunk, existing, begun, task), task, must_stop
            ):
                return False
            done(len(chunk), namespace.slow_downs)
        return True

    chunks = enumerate(_chunks(batches, task.objects_per_request))
    with closing(map_unordered(delete, chunks, task.pacing.chunks_at_once, wait_for_all=True)) as deleted:
        for (_, chunk), is_done in deleted:
            yield pa.record_batch({"done": [len(chunk) * is_done], "left": [len(chunk) * (not is_done)]})


@contextmanager
def _retracted_on_error(writer: ledger.ChunkWriter) -> Iterator[None]:
    """Retract the intent of a chunk if the block raises: nothing was sent of it, and a restore would wait for it."""
    try:
        yield
    except BaseException:
        with suppress(LakeFSGCError):  # the first error says what to do
            writer.retract()
        raise


def _refuse_blindness(store: ObjectStore, task: DeleteTask) -> None:
    """Raise ``StorageError`` unless the store shows the mark: else that it shows no object proves nothing (rule 12).

    A folder whose mount is gone has no files, and a proxy may answer every request in the same way.
    """
    if not store.stat_many([task.mark_file]):
        raise StorageError(
            f"{task.store.folder_url} does not show {task.mark_file}, a file of the mark that is swept. So the objects "
            "that it does not show may exist",
            remedy="Check the mount of the folder, or the proxies between this machine and the store. Then sweep "
            "again: the sweep continues with the remaining objects",
        )


@lru_cache(maxsize=32)
def _pace(store: StoreLocation, chunks_at_once: int) -> Pace:
    """Return one ``Pace`` per store and worker process, so that the next task starts with the pace that was learnt."""
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


@dataclass(frozen=True)
class _Record:
    """One record of the ledger."""

    address: str
    size: int | None
    outcome: str
    error: str = ""


@dataclass(frozen=True)
class _DecidedChunk:
    """What to do with a chunk.

    ``kept`` has the outcomes of objects that are not deleted, ``targets`` the objects to delete, and ``on_success`` the
    outcome of each target if its delete succeeds.
    """

    kept: list[_Record]
    targets: list[VersionedTarget]
    on_success: dict[str, _Record]


def _decide_chunk(
    chunk: list[_Planned], existing: dict[str, ObjectInfo], begun: set[str], task: DeleteTask
) -> _DecidedChunk:
    """Decide which objects of a chunk to delete. ``existing`` are those in the store, ``begun`` as in ``PLAN``."""
    decided = _DecidedChunk([], [], {})
    for planned in chunk:
        address, info = planned.address, existing.get(planned.address)
        newest = (planned.last_modified or task.cutoff) + CLOCK_GRAIN
        # An object that is gone after an intent was deleted by a sweep of this mark.
        outcome_if_gone = ledger.DELETED if planned.begun or address in begun else ledger.ALREADY_GONE
        kept = _kept_record(planned, info, newest, outcome_if_gone, delete_versions=task.delete_versions)
        if kept:
            decided.kept.append(kept)
            continue
        decided.targets.append(VersionedTarget(address, info, newest))
        decided.on_success[address] = (
            _Record(address, info.size_bytes, ledger.DELETED)
            if info
            else _Record(address, planned.size, outcome_if_gone)
        )
    return decided


def _kept_record(
    planned: _Planned, info: ObjectInfo | None, newest: datetime, outcome_if_gone: str, *, delete_versions: bool
) -> _Record | None:
    """Return the outcome of an object that is not deleted, None for one that is.

    ``info`` is None for an object that does not exist. With ``delete_versions`` its versions may still exist.
    """
    address, size, verdict = planned.address, planned.size, planned.verdict
    if verdict not in (DELETE, ledger.RESURRECTED, ledger.NOT_BACKED_UP):
        raise CorruptFileError(
            "the plan of the sweep",
            f"{address} has the verdict {verdict!r}",
            remedy="Sweep again, and find out what changes files in the workspace (work_url)",
        )
    is_kept = verdict in (ledger.RESURRECTED, ledger.NOT_BACKED_UP)
    if info is None and is_kept and (verdict == ledger.RESURRECTED or outcome_if_gone == ledger.DELETED):
        # The second look also protects an object that no longer exists, because it cannot read the content.
        return _Record(address, size, outcome_if_gone)
    if verdict == ledger.RESURRECTED:
        return _Record(address, size, ledger.RESURRECTED, "referenced again since the mark")
    if verdict == ledger.NOT_BACKED_UP and (info is not None or delete_versions):
        error = "kept with its versions: the backup has no copy, because the object did not exist at that time"
        return _Record(address, size, ledger.NOT_BACKED_UP, error)
    if info is None:
        return None if delete_versions else _Record(address, size, outcome_if_gone)
    if info.last_modified > newest:
        return _Record(address, size, ledger.RESURRECTED, "written again since the mark")
    if _is_another(planned, info):
        return _Record(address, size, ledger.RESURRECTED, "written again since the mark")
    return None


def _is_another(planned: _Planned, info: ObjectInfo) -> bool:
    """Return whether an object is not the one that was marked, whatever the store's clock says.

    The time of an upload in parts is its start, and one of a store's machines may have a wrong clock. So an object that
    was written again may look old: by its size, or by an earlier time, it is still another one.
    """
    if planned.size is not None and info.size_bytes != planned.size:
        return True
    return planned.last_modified is not None and info.last_modified < planned.last_modified - CLOCK_GRAIN


def _delete_chunk(
    store: ObjectStore,
    writer: ledger.ChunkWriter,
    chunk: _DecidedChunk,
    task: DeleteTask,
    must_stop: Callable[[], bool],
) -> bool:
    """Delete the targets of a chunk, between the intent and the outcome in the ledger.

    Returns False, and deletes nothing, if ``must_stop`` holds once the intent is written: writing it may take long.
    """
    # Before the window opens: listings of versions may take longer than deletes may.
    versions = store.find_versions(chunk.targets) if task.delete_versions else []
    window = DeleteWindow()  # before the intent: a restore counts from the time at which the store received it
    if chunk.targets:
        intents = [
            _Record(target.key, target.seen.size_bytes, ledger.INTENT) for target in chunk.targets if target.seen
        ]
        writer.intent(_to_batch(intents))
    with _retracted_on_error(writer):
        stops = must_stop()
    if stops:
        writer.retract()
        return False
    if task.delete_versions:
        deletions = store.delete_versions(versions, window)
    else:
        deletions = store.delete_unchanged(chunk.targets, window)
    outcomes = list(chunk.kept)
    for deletion in deletions:
        success = chunk.on_success[deletion.key]
        outcome = _NOT_DELETED.get(deletion.outcome, success.outcome)
        outcomes.append(_Record(deletion.key, success.size, outcome, deletion.error))
    writer.outcome(_to_batch(outcomes), answered=not window.unanswered)
    return True


def _to_batch(records: list[_Record]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([asdict(record) for record in records], schema=ledger.RECORD)
