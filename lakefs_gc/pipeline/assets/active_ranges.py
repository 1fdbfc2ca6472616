"""Asset ``active_ranges``: which ranges the active commits refer to."""

from dagster import ResourceParam, asset

from lakefs_gc.engine.collect.references import active_ranges as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput, utc_now
from lakefs_gc.pipeline.failures import failures_shown
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.io_manager import SparkParquetIOManager
from lakefs_gc.pipeline.resources.lakefs import LakeFSResource
from lakefs_gc.pipeline.resources.settings import SettingsResource
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc.storage.open import open_store


@asset(partitions_def=gc_runs, group_name="collect", kinds={"spark", "lakefs"}, io_manager_key="parquet")
@failures_shown()
def active_ranges(
    store_listing: Dataset,
    uncommitted: Dataset,
    lakefs: LakeFSResource,
    settings: SettingsResource,
    spark: SparkResource,
    parquet: ResourceParam[SparkParquetIOManager],
) -> StageOutput:
    """Every range that an active commit refers to, once, with the number of entries it must have.

    The commits are prepared after the uncommitted list is complete, so that an object that is committed meanwhile is
    in one of the two.  Without retention rules every commit is active, and every metadata file counts.
    """
    run = continue_run(store_listing.manifest, settings.get().safety, open_store, utc_now)
    return stage.active_ranges(
        spark.session,
        run,
        uncommitted,
        lakefs.server(),
        settings.get().safety,
        utc_now,
        cache=parquet.workspace.range_cache,
        cores=spark.cores,
    )
