"""Asset ``active_ranges``: which ranges the active commits refer to."""

from dagster import asset

from lakefs_gc.engine.collect.references import active_ranges as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.pipeline.failures import failures_shown
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource


@asset(partitions_def=gc_runs, group_name="collect", kinds={"spark", "lakefs"}, io_manager_key="parquet")
@failures_shown()
def active_ranges(
    store_listing: Dataset,
    uncommitted: Dataset,
    engine: EngineResource,
) -> StageOutput:
    """Every range that an active commit refers to, once, with the number of entries it must have.

    The commits are prepared after the uncommitted list is complete, so that an object that is committed meanwhile is
    in one of the two.  Without retention rules every commit is active, and every metadata file counts.
    """
    context = engine.context()
    return stage.active_ranges(context, continue_run(context, store_listing.manifest), uncommitted)
