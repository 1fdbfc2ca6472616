"""Asset ``kept``: what looks unmatched and is not collected."""

from dagster import ResourceParam, asset

from lakefs_gc.engine.decide import kept as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput, utc_now
from lakefs_gc.pipeline.failures import failures_shown
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.io_manager import SparkParquetIOManager
from lakefs_gc.pipeline.resources.lakefs import LakeFSResource
from lakefs_gc.pipeline.resources.settings import SettingsResource
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc.storage.open import open_store


@asset(partitions_def=gc_runs, group_name="decide", kinds={"spark", "lakefs"}, io_manager_key="parquet")
@failures_shown()
def kept(
    store_listing: Dataset,
    uncommitted: Dataset,
    unmatched: Dataset,
    lakefs: LakeFSResource,
    settings: SettingsResource,
    spark: SparkResource,
    parquet: ResourceParam[SparkParquetIOManager],
) -> StageOutput:
    """Unreferenced, it seems, and kept: what a branch shows and no list has, and what lies under protected paths.

    An object that overwrites a committed one of identical content is left out of the server's uncommitted list.
    """
    return stage.kept(
        spark.session,
        continue_run(store_listing.manifest, settings.get().safety, open_store, utc_now),
        uncommitted=uncommitted,
        unmatched=unmatched,
        workspace=parquet.workspace,
        server=lakefs.server(),
        safety=settings.get().safety,
        clock=utc_now,
        cores=spark.cores,
    )
