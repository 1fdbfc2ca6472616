"""Counts the tasks of the Spark stages in progress, for ``progress``. Asking costs a call to the driver, not a job."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, cast

from pyspark import SparkContext
from pyspark.sql import SparkSession

from lakefs_gc.engine.progress import RUN_PROGRESS, Progress, Tasks

logger = logging.getLogger(__name__)


def follow_tasks(session: SparkSession, progress: Progress = RUN_PROGRESS) -> None:
    """Have ``progress`` count the tasks of a session. A server of Spark Connect reports them every few seconds."""
    try:
        context = getattr(session, "sparkContext", None)
        if context is not None:
            progress.tasks = lambda: _tasks_of(context)
            return
        reported = ReportedTasks()
        session.registerProgressHandler(cast(Any, reported))
        progress.tasks = reported.tasks
    except Exception as error:  # progress is for people only: a session that cannot report is as good
        logger.debug("progress: the session does not report its tasks: %s", error)


def _tasks_of(context: SparkContext) -> Tasks | None:
    tracker = context.statusTracker()
    stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number))]
    if not stages:
        return None
    return Tasks(sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages))


class ReportedTasks:
    """Remembers what a Spark Connect server reported last."""

    def __init__(self) -> None:
        self._tasks: Tasks | None = None

    def tasks(self) -> Tasks | None:
        """Return the tasks of the stages in progress, or None between two operations."""
        return self._tasks

    def __call__(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        """Called by Spark."""
        running = [] if done else [stage for stage in stages or () if not stage.done]
        ended, total = sum(stage.num_completed_tasks for stage in running), sum(stage.num_tasks for stage in running)
        self._tasks = Tasks(ended, total) if running else None
