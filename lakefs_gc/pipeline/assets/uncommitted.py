"""Asset ``uncommitted``: what is staged."""

from dagster import asset

from lakefs_gc.engine.collect.references import uncommitted as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput, utc_now
from lakefs_gc.pipeline.failures import failures_shown
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.lakefs import LakeFSResource
from lakefs_gc.pipeline.resources.settings import SettingsResource
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc.storage.open import open_store


@asset(partitions_def=gc_runs, group_name="collect", kinds={"spark", "lakefs"}, io_manager_key="parquet")
@failures_shown()
def uncommitted(
    store_listing: Dataset, lakefs: LakeFSResource, settings: SettingsResource, spark: SparkResource
) -> StageOutput:
    """Every address that some branch's staging area, or a tracked copy, refers to.

    The server prepares the list after the store was listed, so that an object that is uploaded meanwhile is in neither.
    """
    run = continue_run(store_listing.manifest, settings.get().safety, open_store, utc_now)
    return stage.uncommitted(spark.session, run, lakefs.server(), settings.get().safety, utc_now)
