"""The log of the restores of a mark, in the folder of the mark: it stops sweeps, and records which objects exist again.

- ``lakefs-gc/restores/<time>.json``: the note of a restore that has begun (``RestoreStart``)
- ``<time>-<task>-outcome.parquet``: the restored objects (``ledger.RECORD``)
- ``<time>-ended.json``: how much of the mark was restored by then (``RestoreEnd``)
- ``last``: the name of the newest note, for whom a list may hide it (``newest.py``)
- ``<sequence>.stop``: this pass of a sweep failed or was canceled. It is here so that a worker asks for both in one
  request

A sweep writes an intent, reads the notes, and then deletes. A restore writes its note, reads the intents, and then
copies. So at least one of them sees the other. A delete is in progress for ``DEAD_AFTER_SECONDS`` after its intent,
unless the store has answered each of its attempts before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.newest import newest_in, put_newest, refuse_old_list
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.spark.witness import Witness
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.errors import ApprovalError, CorruptFileError, ObjectNotFoundError
from lakefs_gc.formats.durable_record import DurableRecord, Time, record
from lakefs_gc.storage.base import ObjectStore, written_at
from lakefs_gc.storage.delete_window import DEAD_AFTER_SECONDS
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.units import EPOCH

logger = logging.getLogger(__name__)

RESTORED = "restored"
"""The outcome of every record."""

_NOTE = ".json"
_ENDED = "-ended.json"
_STOP = ".stop"
_PAUSE_SECONDS = 2.0
_AGAIN = "start the same command again"


def notes(store: ObjectStore, mark_id: str) -> dict[str, datetime]:
    """Return the keys of the notes of a mark's restores, with the time on the store's clock.

    Raise ``StorageError`` for a list that lacks the newest one.
    """
    folder = MarkPaths.of(mark_id).restores
    newest = newest_in(store, folder)
    found = {key: at for batch in store.list(folder) for key, at in written_at(batch).items() if _is_note(key)}
    refuse_old_list(store, newest, found, _AGAIN)
    return found


def notes_before(store: ObjectStore, mark_id: str, approved_at: datetime, stored_at: datetime) -> frozenset[str]:
    """Return the notes of the restores that began before an approval: by the times in the records, and of their files.

    A copy of the namespace, or of a file in place, gives files new times. The times in the records are of two machines,
    whose clocks may differ. ``stored_at`` is the time of the file of the approval, of a HEAD: in whole seconds. A note
    that cannot be read is not among them (rule 12).
    """
    older = sorted(key for key, at in notes(store, mark_id).items() if at < stored_at)
    return frozenset(key for key in older if _began_before(store, key, approved_at))


def _began_before(store: ObjectStore, note: str, approved_at: datetime) -> bool:
    try:
        return RestoreStart.from_json(store.read(note), note).began_at < approved_at
    except (CorruptFileError, ObjectNotFoundError) as error:
        logger.warning("no approval counts as later than this restore, because its note is damaged: %s", error.message)
        return False


def stop_pass(store: ObjectStore, mark_id: str, sequence: str) -> None:
    """Tell the workers of one pass of a sweep to begin no more deletes.

    Spark's workers do not learn at once that their job has failed or was canceled, or that its driver is gone.
    """
    store.put(f"{MarkPaths.of(mark_id).restores}{sequence}{_STOP}", b"")


def is_stopped(store: ObjectStore, folder: str, sequence: str, known: frozenset[str]) -> bool:
    """Return whether the workers of a pass must begin no more deletes, because of ``stop_pass`` or of a restore.

    ``known`` are the notes of restores that do not stop it. Raise ``StorageError`` for a list without the newest one.
    """
    newest = newest_in(store, folder)  # before the list, which has whatever was written until then
    keys = {key for batch in store.list(folder) for key in batch["address"].to_pylist()}
    refuse_old_list(store, newest, keys, _AGAIN)
    return f"{folder}{sequence}{_STOP}" in keys or bool(set(filter(_is_note, keys)) - known)


def _is_note(key: str) -> bool:
    return key.endswith(_NOTE) and not key.endswith(_ENDED)


@record
class RestoreStart(DurableRecord):
    """The note of a restore that has begun, of the objects whose address or path begins with ``prefix``."""

    kind = "the note of a restore"
    version_keys = MappingProxyType({1: None})
    sorted_fields = False

    began_at: Time
    prefix: str


@record
class RestoreEnd(DurableRecord):
    """How many distinct objects of a mark all restores since its last sweep have restored, and their bytes.

    If no sweep ended, objects that were never deleted count, too.
    """

    kind = "the end of a restore"
    version_keys = MappingProxyType({1: None})
    remedy = "Restore the mark again"
    sorted_fields = False

    objects: int
    size_bytes: int


def _end_of(note: str) -> str:
    return note.removesuffix(_NOTE) + _ENDED


def unended_restores(store: ObjectStore, files: Mapping[str, datetime]) -> list[RestoreStart]:
    """Return the restores of a mark that may be in progress. ``files`` are all files of its restores, with their times.

    One that was killed has no end, either. It counts as ended once another one has ended that began later and was of
    all objects that this one was of: that has restored them. Raise ``CorruptFileError`` for a damaged note.
    """
    begun = {key: at for key, at in files.items() if _is_note(key)}
    if all(_end_of(key) in files for key in begun):
        return []
    starts = {key: RestoreStart.from_json(content, key) for key, content in store.read_many(sorted(begun))}

    def has_ended(key: str) -> bool:
        return _end_of(key) in files or any(
            begun[other] > begun[key] and starts[key].prefix.startswith(starts[other].prefix)
            for other in begun
            if _end_of(other) in files
        )

    return [starts[key] for key in sorted(begun) if not has_ended(key)]


def read_restore_end(store: ObjectStore, note: str) -> RestoreEnd | None:
    """Return the end of the restore with this note, or None if it has no end: it is in progress or was killed.

    Raise ``CorruptFileError``.
    """
    key = _end_of(note)
    if not store.stat_many([key]):
        return None
    return RestoreEnd.from_json(store.read(key), key)


def record_restore_end(spark: SparkSession, store: StoreLocation, mark_id: str, records: str, cores: int) -> RestoreEnd:
    """Count the objects that the restores since the last sweep have recorded, and write the end of this restore.

    A sweep that was killed counts from its last delete: it wrote no summary.

    After a sweep of the mark or of a part, only objects that a sweep deleted count: the others exist without a restore.
    ``records`` is the prefix from ``begin_restore``.
    """
    paths, namespace = MarkPaths.of(mark_id), open_store(store)
    summaries = namespace.stat_many([paths.sweep_summary_of(only) for only in Scope]).values()
    swept_at = max((info.last_modified for info in summaries), default=EPOCH)
    begun, own = notes(namespace, mark_id), f"{records.removesuffix('-')}{_NOTE}"
    since = max(swept_at, min(begun.values(), default=EPOCH))
    swept_at = max(swept_at, _last_delete(namespace, mark_id, since))
    # The records of a restore sort before its note, and after the notes of earlier ones.
    before = (note for note, at in begun.items() if at < swept_at and note != own)
    back = ledger.read_ledger(spark, store, paths.restores, cores, after=max(before, default=""))
    if len(begun) > 1:  # what an earlier restore brought back may be gone again, for example by a sweep of another mark
        back = back.select("address", "size").mapInArrow(_only_existing(store), "address string, size long")
    if summaries:
        outcomes = ledger.read_ledger(spark, store, paths.ledger, cores)
        back = back.join(outcomes.where(F.col("outcome") == ledger.DELETED), "address", "left_semi")
    (counted,) = back.agg(F.count("*").alias("objects"), F.coalesce(F.sum("size"), F.lit(0)).alias("size")).collect()
    total = RestoreEnd(counted["objects"], counted["size"])
    namespace.put(f"{records.removesuffix('-')}{_ENDED}", total.to_json())
    return total


@worker
def _only_existing(batches: Batches, store: StoreLocation) -> Batches:
    for batch in batches:
        addresses = batch.column("address").to_pylist()
        found = worker_store(store).stat_many(addresses)
        yield batch.filter(pa.array([address in found for address in addresses], pa.bool_()))


def _last_delete(store: ObjectStore, mark_id: str, since: datetime) -> datetime:
    """Return when the last deletes of a mark began after ``since``, without retracted ones; ``EPOCH`` if none did."""
    later = {key: at for key, at in _ledger_files(store, mark_id).items() if ledger.is_intent(key) and at > since}
    for key in sorted(later, key=later.__getitem__, reverse=True):
        if ledger.read_records(key, store.read(key)).num_rows:
            return later[key]
    return EPOCH


def refuse_restored(store: ObjectStore, mark_id: str, known: frozenset[str]) -> None:
    """Raise ``ApprovalError`` if a restore of the mark has begun whose note is not among ``known``."""
    if notes(store, mark_id).keys() - known:
        raise ApprovalError(
            f"A restore of mark {mark_id} has begun since its approval, so its sweep deletes nothing more",
            remedy="To delete the remaining objects, review the mark with `lakefs-gc show`, then approve it with "
            "`lakefs-gc approve`. If that was done, compare the clocks of the machines of the restore and of the "
            "approval",
        )


@dataclass(frozen=True)
class BegunRestore:
    """A restore that has begun, and what it knows of the sweeps of its mark.

    ``records`` is the prefix of the keys of its records. ``dead`` are the intents whose end is unknown, because the
    sweep was killed or does not respond, and ``intents`` are all that there were when the wait for their ends was over.
    """

    records: str
    dead: frozenset[str]
    intents: frozenset[str]


def begin_restore(
    store: ObjectStore, mark_id: str, prefix: str, at: datetime, sleep: Callable[[float], None]
) -> BegunRestore:
    """Stop the sweeps of a mark, and wait until their deletes have ended."""
    folder, name = MarkPaths.of(mark_id).restores, f"{at:%Y%m%dT%H%M%S%f}"
    put_newest(store, folder, name + _NOTE, RestoreStart(at, prefix).to_json())
    while under_way := _under_way(files := _ledger_files(store, mark_id, since=folder + name + _NOTE)):
        age_seconds = (store.now() - max(under_way.values())).total_seconds()
        if age_seconds > DEAD_AFTER_SECONDS:
            break
        logger.warning("waiting for a sweep of mark %s: %d deletes are in progress", mark_id, len(under_way))
        sleep(_PAUSE_SECONDS)
    dead = frozenset(intent for intent in under_way if ledger.unanswered_of(intent) not in files)
    return BegunRestore(f"{folder}{name}-", dead, frozenset(filter(ledger.is_intent, files)))


def ended_late(store: ObjectStore, mark_id: str, intents: Collection[str]) -> bool:
    """Return whether a delete that ``begin_restore`` assumed dead has ended since."""
    files = _ledger_files(store, mark_id)
    return any(end(intent) in files for intent in intents for end in (ledger.outcome_of, ledger.unanswered_of))


def swept_since(store: ObjectStore, mark_id: str, intents: Collection[str]) -> bool:
    """Return whether a sweep of a mark has begun deletes since ``begin_restore``, which saw these ``intents``.

    Nothing was sent of an intent that has no records: its sweep learnt of the restore, and retracted it.
    """
    new = sorted(key for key in _ledger_files(store, mark_id) if ledger.is_intent(key) and key not in intents)
    return any(ledger.read_records(key, content).num_rows for key, content in store.read_many(new))


def _under_way(files: dict[str, datetime]) -> dict[str, datetime]:
    """Return the intents without an outcome that answers every attempt, with the time when each was written."""
    return {key: at for key, at in files.items() if ledger.is_intent(key) and ledger.outcome_of(key) not in files}


def _ledger_files(store: ObjectStore, mark_id: str, since: str = "") -> dict[str, datetime]:
    """Return the files of the mark's ledger, with the time on the store's clock.

    Raise ``StorageError`` for a list of before the note ``since`` was written: it may lack deletes that are under way.
    """
    paths = MarkPaths.of(mark_id)
    folder = paths.folder if since else paths.ledger
    files = {key: at for batch in store.list(folder) for key, at in written_at(batch).items()}
    refuse_old_list(store, [since] if since else [], files, _AGAIN)
    return {key: at for key, at in files.items() if key.startswith(paths.ledger)}


def record_restored(back: DataFrame, namespace: Witness, prefix: str) -> None:
    """Write the records of restored objects (columns ``address``, ``size``)."""
    back.select("address", "size").mapInArrow(_write_records(namespace, prefix), "records long").collect()


@worker
def _write_records(batches: Batches, namespace: Witness, prefix: str) -> Batches:
    context = TaskContext.get()
    task = context.partitionId() if context else 0
    store = namespace.open_store()
    for number, batch in enumerate(batches):
        rows = [{**row, "outcome": RESTORED, "error": ""} for row in batch.to_pylist()]
        writer = ledger.ChunkWriter(store, f"{prefix}{task:05d}-{number:06d}-")
        writer.outcome(pa.RecordBatch.from_pylist(rows, schema=ledger.RECORD))
        yield pa.record_batch([pa.array([len(rows)], pa.int64())], names=["records"])
