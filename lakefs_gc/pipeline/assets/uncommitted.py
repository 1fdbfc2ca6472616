"""Asset ``uncommitted``: the addresses that are staged."""

from dagster import AssetExecutionContext, asset

from lakefs_gc.engine.collect.references import uncommitted as stage
from lakefs_gc.engine.collect.references.committed import begin_committed
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.selection import is_selected
from lakefs_gc.pipeline.ui.failures import failures_shown


@asset(partitions_def=gc_runs, group_name="collect", kinds={"spark", "lakefs"}, io_manager_key="parquet")
@failures_shown()
def uncommitted(context: AssetExecutionContext, store_listing: Dataset, engine: EngineResource) -> StageOutput:
    """Every address that the staging area of a branch, or a tracked copy, refers to.

    The server prepares this list after the store is listed. An object that is uploaded later is not in the listing, so
    it is not a candidate.
    """
    run_context = engine.context()
    run = continue_run(run_context, store_listing.manifest)
    if is_selected(context, "committed") and stage.is_begun(run_context, run):
        begin_committed(run_context, run)  # while the server works
    return stage.uncommitted(run_context, run)
