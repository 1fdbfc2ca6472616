"""The context of a stage that a test runs in a separate process."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from lakefs_gc.config import Settings
from lakefs_gc.engine.run import RunContext
from lakefs_gc.engine.spark.compute import StartedSpark
from lakefs_gc.engine.workspace.workspace import Workspace, utc_now
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.no_server import no_server


def process_context(
    spark: SparkSession, work_url: str, settings: Settings, connect: Callable[[], LakeFSClient] = no_server
) -> RunContext:
    """Return a context with one core and, unless ``connect`` makes the client of one, without a lakeFS server."""
    return RunContext(
        compute=StartedSpark(spark, 1),
        connect=connect,
        settings=settings,
        workspace=Workspace(work_url),
        clock=utc_now,
        open_store=open_store,
    )
