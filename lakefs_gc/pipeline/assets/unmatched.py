"""Asset ``unmatched``: which old objects no list refers to."""

from dagster import asset

from lakefs_gc.engine.decide import unmatched as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput, utc_now
from lakefs_gc.pipeline.failures import failures_shown
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.lakefs import LakeFSResource
from lakefs_gc.pipeline.resources.settings import SettingsResource
from lakefs_gc.storage.open import open_store


@asset(partitions_def=gc_runs, group_name="decide", kinds={"spark"}, io_manager_key="parquet")
@failures_shown()
def unmatched(
    store_listing: Dataset,
    uncommitted: Dataset,
    active_ranges: Dataset,
    committed: Dataset,
    foreign_references: Dataset,
    lakefs: LakeFSResource,
    settings: SettingsResource,
) -> StageOutput:
    """Listed before the cutoff, and neither committed, nor staged, nor used by another repository."""
    return stage.unmatched(
        continue_run(store_listing.manifest, settings.get().safety, open_store, utc_now),
        listing=store_listing,
        uncommitted=uncommitted,
        active_ranges=active_ranges,
        committed=committed,
        foreign_references=foreign_references,
        server=lakefs.server(),
        clock=utc_now,
    )
