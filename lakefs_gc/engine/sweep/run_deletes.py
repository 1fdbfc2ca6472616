"""Has the objects of a plan deleted: by Spark's workers, and if there are few in a small run (``scale``), here.

The start of the workers takes 4 s, most of the time that few deletes would take. Beyond ``_MOST_HERE`` the workers are
faster: 150,000 files of a local store take them 17 s with their start, and one process 26 s.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow.compute as pc
from pyspark.sql import functions as F

from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.engine.records.restore_log import stop_pass
from lakefs_gc.engine.run import RunContext
from lakefs_gc.engine.spark.compat import arrow_schema, to_arrow
from lakefs_gc.engine.spark.local_rows import struct_of
from lakefs_gc.engine.spark.scale import Work, is_small, work_here
from lakefs_gc.engine.spark.witness import refuse_other_workers
from lakefs_gc.engine.spark.workers import Batches, driver_errors, interruptible, worker_store
from lakefs_gc.engine.sweep.deletion import (
    CONNECTIONS,
    PROGRESS,
    DeleteTask,
    Pacing,
    delete_objects,
    delete_objects_here,
)
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.storage.base import ObjectStore

logger = logging.getLogger(__name__)

_TASKS_PER_CORE = 2
_MOST_HERE = 40_000


def pacing(context: RunContext, plan: Dataset) -> Pacing:
    """Return how fast each process may delete the objects of a plan, so that all together keep to the settings."""
    settings, cores = context.settings.sweep, context.cores
    if _is_done_here(context, plan):
        return Pacing(min(settings.requests_at_once * cores, CONNECTIONS), settings.max_requests_per_second)
    return Pacing(settings.requests_at_once, settings.max_requests_per_second / cores)


def run_deletes(
    context: RunContext, mark_id: str, plan: Dataset, task: DeleteTask, *, done_before: int, total: int
) -> tuple[int, int]:
    """Return how many objects of a plan (columns ``PLAN``) have an outcome now, and how many remain.

    For people who wait: ``done_before`` of the ``total`` objects of the sweep were done by earlier passes.
    """
    store, here, stopped = worker_store(task.store), _is_done_here(context, plan), threading.Event()
    with driver_errors(), _stopped_unless_it_ends(store, mark_id, task, stopped), RUN_PROGRESS.step("sweep_deletes"):
        # Progress that Spark's tasks report counts only while they run.
        RUN_PROGRESS.count("objects", done_before, total=total, running=0 if here else plan.manifest.rows)
        # Who interrupts this wants the deletes to stop now.
        return interruptible(
            lambda: _here(plan, task, stopped, done_before) if here else _by_workers(context, plan, task)
        )


def _is_done_here(context: RunContext, plan: Dataset) -> bool:
    return is_small(context.spark) and plan.manifest.rows <= _MOST_HERE


def _here(plan: Dataset, task: DeleteTask, stopped: threading.Event, done_before: int) -> tuple[int, int]:
    planned = to_arrow(plan.dataframe.sort("address"))
    work = _counted(delete_objects_here(task, stopped), done_before)
    progress = work_here(planned.to_batches(), work, arrow_schema(struct_of(PROGRESS)))
    return pc.sum(progress["done"]).as_py() or 0, pc.sum(progress["left"]).as_py() or 0


def _by_workers(context: RunContext, plan: Dataset, task: DeleteTask) -> tuple[int, int]:
    refuse_other_workers(context.spark, task.witness, worker_store(task.store), context.cores)
    # The sums need every row of every task, so this action runs all deletes.
    [row] = (
        plan.dataframe.repartitionByRange(context.cores * _TASKS_PER_CORE, "address")
        .sortWithinPartitions("address")
        .mapInArrow(delete_objects(task), PROGRESS)
        .agg(F.sum("done").alias("done"), F.sum("left").alias("left"))
        .collect()
    )
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
def _stopped_unless_it_ends(
    store: ObjectStore, mark_id: str, task: DeleteTask, stopped: threading.Event
) -> Iterator[None]:
    """Tell the deletes of a pass that fails or is canceled to begin no more of them: those here by ``stopped``."""
    try:
        yield
    except BaseException:
        stopped.set()
        try:
            stop_pass(store, mark_id, task.sequence)
        except Exception as error:  # the failure of the pass matters more
            logger.warning(
                "mark %s: Spark's workers, if there are any, could not be told to stop. They may go on until the "
                "second look is too old: %s",
                mark_id,
                error.message if isinstance(error, LakeFSGCError) else error,
            )
        raise
