"""Asset ``hidden_twins``: what a branch shows although the server's uncommitted list leaves it out."""

from dagster import ResourceParam, asset

from lakefs_gc.engine import hidden_twins as stage
from lakefs_gc.engine.dataset import Dataset, StageOutput, utc_now
from lakefs_gc.engine.run import GCRun
from lakefs_gc.failures import failures_shown
from lakefs_gc.partitions import gc_runs
from lakefs_gc.resources.io_manager import SparkParquetIOManager
from lakefs_gc.resources.lakefs import LakeFSResource
from lakefs_gc.resources.settings import SettingsResource
from lakefs_gc.resources.spark import SparkResource


@asset(partitions_def=gc_runs, group_name="decide", kinds={"spark", "lakefs"}, io_manager_key="parquet")
@failures_shown()
def hidden_twins(
    store_listing: Dataset,
    uncommitted: Dataset,
    unreferenced: Dataset,
    lakefs: LakeFSResource,
    settings: SettingsResource,
    spark: SparkResource,
    parquet: ResourceParam[SparkParquetIOManager],
) -> StageOutput:
    """Unreferenced, it seems, and kept: an object that overwrote a committed one of identical content is in no list."""
    return stage.hidden_twins(
        spark.session,
        GCRun.of(store_listing.manifest),
        uncommitted=uncommitted,
        unreferenced=unreferenced,
        work_place=parquet.work_place,
        server=lakefs.server(),
        safety=settings.get().safety,
        clock=utc_now,
        cores=spark.cores,
    )
