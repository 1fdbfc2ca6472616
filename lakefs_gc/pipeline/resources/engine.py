"""The ``RunContext`` of the engine as a Dagster resource, built from the other resources."""

from dagster import ConfigurableResource, ResourceDependency
from pydantic import PrivateAttr

from lakefs_gc.engine.ahead import Ahead
from lakefs_gc.engine.run import RunContext
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.pipeline.resources.io_manager import SparkParquetIOManager
from lakefs_gc.pipeline.resources.lakefs import LakeFSResource
from lakefs_gc.pipeline.resources.settings import SettingsResource
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc.storage.open import open_store


class EngineResource(ConfigurableResource[None]):
    """The lakeFS server, the settings, Spark and the workspace of a run."""

    lakefs: ResourceDependency[LakeFSResource]
    settings: ResourceDependency[SettingsResource]
    spark: ResourceDependency[SparkResource]
    parquet: ResourceDependency[SparkParquetIOManager]

    _ahead: Ahead = PrivateAttr(default_factory=Ahead)

    def context(self) -> RunContext:
        """Return the context of every stage. Spark and the lakeFS client start when a stage uses them."""
        return RunContext(
            compute=self.spark,
            connect=self.lakefs.server,
            settings=self.settings.get(),
            workspace=self.parquet.workspace,
            clock=utc_now,
            open_store=open_store,
            ahead=self._ahead,
        )
