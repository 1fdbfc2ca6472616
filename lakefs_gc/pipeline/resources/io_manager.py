"""The IO manager: stores the DataFrames of the stages as Parquet in the workspace."""

from dagster import ConfigurableIOManager, InputContext, OutputContext, ResourceDependency
from pydantic import Field

from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput, Workspace, utc_now
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc.pipeline.ui.failures import failures_shown
from lakefs_gc.pipeline.ui.metadata import stage_metadata


class SparkParquetIOManager(ConfigurableIOManager):
    """Computes and stores the ``StageOutput`` of an asset, and loads it as a ``Dataset`` for the next asset.

    Nothing is computed before the asset has returned, because writing is the only action on each DataFrame.
    """

    work_url: str = Field(description="Folder that holds <repository>/<run>/<stage>: file:///folder or s3a://...")
    max_range_cache_bytes: int = Field(default=0, description="Size limit of the range cache; 0 disables it.")
    spark: ResourceDependency[SparkResource]

    @property
    def workspace(self) -> Workspace:
        """Return the workspace, for stages that write more than one DataFrame."""
        return Workspace(self.work_url, utc_now, max_range_cache_bytes=self.max_range_cache_bytes)

    def handle_output(self, context: OutputContext, obj: StageOutput) -> None:
        stage, run_key = context.asset_key.path[-1], context.partition_key
        with failures_shown():
            # This resource has another ``SparkResource`` than the stages, which does not know that a run is small.
            manifest = self.workspace.write(obj.dataframe.sparkSession, run_key, stage, obj)
        url = f"{self.workspace.folder(run_key, stage)}/data"
        context.add_output_metadata(stage_metadata(manifest, schemas.BY_STAGE[stage], url))

    def load_input(self, context: InputContext) -> Dataset:
        stage = context.asset_key.path[-1]
        with failures_shown():
            return self.workspace.read(self.spark.session, context.partition_key, stage, schemas.BY_STAGE[stage])
