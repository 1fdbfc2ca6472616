"""Stage 10, ``sweep``: deletes the objects of an approved mark, and nothing else (rules 4, 6 and 9).

The objects of the mark without a final outcome are written to the workspace before the first delete, and swept in
rounds. Each round takes a second look, makes a plan, and has the executors delete. Objects that remain when the second
look is too old get another look. Failed deletes are retried at the end. The result is read back from the ledger,
never counted from the requests.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, IntegerType, StringType, StructField, StructType

from lakefs_gc.engine.collect.listing.existence import only_absent
from lakefs_gc.engine.collect.listing.foreign_names import has_unrecognized_name
from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.mark_objects import read_marked
from lakefs_gc.engine.records.restore_log import refuse_restored
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.scope import PARTS, Scope
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import columns_of
from lakefs_gc.engine.spark.witness import Witness, write_witness
from lakefs_gc.engine.spark.workers import (
    driver_errors,
    proofs_of_tasks,
    refuse_unproved,
    require_of_tasks,
    worker_store,
)
from lakefs_gc.engine.sweep.deletion import DELETE, PLAN, DeleteTask
from lakefs_gc.engine.sweep.outcomes import SweepResult, read_result
from lakefs_gc.engine.sweep.run_deletes import pacing, run_deletes
from lakefs_gc.engine.sweep.store_clock import Deadline, LookAge
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.errors import MarkError, StaleLookError
from lakefs_gc.formats.candidate_addresses import CANDIDATE_ADDRESS_REGEX

logger = logging.getLogger(__name__)

Look = Callable[[DataFrame], DataFrame]
"""A second look: returns the addresses that are referenced now (column ``address``), given the objects to delete."""

_TASKS_PER_CORE = 2
_MARKED = StructType(
    [
        *schemas.STORE_LISTING.fields,
        StructField("unbacked", BooleanType(), nullable=False),
        StructField("recorded", StringType()),
        StructField("reason", StringType()),
    ]
)
_LEFT = StructType([*_MARKED.fields, StructField("round", IntegerType())])
_DONE = (ledger.DELETED, ledger.ALREADY_GONE)
_NEW_MARK = "Do not sweep this mark. Run `lakefs-gc mark` for a new one"


def sweep(
    context: RunContext,
    run: GCRun,
    mark: Mark,
    look: Look,
    *,
    known_restores: frozenset[str] = frozenset(),
    not_backed_up: DataFrame | None = None,
    named_at_root: str = "",
    only: Scope = Scope.all,
    is_small: bool = False,
    begin_look: Callable[[], None] = lambda: None,
    check_backup: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[StageOutput, SweepResult]:
    """Delete the objects of an approved mark, or of one part of it.

    Columns of the result: ``schemas.SWEEP``, one row for each object of the mark or part.

    ``look`` is called before each round. Sweeping a mark again continues where the last sweep stopped.

    - ``known_restores``: the notes of restores (``restore_log.notes``) that are older than the approval
    - ``not_backed_up`` (column ``address``): if a backup is required, objects without a copy; they are kept with all
      their versions
    - ``named_at_root``: for a mark of lakeFS's own client, as in ``ClientMarkFindings``; other marks record it
    - ``only``: what the approval is of; no object of another part is deleted or counted
    - ``is_small``: whether this is a small run (``scale``), as ``SecondLook.is_small`` says
    - ``begin_look``: in a small run, begins the first look, which then waits for the server while marks are read
    - ``check_backup``: raises if the backup that the sweep needs is not complete any more; called after each look

    Raises ``MarkError`` before the first delete if the mark's parts do not hold the objects that its manifest counts,
    ``StaleLookError`` if no object could be deleted before the second look was ``max_look_age_minutes`` old, and
    ``ApprovalError`` once another restore of the mark has begun.
    """
    # A small run reads at once what it names, so ``_Passes`` names the ledger only when it has what must be read.
    context.compute.scale(is_small)
    settings, began_at = context.settings.sweep, context.clock()
    with proofs_of_tasks():
        passes = _Passes(context, run, mark, look, known_restores, not_backed_up, only, check_backup)
        passes.prove()  # also those which read the ledger: it says what is left, and what was deleted
        if is_small and not passes.ended_before():
            passes.begin_look(begin_look)
        rounds = passes.rounds_left(unrecognized_too=bool(mark.named_at_root if mark.is_ours else named_at_root))
        for attempt in range(settings.retries + 1):
            for objects in rounds:
                passes.sweep_round(objects)
            recorded = passes.keep_recorded()
            failed = recorded.where(F.col("outcome") == ledger.FAILED)
            if attempt == settings.retries or failed.isEmpty():
                break
            pause_seconds = settings.retry_pause_seconds * 2**attempt
            logger.warning("mark %s: some deletes failed and are retried in %g s", mark.mark_id, pause_seconds)
            sleep(pause_seconds)
            rounds = passes.rounds_failed(failed)
    with driver_errors():
        result = read_result(mark, recorded, only)
    if kept := result.outcomes[ledger.NOT_BACKED_UP].objects:
        logger.warning("mark %s: kept %s objects of which the backup has no copy", mark.mark_id, f"{kept:,}")
    # One may have begun since the last delete. The summary would be newer, and hide it from the history.
    refuse_restored(context.open_store(run.store), mark.mark_id, known_restores)
    context.open_store(run.store).put(
        MarkPaths.of(mark.mark_id).sweep_summary_of(only), result.to_json(run.started_at, context.clock())
    )
    facts = {"mark_id": mark.mark_id, "digest": mark.digest, "only": only.value, "looks": passes.looks}
    return StageOutput(recorded, began_at, facts), result


@dataclass(frozen=True)
class _BegunLook:
    """A look that has begun. ``sequence`` names its pass in the ledger."""

    age: LookAge
    sequence: str
    witness: Witness


class _Passes:
    """The passes of one sweep over the remaining objects of a mark, or of its part ``only``.

    Each pass has its own records in the ledger.
    """

    def __init__(
        self,
        context: RunContext,
        run: GCRun,
        mark: Mark,
        look: Look,
        known_restores: frozenset[str],
        not_backed_up: DataFrame | None,
        only: Scope,
        check_backup: Callable[[], None],
    ) -> None:
        self._context, self._run, self._mark, self._look, self._only = context, run, mark, look, only
        self._settings = context.settings.sweep
        self._known_restores = known_restores
        self._not_backed_up = not_backed_up
        self._check_backup = check_backup
        self._folder = MarkPaths.of(mark.mark_id).ledger
        self._store = context.open_store(run.store)
        self._begun_look: _BegunLook | None = None
        self.looks = 0
        self._done = self._total = 0  # objects of this sweep, for people who wait

    def recorded(self, sequence: str = "") -> DataFrame:
        """Return the records of the ledger, of one pass or of all. Columns: ``schemas.SWEEP``."""
        return ledger.read_ledger(self._context.spark, self._run.store, self._folder + sequence, self._context.cores)

    def ended_before(self) -> bool:
        """Return whether a sweep of the mark or part has ended, so that there may be nothing to look for."""
        return bool(self._store.stat_many([MarkPaths.of(self._mark.mark_id).sweep_summary_of(self._only)]))

    def begin_look(self, begin: Callable[[], None]) -> None:
        """Begin the first look."""
        self._begun_look = self._look_begun()
        begin()

    def rounds_left(self, *, unrecognized_too: bool) -> Iterator[DataFrame]:
        """Return the objects of the mark or part without a final outcome.

        Columns: ``_MARKED``; ``recorded`` is null or an outcome. The whole mark is checked, also for a part.

        Raises ``MarkError`` if the mark's parts do not hold the objects that its manifest counts, or hold an address
        that is never collected. That includes names that lakeFS did not generate, unless ``unrecognized_too``.
        Also raises it if a part is swept, and the reasons of the objects are not those that the manifest counts.
        """
        marked = read_marked(self._context.spark, self._run.store, self._mark).withColumn("unbacked", F.lit(False))
        if self._not_backed_up is not None:
            unbacked = self._not_backed_up.select("address", F.lit(True).alias("is_unbacked"))
            marked = marked.join(unbacked, "address", "left").withColumn(
                "unbacked", F.coalesce("is_unbacked", F.lit(False))
            )
        earlier = self.recorded().select("address", F.col("outcome").alias("recorded"))
        is_left = F.col("recorded").isNull() | ~F.col("recorded").isin(*_DONE)
        measures = {
            "misplaced": F.count_if(~F.col("address").rlike(CANDIDATE_ADDRESS_REGEX)),
            "unrecognized": F.count_if(has_unrecognized_name()),
            "left": F.count_if(is_left & self._in_scope()),
            **{only.value: F.count_if(F.col("reason") == only.value) for only in PARTS},
        }
        everything = self._keep_marked("sweep_marked", marked.join(earlier, "address", "left"), measures)
        rows, misplaced = everything.manifest.rows, everything.manifest.facts["misplaced"]
        left = everything.manifest.facts["left"]
        if rows != self._mark.candidates:
            raise MarkError(
                f"The manifest of mark {self._mark.mark_id} counts {self._mark.candidates:,} objects, but its files "
                f"hold {rows:,} different ones",
                remedy=_NEW_MARK,
            )
        if misplaced:
            raise MarkError(
                f"Mark {self._mark.mark_id} has {misplaced:,} addresses that are never collected",
                remedy=_NEW_MARK,
            )
        if unrecognized := not unrecognized_too and everything.manifest.facts["unrecognized"]:
            raise MarkError(
                f"Mark {self._mark.mark_id} has {unrecognized:,} objects at the root of the namespace whose names "
                "lakeFS did not generate. They may belong to another application",
                remedy="Do not sweep this mark. Run `lakefs-gc mark`, which does not mark such objects",
            )
        self._refuse_wrong_reasons(everything)
        objects = everything.dataframe
        return self._rounds(objects if left == rows else objects.where(is_left & self._in_scope()), left)

    def _in_scope(self) -> Column:
        """Return whether an object (columns ``_MARKED``) is of the part that is swept: never without a reason."""
        return F.coalesce(F.col("reason") == self._only.value, F.lit(False)) if self._only.is_part else F.lit(True)

    def _refuse_wrong_reasons(self, marked: Dataset) -> None:
        if not self._only.is_part:
            return
        counted = {only: self._mark.reasons[only]["objects"] for only in PARTS}
        found = {only: int(marked.manifest.facts[only]) for only in PARTS}
        if found != counted or sum(found.values()) != self._mark.candidates:
            raise MarkError(
                f"The files of mark {self._mark.mark_id} hold {found[Scope.expired]:,} expired and "
                f"{found[Scope.never_committed]:,} never committed objects, but its manifest counts "
                f"{counted[Scope.expired]:,} and {counted[Scope.never_committed]:,}",
                remedy=_NEW_MARK,
            )

    def _marked(self) -> DataFrame:
        """Return the objects of the mark or part, as this sweep wrote them. Columns: ``_MARKED``."""
        marked = self._context.workspace.read(self._context.spark, self._run.run_key, "sweep_marked", _MARKED)
        return marked.dataframe.where(self._in_scope())

    def keep_recorded(self) -> DataFrame:
        """Write the ledger of the mark or part to the workspace, and return it.

        After a restore, an object that a sweep deleted may exist again. It counts as kept, because no sweep of this
        mark deletes it again. The store is asked: a restore that was killed has recorded nothing.
        """
        recorded = self.recorded()
        if self._only.is_part:
            # Sweeps of the other part write to the same ledger. Their failed deletes are not repeated here.
            recorded = recorded.join(self._marked().select("address"), "address", "left_semi")
        if self._known_restores:
            deleted = recorded.where(F.col("outcome") == ledger.DELETED).select("address")
            absent = deleted.repartition(self._context.cores * _TASKS_PER_CORE, "address").mapInArrow(
                only_absent(self._run.store), "address string"
            )
            exists = (F.col("outcome") == ledger.DELETED) & F.col("is_absent").isNull()
            recorded = recorded.join(absent.withColumn("is_absent", F.lit(True)), "address", "left").select(
                "address",
                "size",
                F.when(exists, F.lit(ledger.RESURRECTED)).otherwise(F.col("outcome")).alias("outcome"),
                F.when(exists, F.lit("restored since it was deleted")).otherwise(F.col("error")).alias("error"),
            )
        return self._keep("sweep_ledger", StageOutput(recorded, self._context.clock()), schemas.SWEEP).dataframe

    def rounds_failed(self, failed: DataFrame) -> Iterator[DataFrame]:
        """Return the marked objects whose delete ``failed`` (columns ``schemas.SWEEP``). Columns: ``_MARKED``."""
        outcome = failed.select("address", F.col("outcome").alias("recorded"))
        return self._rounds(self._marked().drop("recorded").join(outcome, "address"), failed.count())

    def _rounds(self, objects: DataFrame, count: int) -> Iterator[DataFrame]:
        """Split ``objects`` (columns ``_MARKED``, stored) into parts of about ``objects_per_look``, one for each round.

        ``count`` is the number of ``objects``.
        """
        self._total = self._done + count
        RUN_PROGRESS.count("objects", self._done, total=self._total)
        rounds = -(-count // self._settings.objects_per_look)
        if not rounds:
            return
        if rounds == 1:
            yield columns_of(objects, *_MARKED.names)
            return
        number = F.pmod(F.xxhash64("address"), F.lit(rounds)).cast("int").alias("round")
        output = StageOutput(
            objects.select(*_MARKED.names, number).repartition("round"), self._context.clock(), partition_by="round"
        )
        left = self._keep("sweep_left", output, _LEFT).dataframe
        parts = (left.where(F.col("round") == part).drop("round") for part in range(rounds))
        yield from (part for part in parts if not part.isEmpty())

    def sweep_round(self, objects: DataFrame) -> None:
        """Take second looks and delete, until each of ``objects`` (columns ``_MARKED``, not empty) has an outcome.

        Raises ``StaleLookError`` if a second look was too old before any delete could begin, and ``ApprovalError`` once
        the mark is being restored.
        """
        while True:
            refuse_restored(self._store, self._mark.mark_id, self._known_restores)
            begun, self._begun_look = self._begun_look or self._look_begun(), None
            self.looks += 1
            referenced = self._look(objects).select("address").distinct()
            verdict = (
                F.when(F.col("live"), F.lit(ledger.RESURRECTED))
                .when(F.col("unbacked"), F.lit(ledger.NOT_BACKED_UP))
                .otherwise(F.lit(DELETE))
            )
            judged = objects.join(referenced.withColumn("live", F.lit(True)), "address", "left")
            output = StageOutput(
                judged.select(
                    "address",
                    "size",
                    "last_modified",
                    verdict.alias("verdict"),
                    F.coalesce(F.col("recorded") == ledger.INTENT, F.lit(False)).alias("begun"),
                ),
                self._context.clock(),
            )
            plan = self._keep("sweep_plan", output, PLAN)
            self._check_backup()  # right before the deletes: copies may get lost during the wait for commits and a look
            if not self._delete(plan, begun, self._deadline(begun.age)):
                return
            done = self.recorded(begun.sequence).where(F.col("outcome") != ledger.INTENT).select("address")
            left = objects.join(done, "address", "left_anti")
            kept = self._keep_marked(f"sweep_round_{self.looks % 2}", left)
            if not kept.manifest.rows:
                return
            objects = kept.dataframe

    def _look_begun(self) -> _BegunLook:
        age = LookAge(self._store, self._settings.max_look_age_minutes)
        sequence = ledger.sequence_of(self._run.started_at, self.looks + 1, self._only)
        return _BegunLook(age, sequence, self._require(sequence))

    def prove(self) -> None:
        """Have all tasks before the first look compare their store, too."""
        self._require(ledger.sequence_of(self._run.started_at, 0, self._only))

    def _require(self, sequence: str) -> Witness:
        # As the look of a small run reads: with the client of ``worker_store``.
        witness = write_witness(worker_store(self._run.store), f"{MarkPaths.of(self._mark.mark_id).passes}{sequence}-")
        require_of_tasks(witness)
        return witness

    def _deadline(self, age: LookAge) -> Deadline:
        if (deadline := age.deadline()) is None:
            minutes = f"{self._settings.max_look_age_minutes:g}"
            raise StaleLookError(
                f"Reading the references took longer than sweep.max_look_age_minutes ({minutes}), so the result is too "
                "old to delete by",
                remedy="Raise sweep.max_look_age_minutes, or lower sweep.objects_per_look if the marked objects take "
                "most of the time, and sweep again: the sweep continues with the remaining objects",
            )
        return deadline

    def _delete(self, plan: Dataset, look: _BegunLook, deadline: Deadline) -> int:
        """Delete the objects of a plan (columns ``PLAN``) after its ``look``, and return how many remain.

        Raises ``StaleLookError`` if all remain, and as ``refuse_unproved``.
        """
        settings = self._settings
        refuse_unproved(look.witness)
        task = DeleteTask(
            store=self._run.store,
            mark_file=self._mark.parts[0].key,  # marks of lakeFS's client have their summary in several places
            ledger_folder=self._folder,
            sequence=look.sequence,
            objects_per_request=settings.objects_per_request,
            cutoff=self._mark.cutoff,
            delete_versions=settings.delete_versions,
            deadline=deadline,
            pacing=pacing(self._context, plan),
            restores_folder=MarkPaths.of(self._mark.mark_id).restores,
            witness=look.witness,
            known_restores=self._known_restores,
        )
        done, left = run_deletes(
            self._context, self._mark.mark_id, plan, task, done_before=self._done, total=self._total
        )
        self._done += done
        RUN_PROGRESS.count("objects", self._done, total=self._total)
        logger.info(
            "mark %s: %s objects have an outcome, %s remain for another look",
            self._mark.mark_id,
            f"{done:,}",
            f"{left:,}",
        )
        if left and not done:
            refuse_restored(self._store, self._mark.mark_id, self._known_restores)
            # Another look would end in the same way.
            raise StaleLookError(
                f"No delete of {left:,} objects could begin before the second look was older than "
                f"sweep.max_look_age_minutes ({settings.max_look_age_minutes:g})",
                remedy="Raise sweep.max_look_age_minutes. If requests are slow or limited, lower "
                "sweep.objects_per_request. Check whether Spark's tasks wait for executors. Then sweep again: "
                "the sweep continues with the remaining objects",
            )
        return left

    def _keep_marked(self, stage: str, dataframe: DataFrame, measures: dict[str, Column] | None = None) -> Dataset:
        output = StageOutput(dataframe.select(*_MARKED.names), self._context.clock(), measures=measures or {})
        return self._keep(stage, output, _MARKED)

    def _keep(self, stage: str, output: StageOutput, schema: StructType | str) -> Dataset:
        return self._context.workspace.keep(self._context.spark, self._run.run_key, stage, output, schema)
