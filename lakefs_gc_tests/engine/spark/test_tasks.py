"""The tasks of running stages, as Spark counts them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from lakefs_gc.engine.progress import Progress, Tasks
from lakefs_gc.engine.spark.tasks import ReportedTasks, follow_tasks


def test_tasks_of_a_job_are_counted_while_it_runs(spark: SparkSession) -> None:
    progress = Progress()
    follow_tasks(spark, progress)
    assert progress.tasks() is None

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(0.3)
            yield batch

    rows = spark.range(0, 8, 1, 8).mapInArrow(slowly, "id long")
    job = threading.Thread(target=rows.collect)
    job.start()
    seen = set()
    while job.is_alive():
        seen.add(progress.tasks())
        time.sleep(0.02)
    totals = {tasks.total for tasks in seen if tasks}
    assert totals == {8}
    assert any(0 < tasks.ended < 8 for tasks in seen if tasks)
    assert progress.tasks() is None


def stage(ended: int, total: int, *, done: bool = False) -> Any:
    return SimpleNamespace(num_completed_tasks=ended, num_tasks=total, done=done)


class Connected:
    """A session of Spark Connect, as far as progress goes."""

    def __init__(self) -> None:
        self.handler: Any = None

    def registerProgressHandler(self, handler: Any) -> None:  # noqa: N802 - Spark's name
        self.handler = handler


def test_a_connect_server_reports_its_tasks() -> None:
    progress, session = Progress(), Connected()
    follow_tasks(session, progress)  # type: ignore[arg-type]
    assert progress.tasks() is None
    session.handler([stage(4, 4, done=True), stage(3, 8)], inflight_tasks=2, operation_id="x", done=False)
    assert progress.tasks() == Tasks(3, 8)
    session.handler([stage(8, 8)], inflight_tasks=0, operation_id="x", done=True)
    assert progress.tasks() is None


def test_a_session_that_reports_nothing_is_as_good() -> None:
    progress = Progress()
    follow_tasks(object(), progress)  # type: ignore[arg-type]
    assert progress.tasks() is None
    reported = ReportedTasks()
    reported(None, 0, None, False)
    assert reported.tasks() is None
