"""Asset ``committed``: which addresses the active commits refer to."""

from dagster import asset

from lakefs_gc.engine import committed as stage
from lakefs_gc.engine.dataset import Dataset, StageOutput, utc_now
from lakefs_gc.engine.run import GCRun
from lakefs_gc.failures import failures_shown
from lakefs_gc.partitions import gc_runs
from lakefs_gc.resources.spark import SparkResource


@asset(partitions_def=gc_runs, group_name="collect", kinds={"spark", "lakefs"}, io_manager_key="parquet")
@failures_shown()
def committed(store_listing: Dataset, active_ranges: Dataset, spark: SparkResource) -> StageOutput:
    """Every address that an active commit refers to, once.

    Each range is read once; one that cannot be read fails the run.
    """
    run = GCRun.of(store_listing.manifest)
    return stage.committed(run, active_ranges, utc_now, cores=spark.cores)
