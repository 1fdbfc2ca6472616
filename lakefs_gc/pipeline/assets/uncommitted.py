"""Asset ``uncommitted``: what is staged."""

from dagster import asset

from lakefs_gc.engine.collect.references import uncommitted as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.pipeline.failures import failures_shown
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource


@asset(partitions_def=gc_runs, group_name="collect", kinds={"spark", "lakefs"}, io_manager_key="parquet")
@failures_shown()
def uncommitted(store_listing: Dataset, engine: EngineResource) -> StageOutput:
    """Every address that some branch's staging area, or a tracked copy, refers to.

    The server prepares the list after the store was listed, so that an object that is uploaded meanwhile is in neither.
    """
    context = engine.context()
    return stage.uncommitted(context, continue_run(context, store_listing.manifest))
