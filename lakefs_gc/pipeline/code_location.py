"""Builds the Dagster code location from settings: assets, jobs, schedule, sensors and resources."""

from __future__ import annotations

from typing import Any

from dagster import (
    AssetsDefinition,
    AssetSpec,
    DagsterInvalidDefinitionError,
    Definitions,
    SensorDefinition,
    in_process_executor,
    load_assets_from_modules,
)

from lakefs_gc.config import Settings
from lakefs_gc.engine.spark import schemas
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.notify.senders import build_notify
from lakefs_gc.pipeline.assets import (
    active_ranges,
    backup,
    candidates,
    committed,
    forecast,
    foreign_references,
    kept,
    mark,
    missing,
    restore,
    store_listing,
    sweep,
    sweep_approval,
    uncommitted,
    unmatched,
)
from lakefs_gc.pipeline.automation.approval_sensor import approval_sensor
from lakefs_gc.pipeline.automation.forecast_sensor import forecast_sensors
from lakefs_gc.pipeline.automation.metrics_sensor import metrics_sensors
from lakefs_gc.pipeline.automation.notify_sensor import notify_sensor
from lakefs_gc.pipeline.automation.schedules import mark_schedule
from lakefs_gc.pipeline.automation.sweep_sensor import sweep_sensor
from lakefs_gc.pipeline.jobs import JOBS
from lakefs_gc.pipeline.names import OWN
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.resources.io_manager import SparkParquetIOManager
from lakefs_gc.pipeline.resources.lakefs import LakeFSResource
from lakefs_gc.pipeline.resources.settings import SettingsResource
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc.pipeline.ui.metadata import column_schema

_MODULES = (
    store_listing,
    uncommitted,
    active_ranges,
    committed,
    foreign_references,
    unmatched,
    missing,
    kept,
    candidates,
    mark,
    forecast,
    backup,
    sweep_approval,
    sweep,
    restore,
)


def build_definitions(settings: Settings) -> Definitions:
    """Return the code location for ``settings``.

    Raises ``ConfigurationError`` for settings that Dagster does not accept.
    """
    return Definitions(
        assets=build_assets(settings),
        jobs=list(JOBS),
        schedules=[mark_schedule(settings)],
        sensors=[
            sweep_sensor(settings.sweep),
            approval_sensor(settings),
            *forecast_sensors(settings),
            *_notify_sensors(settings),
            *metrics_sensors(settings),
        ],
        # One process and one Spark session for each run. Dagster's default would start a JVM for every step.
        executor=in_process_executor,
        resources=build_resources(settings),
    )


def _notify_sensors(settings: Settings) -> list[SensorDefinition]:
    notify = build_notify(settings.notify)
    return [] if notify is None else [notify_sensor(notify, OWN, [job.name for job in JOBS])]


def build_resources(settings: Settings) -> dict[str, Any]:
    """Return the resources of the code location by the names that the assets use."""
    lakefs, configured = LakeFSResource(**settings.lakefs.model_dump()), SettingsResource.of(settings)
    spark = SparkResource(spark_config=dict(settings.spark))
    parquet = SparkParquetIOManager(
        work_url=settings.resolved_work_url(), max_range_cache_bytes=settings.max_range_cache_bytes, spark=spark
    )
    engine = EngineResource(lakefs=lakefs, settings=configured, spark=spark, parquet=parquet)
    return {"lakefs": lakefs, "settings": configured, "spark": spark, "parquet": parquet, "engine": engine}


def build_assets(settings: Settings) -> list[AssetsDefinition]:
    """Return the assets. Those that need Spark are jobs on EMR if the settings say so."""
    assets = [_described(asset, settings) for asset in load_assets_from_modules(_MODULES)]
    if settings.emr is None:
        return assets
    from lakefs_gc.pipeline.emr.assets import as_jobs  # loads AWS's clients, a second

    return as_jobs(assets)


def _described(asset: object, settings: Settings) -> AssetsDefinition:
    if not isinstance(asset, AssetsDefinition):
        raise TypeError(f"not an asset: {asset!r}")

    def describe(spec: AssetSpec) -> AssetSpec:
        schema = schemas.BY_STAGE.get(spec.key.path[-1])
        metadata = {"dagster/column_schema": column_schema(schema)} if schema else {}
        return spec.replace_attributes(owners=[settings.owner], metadata={**spec.metadata, **metadata})

    try:
        return asset.map_asset_specs(describe)
    except DagsterInvalidDefinitionError as error:
        raise ConfigurationError(
            f"owner is {settings.owner!r}, which Dagster does not accept",
            remedy='set a team, e.g. owner = "team:data-platform", or an e-mail address',
        ) from error
