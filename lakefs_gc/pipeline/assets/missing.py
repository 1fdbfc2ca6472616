"""Asset ``missing``: what is referenced and not there."""

from dagster import asset

from lakefs_gc.engine.decide import missing as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput, utc_now
from lakefs_gc.pipeline.failures import failures_shown
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.settings import SettingsResource
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc.storage.open import open_store


@asset(partitions_def=gc_runs, group_name="decide", kinds={"spark"}, io_manager_key="parquet")
@failures_shown()
def missing(
    store_listing: Dataset,
    uncommitted: Dataset,
    committed: Dataset,
    unmatched: Dataset,
    settings: SettingsResource,
    spark: SparkResource,
) -> StageOutput:
    """Every object that a branch or an active commit refers to, and that does not exist: loss that has happened."""
    run = continue_run(store_listing.manifest, settings.get().safety, open_store, utc_now)
    return stage.missing(
        spark.session,
        run,
        uncommitted=uncommitted,
        committed=committed,
        unmatched=unmatched,
        clock=utc_now,
        cores=spark.cores,
    )
