"""The deletes themselves, in Spark's workers, chunk by chunk.

See what is there, write the intent, delete in bulk, write the outcome that the store answered for each key.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa
from pyspark import TaskContext

from lakefs_gc.engine import ledger
from lakefs_gc.engine.workers import Batches, worker, worker_store
from lakefs_gc.storage.base import DeletionOutcome, ObjectStore, StoreLocation

PLAN = "address string, size long, last_modified timestamp, verdict string"
"""Columns of a plan.  ``verdict`` is ``DELETE``, ``RESUME`` or ``ledger.RESURRECTED``."""
DELETE = "delete"
RESUME = "resume"
"""An earlier attempt said that it would delete the object, and not how that ended."""
PROGRESS = "done long, left long"

_NOT_DELETED = {DeletionOutcome.FAILED: ledger.FAILED, DeletionOutcome.LOCKED: ledger.LOCKED}
# HEAD and GET tell whole seconds where a listing tells milliseconds.
_CLOCK_GRAIN = timedelta(seconds=1)


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
) -> Batches:
    """Delete the objects of a plan, in order: a row of the answer is a chunk, ``done`` or ``left`` of its objects.

    ``sequence`` names this pass; ``until`` is the time (``time.time()``) after which no chunk is begun but the first.
    """
    namespace = worker_store(store)
    context = TaskContext.get()
    writer = ledger.LedgerWriter(namespace, folder, context.partitionId() if context else 0, sequence)
    # Spark tries a task again when its executor is lost: what the first try has deleted is not found gone by chance.
    begun = writer.begun()
    for number, chunk in enumerate(_chunks(batches, objects_per_request)):
        if number and time.time() > until:
            yield pa.record_batch({"done": [0], "left": [len(chunk)]})
            continue
        _delete_chunk(namespace, writer, chunk, cutoff, begun, delete_versions)
        yield pa.record_batch({"done": [len(chunk)], "left": [0]})


@dataclass(frozen=True)
class _Planned:
    address: str
    size: int | None
    last_modified: datetime | None
    verdict: str


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
    writer: ledger.LedgerWriter,
    chunk: list[_Planned],
    cutoff: datetime,
    begun: set[str],
    delete_versions: bool,
) -> None:
    there = store.stat_many([o.address for o in chunk if o.verdict != ledger.RESURRECTED])
    records: list[tuple[str, int | None, str, str]] = []
    doomed: list[tuple[str, int]] = []
    hidden: dict[str, tuple[int | None, str]] = {}  # gone, but its versions may still be there
    for planned in chunk:
        info = there.get(planned.address)
        if planned.verdict == ledger.RESURRECTED:
            records.append((planned.address, planned.size, ledger.RESURRECTED, "referenced again since the mark"))
        elif info is None:
            ours = planned.verdict == RESUME or planned.address in begun
            outcome = ledger.DELETED if ours else ledger.ALREADY_GONE
            if delete_versions:
                hidden[planned.address] = (planned.size, outcome)
            else:
                records.append((planned.address, planned.size, outcome, ""))
        elif info.last_modified > (planned.last_modified or cutoff) + _CLOCK_GRAIN:
            records.append((planned.address, planned.size, ledger.RESURRECTED, "written again since the mark"))
        else:
            doomed.append((planned.address, info.size_bytes))
    writer.intent(_records([(address, size, ledger.INTENT, "") for address, size in doomed]))
    expected = {address: (size, ledger.DELETED) for address, size in doomed} | hidden
    delete = store.delete_versions if delete_versions else store.delete_many
    for deletion in delete(list(expected)):
        size, outcome = expected[deletion.key]
        records.append((deletion.key, size, _NOT_DELETED.get(deletion.outcome, outcome), deletion.error))
    writer.outcome(_records(records))


def _records(rows: list[tuple[str, int | None, str, str]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(ledger.RECORD.names, row, strict=True)) for row in rows], schema=ledger.RECORD
    )
