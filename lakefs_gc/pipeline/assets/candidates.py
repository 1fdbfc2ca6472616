"""Asset ``candidates``: which objects may be deleted."""

from dagster import ResourceParam, asset

from lakefs_gc.engine.decide import candidates as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput, utc_now
from lakefs_gc.pipeline.failures import failures_shown
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.io_manager import SparkParquetIOManager
from lakefs_gc.pipeline.resources.settings import SettingsResource
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc.storage.open import open_store


@asset(partitions_def=gc_runs, group_name="decide", kinds={"spark"}, io_manager_key="parquet")
@failures_shown()
def candidates(
    store_listing: Dataset,
    active_ranges: Dataset,
    unmatched: Dataset,
    kept: Dataset,
    settings: SettingsResource,
    spark: SparkResource,
    parquet: ResourceParam[SparkParquetIOManager],
) -> StageOutput:
    """Unreferenced, and not kept for another reason; with the reason why it is garbage."""
    return stage.candidates(
        spark.session,
        continue_run(store_listing.manifest, settings.get().safety, open_store, utc_now),
        listing=store_listing,
        active_ranges=active_ranges,
        unmatched=unmatched,
        kept=kept,
        cache=parquet.workspace.range_cache,
        clock=utc_now,
        cores=spark.cores,
    )
