"""Asset ``active_ranges``: the ranges that active commits refer to."""

from dagster import asset

from lakefs_gc.engine.collect.references import active_ranges as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.ui.failures import failures_shown


@asset(partitions_def=gc_runs, group_name="collect", kinds={"spark", "lakefs"}, io_manager_key="parquet")
@failures_shown()
def active_ranges(
    store_listing: Dataset,
    uncommitted: Dataset,
    engine: EngineResource,
) -> StageOutput:
    """Every distinct range that an active commit refers to, with its expected number of entries.

    The server prepares the commits after the uncommitted list is complete, so an object that is committed meanwhile is
    in one of the two. Without retention rules every commit is active, and every metadata file is read.
    """
    context = engine.context()
    return stage.active_ranges(context, continue_run(context, store_listing.manifest), uncommitted)
