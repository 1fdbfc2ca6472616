"""Asset ``candidates``: the objects that may be deleted."""

from dagster import asset

from lakefs_gc.engine.decide import candidates as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.ui.failures import failures_shown


@asset(partitions_def=gc_runs, group_name="decide", kinds={"spark"}, io_manager_key="parquet")
@failures_shown()
def candidates(
    store_listing: Dataset,
    active_ranges: Dataset,
    unmatched: Dataset,
    kept: Dataset,
    engine: EngineResource,
) -> StageOutput:
    """Every object that is unreferenced and not kept for another reason, with the reason why it may be deleted."""
    context = engine.context()
    return stage.candidates(
        context,
        continue_run(context, store_listing.manifest),
        listing=store_listing,
        active_ranges=active_ranges,
        unmatched=unmatched,
        kept=kept,
    )
