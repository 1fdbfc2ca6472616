"""Asset ``committed``: the addresses that active commits refer to."""

from dagster import asset

from lakefs_gc.engine.collect.references import committed as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.ui.failures import failures_shown


@asset(partitions_def=gc_runs, group_name="collect", kinds={"spark", "lakefs"}, io_manager_key="parquet")
@failures_shown()
def committed(
    store_listing: Dataset,
    active_ranges: Dataset,
    engine: EngineResource,
) -> StageOutput:
    """Every address that an active commit refers to, once for each range that contains it.

    Each range is read once, by this run or an earlier one. A range that cannot be read fails the run.
    """
    context = engine.context()
    return stage.committed(context, continue_run(context, store_listing.manifest), active_ranges)
