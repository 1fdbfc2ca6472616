"""Asset ``candidates``: which objects may be deleted."""

from dagster import ResourceParam, asset

from lakefs_gc.engine import candidates as stage
from lakefs_gc.engine.dataset import Dataset, StageOutput, utc_now
from lakefs_gc.engine.run import GCRun
from lakefs_gc.failures import failures_shown
from lakefs_gc.partitions import gc_runs
from lakefs_gc.resources.io_manager import SparkParquetIOManager
from lakefs_gc.resources.spark import SparkResource


@asset(partitions_def=gc_runs, group_name="decide", kinds={"spark"}, io_manager_key="parquet")
@failures_shown()
def candidates(
    store_listing: Dataset,
    active_ranges: Dataset,
    unmatched: Dataset,
    kept: Dataset,
    spark: SparkResource,
    parquet: ResourceParam[SparkParquetIOManager],
) -> StageOutput:
    """Unreferenced, and not kept for another reason; with the reason why it is garbage."""
    return stage.candidates(
        spark.session,
        GCRun.of(store_listing.manifest),
        listing=store_listing,
        active_ranges=active_ranges,
        unmatched=unmatched,
        kept=kept,
        cache=parquet.work_place.range_cache,
        clock=utc_now,
        cores=spark.cores,
    )
