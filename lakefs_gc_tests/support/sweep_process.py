"""Sweep a mark in a separate process that a test can kill: ``python -m ... FILE``, with the task as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lakefs_gc.config import Settings, SweepSettings
from lakefs_gc.engine.records.stored_marks import read_mark
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.session import start_spark
from lakefs_gc.engine.sweep.sweep import sweep
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.process_context import process_context


def main(file: Path) -> None:
    """Run the task in a file.

    Keys: ``run`` (facts of a run), ``mark_id``, ``work_url``, ``live`` (addresses), ``spark`` (configuration).
    """
    task = json.loads(file.read_text("utf-8"))
    run = GCRun.of(DatasetManifest("", "", "", utc_now(), utc_now(), 0, {"run": task["run"]}, {}))
    spark = start_spark(task["spark"])
    live = spark.createDataFrame([(address,) for address in task["live"]], schemas.UNCOMMITTED)
    context = process_context(spark, task["work_url"], Settings(sweep=SweepSettings(objects_per_request=1)))
    sweep(
        context,
        run,
        read_mark(open_store(run.store), run.repository, run.namespace, task["mark_id"]),
        lambda suspects: live,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
