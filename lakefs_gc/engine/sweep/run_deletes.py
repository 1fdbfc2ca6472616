"""Has the objects of a plan deleted: by Spark's workers, and in a small run by this process (``scale``).

The start of the workers takes 4 s, most of the time that the deletes of a small run would take.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import functions as F

from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.engine.records.restore_log import stop_pass
from lakefs_gc.engine.run import RunContext
from lakefs_gc.engine.spark.scale import Work, in_arrow, is_small, spread_by_range
from lakefs_gc.engine.spark.workers import Batches, driver_errors, interruptible, worker_store
from lakefs_gc.engine.sweep.deletion import PROGRESS, DeleteTask, delete_objects
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.storage.base import ObjectStore

logger = logging.getLogger(__name__)

_TASKS_PER_CORE = 2


def processes(context: RunContext) -> int:
    """Return how many processes delete at once."""
    return 1 if is_small(context.spark) else context.cores


def run_deletes(
    context: RunContext, mark_id: str, plan: Dataset, task: DeleteTask, *, done_before: int, total: int
) -> tuple[int, int]:
    """Return how many objects of a plan (columns ``PLAN``) have an outcome now, and how many remain.

    For people who wait: ``done_before`` of the ``total`` objects of the sweep were done by earlier passes.
    """
    store = context.open_store(task.store)
    with driver_errors(), _stopped_unless_it_ends(store, mark_id, task), RUN_PROGRESS.step("sweep_deletes"):
        # Progress that Spark's tasks report counts only while they run.
        running = 0 if is_small(context.spark) else plan.manifest.rows
        RUN_PROGRESS.count("objects", done_before, total=total, running=running)
        # Who interrupts this wants the deletes to stop now.
        return interruptible(lambda: _run(context, plan, task, done_before))


def _run(context: RunContext, plan: Dataset, task: DeleteTask, done_before: int) -> tuple[int, int]:
    work, here = delete_objects(task), is_small(context.spark)
    ordered = spread_by_range(plan.dataframe, context.cores * _TASKS_PER_CORE, "address")
    try:
        done = in_arrow(ordered, _counted(work, done_before) if here else work, PROGRESS)
        # The sums need every row of every task, so this action runs all deletes of the workers.
        [row] = done.agg(F.sum("done").alias("done"), F.sum("left").alias("left")).collect()
    finally:
        if here:
            worker_store(task.store).limit_requests(0)  # the limit is one of deletes, and this process goes on
    return row["done"] or 0, row["left"] or 0


def _counted(work: Work, done_before: int) -> Work:
    """Show the progress of deletes in this process."""

    def run(batches: Batches) -> Batches:
        done = done_before
        for batch in work(batches):
            done += sum(batch.column("done").to_pylist())
            RUN_PROGRESS.count("objects", done)
            yield batch

    return run


@contextmanager
def _stopped_unless_it_ends(store: ObjectStore, mark_id: str, task: DeleteTask) -> Iterator[None]:
    """Tell the deletes of a pass that fails or is canceled to begin no more of them."""
    try:
        yield
    except BaseException:
        try:
            stop_pass(store, mark_id, task.sequence)
        except LakeFSGCError as error:  # the failure of the pass matters more
            logger.warning(
                "mark %s: the deletes could not be told to stop, so they may go on until the second look is too old: "
                "%s",
                mark_id,
                error.message,
            )
        raise
