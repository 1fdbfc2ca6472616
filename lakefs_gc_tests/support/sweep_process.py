"""Sweep a mark in a separate process that a test can kill: ``python -m ... FILE``, with the task as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lakefs_gc.config import Settings, SweepSettings
from lakefs_gc.engine.records.stored_marks import read_mark
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compute import StartedSpark
from lakefs_gc.engine.spark.session import start_spark
from lakefs_gc.engine.sweep.sweep import sweep
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.engine.workspace.workspace import Workspace, utc_now
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.no_server import no_server


def main(file: Path) -> None:
    """Run the task in a file.

    Keys: ``run`` (facts of a run), ``mark_id``, ``work_url``, ``live`` (addresses), ``spark`` (configuration).
    """
    task = json.loads(file.read_text("utf-8"))
    run = GCRun.of(DatasetManifest("", "", "", utc_now(), utc_now(), 0, {"run": task["run"]}, {}))
    spark = start_spark(task["spark"])
    live = spark.createDataFrame([(address,) for address in task["live"]], schemas.UNCOMMITTED)
    context = RunContext(
        compute=StartedSpark(spark, 1),
        connect=no_server,
        settings=Settings(sweep=SweepSettings(objects_per_request=1)),
        workspace=Workspace(task["work_url"]),
        clock=utc_now,
        open_store=open_store,
    )
    sweep(
        context,
        run,
        read_mark(open_store(run.store), run.repository, run.namespace, task["mark_id"]),
        lambda suspects: live,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
