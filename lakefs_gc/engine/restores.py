"""What restores leave in a mark's folder: it stops the sweeps of the mark, and says which of their deletes are undone.

Files ``lakefs-gc/restores/<time>.json``, the note of a restore that has begun, and ``<time>-<task>-outcome.parquet``
(``ledger.RECORD``), what is back.  A sweep writes an intent, looks for notes, and then deletes; a restore writes its
note, looks for intents, and then copies: one of them sees the other.  Whether a delete is under way is told by its
intent: for ``DEAD_AFTER_SECONDS``, unless the store has answered each of its tries before.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from lakefs_gc.engine import ledger
from lakefs_gc.engine.marks import MarkPaths
from lakefs_gc.engine.workers import Batches, worker, worker_store
from lakefs_gc.errors import ApprovalError
from lakefs_gc.storage.base import ObjectStore, StoreLocation
from lakefs_gc.storage.delete_window import DEAD_AFTER_SECONDS

logger = logging.getLogger(__name__)

RESTORED = "restored"
"""The outcome of each record."""

_NOTE = ".json"
_PAUSE_SECONDS = 2.0


def notes(store: ObjectStore, mark_id: str) -> dict[str, datetime]:
    """The notes of a mark's restores, and when the store got them."""
    return notes_in(store, MarkPaths.of(mark_id).restores)


def notes_in(store: ObjectStore, folder: str) -> dict[str, datetime]:
    """The notes in one folder of restores."""
    return {
        row["address"]: row["last_modified"]
        for batch in store.list(folder)
        for row in batch.select(["address", "last_modified"]).to_pylist()
        if row["address"].endswith(_NOTE)
    }


def refuse_restored(store: ObjectStore, mark_id: str, known: frozenset[str]) -> None:
    """Raise ``ApprovalError`` if a restore of the mark has begun that is not among ``known``, the keys of notes."""
    if notes(store, mark_id).keys() - known:
        raise ApprovalError(
            f"mark {mark_id} is being restored, or was: what its sweep has not deleted yet is left alone",
            remedy="if the rest is still to go, look at the mark (`lakefs-gc show`) and approve it again",
        )


def begin_restore(
    store: ObjectStore, mark_id: str, prefix: str, at: datetime, sleep: Callable[[float], None]
) -> tuple[str, set[str]]:
    """Stop the sweeps of a mark, and wait until what they are deleting is gone.

    Gives the beginning of the keys of this restore's records, and the intents whose end is unknown: of a sweep that was
    killed, or stands still.
    """
    key = f"{MarkPaths.of(mark_id).restores}{at:%Y%m%dT%H%M%S%f}"
    store.put(key + _NOTE, json.dumps({"began_at": at.isoformat(), "prefix": prefix}, indent=2).encode())
    while under_way := _under_way(files := _ledger_files(store, mark_id)):
        age_seconds = (store.now() - max(under_way.values())).total_seconds()
        if age_seconds > DEAD_AFTER_SECONDS:
            break
        logger.warning("a sweep of mark %s is deleting: waiting for %d chunks of it", mark_id, len(under_way))
        sleep(_PAUSE_SECONDS)
    return f"{key}-", {intent for intent in under_way if ledger.unanswered_of(intent) not in files}


def ended_late(store: ObjectStore, mark_id: str, intents: set[str]) -> bool:
    """Whether a delete that ``begin_restore`` took for dead has ended since."""
    files = _ledger_files(store, mark_id)
    return any(end(intent) in files for intent in intents for end in (ledger.outcome_of, ledger.unanswered_of))


def _under_way(files: dict[str, datetime]) -> dict[str, datetime]:
    """Each intent that has no outcome with an answer to each try, and when it was written."""
    return {key: at for key, at in files.items() if ledger.is_intent(key) and ledger.outcome_of(key) not in files}


def _ledger_files(store: ObjectStore, mark_id: str) -> dict[str, datetime]:
    """The files of the mark's ledger, and when the store got each."""
    return {
        row["address"]: row["last_modified"]
        for batch in store.list(MarkPaths.of(mark_id).ledger)
        for row in batch.select(["address", "last_modified"]).to_pylist()
    }


def record_restored(back: DataFrame, store: StoreLocation, prefix: str) -> None:
    """Write the records of the objects that are back (columns ``address``, ``size``)."""
    back.select("address", "size").mapInArrow(_write_records(store, prefix), "records long").collect()


@worker
def _write_records(batches: Batches, store: StoreLocation, prefix: str) -> Batches:
    context = TaskContext.get()
    task = context.partitionId() if context else 0
    for number, batch in enumerate(batches):
        rows = [{**row, "outcome": RESTORED, "error": ""} for row in batch.to_pylist()]
        writer = ledger.ChunkWriter(worker_store(store), f"{prefix}{task:05d}-{number:06d}-")
        writer.outcome(pa.RecordBatch.from_pylist(rows, schema=ledger.RECORD))
        yield pa.record_batch([pa.array([len(rows)], pa.int64())], names=["records"])
