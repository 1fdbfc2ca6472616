"""What restores leave in a mark's folder: it stops the sweeps of the mark, and says which of their deletes are undone.

Files ``lakefs-gc/restores/<time>.json``, the note of a restore that has begun, ``<time>-<task>-outcome.parquet``
(``ledger.RECORD``), what is back, and ``<time>-ended.json``, how much of the mark is back by then (``Restored``).  A
sweep writes an intent, looks for notes, and then deletes; a restore writes its note, looks for intents, and then
copies: one of them sees the other.  Whether a delete is under way is told by its intent: for ``DEAD_AFTER_SECONDS``,
unless the store has answered each of its tries before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from types import MappingProxyType

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.errors import ApprovalError
from lakefs_gc.formats.durable_record import DurableRecord, Time, record
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.delete_window import DEAD_AFTER_SECONDS
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

logger = logging.getLogger(__name__)

RESTORED = "restored"
"""The outcome of each record."""

_NOTE = ".json"
_ENDED = "-ended.json"
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
        if row["address"].endswith(_NOTE) and not row["address"].endswith(_ENDED)
    }


@record
class RestoreStart(DurableRecord):
    """The note that a restore has begun, of the objects whose address or path begins with ``prefix``."""

    kind = "the note of a restore"
    version_keys = MappingProxyType({1: None})
    sorted_fields = False

    began_at: Time
    prefix: str


@record
class Restored(DurableRecord):
    """How many different objects of a mark are back, after all restores since its last sweep, and their bytes."""

    kind = "the end of a restore"
    version_keys = MappingProxyType({1: None})
    remedy = "Restore the mark again"
    sorted_fields = False

    objects: int
    size_bytes: int


def restored(store: ObjectStore, note: str) -> Restored | None:
    """What was back at the end of the restore whose note this is.

    None for one that has not ended, was killed, or is of a version that did not count.  Raises ``CorruptFileError``.
    """
    key = note.removesuffix(_NOTE) + _ENDED
    if not store.stat_many([key]):
        return None
    return Restored.from_json(store.read(key), key)


def record_end(spark: SparkSession, store: StoreLocation, mark_id: str, records: str, cores: int) -> Restored:
    """Count what the restores since the last sweep have recorded, and write it down.

    ``records`` is as ``begin_restore`` gave it.
    """
    paths, namespace = MarkPaths.of(mark_id), open_store(store)
    swept = namespace.stat_many([paths.sweep_summary]).get(paths.sweep_summary)
    # The records of a restore sort before its note, and after the notes of earlier ones.
    before = (note for note, at in notes(namespace, mark_id).items() if swept and at < swept.last_modified)
    back = ledger.read_ledger(spark, store, paths.restores, cores, after=max(before, default=""))
    (counted,) = back.agg(F.count("*").alias("objects"), F.coalesce(F.sum("size"), F.lit(0)).alias("size")).collect()
    total = Restored(counted["objects"], counted["size"])
    namespace.put(f"{records.removesuffix('-')}{_ENDED}", total.to_json())
    return total


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
    store.put(key + _NOTE, RestoreStart(at, prefix).to_json())
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
