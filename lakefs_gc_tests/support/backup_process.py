"""Back up a mark in a separate process that a test can kill: ``python -m ... FILE``, with the task as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lakefs_gc.config import BackupSettings, ServerCredentials, Settings
from lakefs_gc.engine.records.stored_marks import read_mark
from lakefs_gc.engine.spark.session import start_spark
from lakefs_gc.engine.undo.backup import backup
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.process_context import process_context


def main(file: Path) -> None:
    """Run the task in a file.

    Keys: ``store``, ``repository``, ``namespace``, ``mark_id``, ``place``, ``work_url``, ``run_key``, ``spark`` and
    ``server`` (credentials).
    """
    task = json.loads(file.read_text("utf-8"))
    store = StoreLocation(task["store"])
    settings = Settings(backup=BackupSettings(copies_at_once=2))
    server = LakeFSClient(ServerCredentials(**task["server"]))
    context = process_context(start_spark(task["spark"]), task["work_url"], settings, lambda: server)
    backup(
        context,
        store,
        read_mark(open_store(store), task["repository"], task["namespace"], task["mark_id"]),
        StoreLocation(task["place"]),
        run_key=task["run_key"],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
