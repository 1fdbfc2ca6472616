"""Asset ``missing``: referenced objects that do not exist."""

from dagster import asset

from lakefs_gc.engine.decide import missing as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.ui.failures import failures_shown


@asset(partitions_def=gc_runs, group_name="decide", kinds={"spark"}, io_manager_key="parquet")
@failures_shown()
def missing(
    store_listing: Dataset,
    uncommitted: Dataset,
    committed: Dataset,
    unmatched: Dataset,
    engine: EngineResource,
) -> StageOutput:
    """Every object that a branch or an active commit refers to and that is not in the store: data already lost."""
    context = engine.context()
    return stage.missing(
        context,
        continue_run(context, store_listing.manifest),
        listing=store_listing,
        uncommitted=uncommitted,
        committed=committed,
        unmatched=unmatched,
    )
