"""The one Spark of a test session: its configuration, and runs in it that are small as those of users are."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from lakefs_gc.engine.spark.scale import SMALL, is_small
from lakefs_gc.engine.spark.session import scale_session

OF_EXECUTORS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    # Adaptive execution runs each shuffle as a job of its own: 84 jobs of a mark and its sweep, and not 47. With
    # this and 4 partitions they took 16.5 s on a busy machine, and 11.7 s without.
    "spark.sql.adaptive.enabled": "false",
    # What assets take for the number of cores: few tasks for little data.
    "spark.default.parallelism": "1",
    # Runs without this configuration are small.
    SMALL: "false",
    # For a handful of rows, compiling each plan takes far longer than running it; benchmarks and the demo compile.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # So does compiling Java well: the first mark and sweep take 20 s of Java's processor time, and not 35.
    # 25 minutes of tests compile 61 MB; of the 48 MB there are otherwise, Java throws out what it needs again.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "spark.python.daemon.module": "lakefs_gc_tests.support.impatient_daemon",
}
"""Settings for a few rows, whose work executors do."""


@dataclass(frozen=True)
class ScaledSpark:
    """The ``Compute`` of a run that is small until a stage says that it is not, as in production.

    With ``may_be_small`` false, executors do the work of every run.
    """

    session: SparkSession
    cores: int
    may_be_small: bool = True

    @property
    def is_small(self) -> bool:
        """Return whether the process of the run does the work of executors."""
        return is_small(self.session)

    def scale(self, small: bool) -> None:
        """Prepare the session for a small run, or for one of any size."""
        if self.may_be_small:
            scale_session(self.session, {n: v for n, v in OF_EXECUTORS.items() if n != SMALL}, small=small)
