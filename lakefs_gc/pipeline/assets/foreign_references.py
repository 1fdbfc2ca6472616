"""Asset ``foreign_references``: what other repositories refer to in this namespace."""

from dagster import AssetExecutionContext, ResourceParam, asset

from lakefs_gc.engine.collect.references import foreign_references as stage
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput, utc_now
from lakefs_gc.pipeline.failures import failures_shown
from lakefs_gc.pipeline.metadata import table
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.io_manager import SparkParquetIOManager
from lakefs_gc.pipeline.resources.lakefs import LakeFSResource
from lakefs_gc.pipeline.resources.settings import SettingsResource
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc.storage.open import open_store


@asset(partitions_def=gc_runs, group_name="collect", kinds={"spark", "lakefs"}, io_manager_key="parquet")
@failures_shown()
def foreign_references(
    context: AssetExecutionContext,
    store_listing: Dataset,
    lakefs: LakeFSResource,
    settings: SettingsResource,
    spark: SparkResource,
    parquet: ResourceParam[SparkParquetIOManager],
) -> StageOutput:
    """Every address of this namespace that another repository refers to by its full address (zero-copy imports)."""
    configured = settings.get()
    output = stage.foreign_references(
        spark.session,
        continue_run(store_listing.manifest, configured.safety, open_store, utc_now),
        lakefs.server(),
        configured,
        configured.safety,
        utc_now,
        workspace=parquet.workspace,
        cores=spark.cores,
    )
    unreadable = output.facts["unreadable"]
    if unreadable:
        context.log.warning(f"could not be read, and may refer to objects here: {', '.join(sorted(unreadable))}")
    context.add_output_metadata(
        {"not_proved": table([{"repository": name, "reason": why} for name, why in sorted(unreadable.items())])}
    )
    return output
