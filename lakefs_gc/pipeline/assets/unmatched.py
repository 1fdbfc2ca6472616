"""Asset ``unmatched``: objects older than the cutoff that no list refers to."""

from dagster import asset

from lakefs_gc.engine.decide.matching import unmatched as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.ui.failures import failures_shown


@asset(partitions_def=gc_runs, group_name="decide", kinds={"spark"}, io_manager_key="parquet")
@failures_shown()
def unmatched(
    store_listing: Dataset,
    uncommitted: Dataset,
    active_ranges: Dataset,
    committed: Dataset,
    foreign_references: Dataset,
    engine: EngineResource,
) -> StageOutput:
    """Objects older than the cutoff that are neither committed, nor staged, nor used by another repository."""
    context = engine.context()
    return stage.unmatched(
        context,
        continue_run(context, store_listing.manifest),
        listing=store_listing,
        uncommitted=uncommitted,
        active_ranges=active_ranges,
        committed=committed,
        foreign_references=foreign_references,
    )
