"""Asset ``kept``: unmatched objects that are not collected."""

from dagster import asset

from lakefs_gc.engine.decide import kept as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.ui.failures import failures_shown


@asset(partitions_def=gc_runs, group_name="decide", kinds={"spark", "lakefs"}, io_manager_key="parquet")
@failures_shown()
def kept(
    store_listing: Dataset,
    uncommitted: Dataset,
    unmatched: Dataset,
    missing: Dataset,
    engine: EngineResource,
) -> StageOutput:
    """Unmatched objects that are kept: those that a branch shows although no list has them, and protected paths.

    The server omits an object from its uncommitted list if it overwrites a committed one of identical content.
    """
    context = engine.context()
    return stage.kept(
        context,
        continue_run(context, store_listing.manifest),
        uncommitted=uncommitted,
        unmatched=unmatched,
        missing=missing,
    )
