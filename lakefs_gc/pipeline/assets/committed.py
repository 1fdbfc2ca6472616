"""Asset ``committed``: which addresses the active commits refer to."""

from dagster import ResourceParam, asset

from lakefs_gc.engine.collect.references import committed as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput, utc_now
from lakefs_gc.pipeline.failures import failures_shown
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.io_manager import SparkParquetIOManager
from lakefs_gc.pipeline.resources.settings import SettingsResource
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc.storage.open import open_store


@asset(partitions_def=gc_runs, group_name="collect", kinds={"spark", "lakefs"}, io_manager_key="parquet")
@failures_shown()
def committed(
    store_listing: Dataset,
    active_ranges: Dataset,
    settings: SettingsResource,
    spark: SparkResource,
    parquet: ResourceParam[SparkParquetIOManager],
) -> StageOutput:
    """Every address that an active commit refers to; as often as ranges have it.

    Each range is read once, by this run or one before it; one that cannot be read fails the run.
    """
    run = continue_run(store_listing.manifest, settings.get().safety, open_store, utc_now)
    return stage.committed(run, active_ranges, utc_now, workspace=parquet.workspace, cores=spark.cores)
