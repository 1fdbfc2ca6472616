"""Stage 7: delete what a mark says, and nothing else.

The plan (what is marked, less what is done, with what came back to life) is computed and kept before the first
delete.  The executors then go through it chunk by chunk: see what is there, write the intent, delete in bulk, write
the outcome.  Nothing is counted from what was asked for; the result is read back from the ledger.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine import ledger
from lakefs_gc.engine.dataset import Clock, StageOutput, WorkPlace
from lakefs_gc.engine.marked_objects import read_marked
from lakefs_gc.engine.marks import Mark, MarkPaths
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.workers import Batches, driver_errors, worker, worker_store
from lakefs_gc.errors import MarkError, SweepIncompleteError
from lakefs_gc.formats.addresses import CANDIDATE_ADDRESS_REGEX
from lakefs_gc.storage.base import DeletionOutcome, ObjectStore, StoreLocation
from lakefs_gc.storage.open import open_store

logger = logging.getLogger(__name__)

_PLAN = "address string, size long, last_modified timestamp, verdict string"
_DELETE = "delete"
_RESUME = "resume"  # an earlier attempt said that it would delete the object, and not how that ended
_TASKS_PER_CORE = 2
_ERRORS_SHOWN = 10
_NOT_DELETED = {DeletionOutcome.FAILED: ledger.FAILED, DeletionOutcome.LOCKED: ledger.LOCKED}
# HEAD and GET tell whole seconds where a listing tells milliseconds.
_CLOCK_GRAIN = timedelta(seconds=1)


@dataclass(frozen=True)
class Outcome:
    """How many marked objects had one outcome, and their size."""

    objects: int
    size_bytes: int


@dataclass(frozen=True)
class SweepResult:
    """What happened to the objects of a mark, by outcome; every outcome is there."""

    mark_id: str
    outcomes: dict[str, Outcome]

    def to_json(self, ended_at: datetime) -> bytes:
        """As it is kept beside the mark."""
        content = {"mark_id": self.mark_id, "ended_at": ended_at.isoformat()}
        outcomes = {name: asdict(outcome) for name, outcome in self.outcomes.items()}
        return json.dumps(content | {"outcomes": outcomes}, indent=2).encode()

    def raise_if_incomplete(self) -> None:
        """Raise ``SweepIncompleteError`` when a delete failed (rule 9)."""
        failed = self.outcomes[ledger.FAILED].objects
        if failed:
            raise SweepIncompleteError(
                f"{failed} of {sum(o.objects for o in self.outcomes.values())} objects of mark {self.mark_id} "
                "could not be deleted",
                remedy="see the errors in the run, or the ledger beside the mark; mend the cause, and sweep it again: "
                "it goes on with what is left",
                mark_id=self.mark_id,
                outcomes={name: asdict(outcome) for name, outcome in self.outcomes.items()},
            )


def sweep(
    spark: SparkSession,
    run: GCRun,
    mark: Mark,
    referenced: DataFrame,
    *,
    work_place: WorkPlace,
    objects_per_request: int,
    clock: Clock,
    cores: int,
    delete_versions: bool = False,
) -> tuple[StageOutput, SweepResult]:
    """Delete the objects of an approved mark.  Columns of the result: ``schemas.SWEEP``, a row for each marked object.

    ``referenced`` is what the second look found.  Sweeping a mark again goes on where the last sweep stopped.
    ``delete_versions`` deletes every version of an object for good, where the store keeps such.
    Raises ``MarkError`` before anything is deleted when the mark's parts do not hold what the mark says.
    """
    began_at = clock()
    folder = MarkPaths.of(mark.mark_id).ledger
    _keep_plan(spark, run, mark, referenced, folder, work_place, clock, cores)
    plan = spark.read.schema(_PLAN).parquet(f"{work_place.folder(run.run_key, 'sweep_plan')}/data")
    sequence = f"{run.started_at:%Y%m%dT%H%M%S%f}"
    with driver_errors():
        # The sum needs every row of every task: this is what runs the deletes, each of them, now.
        (
            plan.repartitionByRange(cores * _TASKS_PER_CORE, "address")
            .sortWithinPartitions("address")
            .mapInArrow(
                _delete(run.store, folder, sequence, objects_per_request, mark.cutoff, delete_versions), "objects long"
            )
            .agg(F.sum("objects"))
            .collect()
        )
        recorded = ledger.read_ledger(spark, run.store, folder, cores)
        result = _result(mark, recorded)
    open_store(run.store).put(MarkPaths.of(mark.mark_id).sweep_summary, result.to_json(clock()))
    return StageOutput(recorded, began_at, {"mark_id": mark.mark_id, "digest": mark.digest}), result


def _keep_plan(
    spark: SparkSession,
    run: GCRun,
    mark: Mark,
    referenced: DataFrame,
    folder: str,
    work_place: WorkPlace,
    clock: Clock,
    cores: int,
) -> None:
    marked = read_marked(spark, run.store, mark)
    earlier = ledger.read_ledger(spark, run.store, folder, cores).select("address", F.col("outcome").alias("recorded"))
    live = referenced.distinct().withColumn("live", F.lit(True))
    verdict = (
        F.when(F.col("recorded").isin(ledger.DELETED, ledger.ALREADY_GONE), F.lit("done"))
        .when(F.col("live"), F.lit(ledger.RESURRECTED))
        .when(F.col("recorded") == ledger.INTENT, F.lit(_RESUME))
        .otherwise(F.lit(_DELETE))
    )
    plan = marked.join(earlier, "address", "left").join(live, "address", "left").withColumn("verdict", verdict)
    manifest = work_place.write(
        spark,
        run.run_key,
        "sweep_plan",
        StageOutput(
            plan.select("address", "size", "last_modified", "verdict"),
            clock(),
            {"mark_id": mark.mark_id},
            {"misplaced": F.count_if(~F.col("address").rlike(CANDIDATE_ADDRESS_REGEX))},
        ),
    )
    if manifest.rows != mark.candidates:
        raise MarkError(
            f"mark {mark.mark_id} says {mark.candidates} objects, but holds {manifest.rows} different ones",
            remedy="do not sweep it; mark again",
        )
    if manifest.facts["misplaced"]:
        raise MarkError(
            f"{manifest.facts['misplaced']} addresses of mark {mark.mark_id} are in places that are never collected",
            remedy="do not sweep it; mark again",
        )


@worker
def _delete(
    batches: Batches,
    store: StoreLocation,
    folder: str,
    sequence: str,
    objects_per_request: int,
    cutoff: datetime,
    delete_versions: bool = False,
) -> Batches:
    namespace = worker_store(store)
    context = TaskContext.get()
    writer = ledger.LedgerWriter(namespace, folder, context.partitionId() if context else 0, sequence)
    # Spark tries a task again when its executor is lost: what the first try has deleted is not found gone by chance.
    begun = writer.begun()
    for chunk in _chunks(batches, objects_per_request):
        _delete_chunk(namespace, writer, chunk, cutoff, begun, delete_versions)
        yield pa.record_batch({"objects": [len(chunk)]})


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
            if row["verdict"] == "done":
                continue
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
            ours = planned.verdict == _RESUME or planned.address in begun
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


def failures(recorded: DataFrame) -> list[dict[str, str | int]]:
    """The most frequent errors of a sweep (columns ``schemas.SWEEP``): each with a count and one of its addresses."""
    failed = recorded.where(F.col("outcome") == ledger.FAILED)
    with driver_errors():
        rows = (
            failed.groupBy("error")
            .agg(F.count(F.lit(1)).alias("objects"), F.min("address").alias("for_example"))
            .orderBy(F.desc("objects"), "error")
            .limit(_ERRORS_SHOWN)
            .collect()
        )
    return [row.asDict() for row in rows]


def _result(mark: Mark, recorded: DataFrame) -> SweepResult:
    rows = recorded.groupBy("outcome").agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("size")).collect()
    found = {row["outcome"]: Outcome(row["objects"], row["size"] or 0) for row in rows}
    total = sum(outcome.objects for outcome in found.values())
    if total != mark.candidates or ledger.INTENT in found:
        raise SweepIncompleteError(
            f"the ledger of mark {mark.mark_id} accounts for {total} of {mark.candidates} objects",
            remedy="sweep the same mark again: it goes on with what is left",
        )
    return SweepResult(mark.mark_id, {name: found.get(name, Outcome(0, 0)) for name in ledger.OUTCOMES})
