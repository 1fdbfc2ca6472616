"""The sensor ``metrics``: writes what the marks and sweeps of the repositories have done, for Prometheus."""

from __future__ import annotations

from dagster import DefaultSensorStatus, SensorDefinition, SensorEvaluationContext, SkipReason, sensor

from lakefs_gc.config import Settings, load_server_credentials
from lakefs_gc.engine.run import repository_of
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.pipeline.names import OWN, Names

_INTERVAL_SECONDS = 300
EXTRA = "lakefs-gc[metrics]"


def metrics_sensors(settings: Settings, names: Names = OWN) -> list[SensorDefinition]:
    """Return the sensor if the settings name a receiver. Raise ``ConfigurationError`` if its package is missing."""
    if not settings.metrics.is_on:
        return []
    try:
        from lakefs_gc.report import metrics
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise ConfigurationError(
            "[metrics] needs the package prometheus_client", remedy=f"run `pip install '{EXTRA}'`"
        ) from error

    @sensor(
        name=names.name("metrics"),
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description="Writes metrics for Prometheus from the records beside the marks.",
    )
    def write_metrics(context: SensorEvaluationContext) -> SkipReason:
        partitions = context.instance.get_dynamic_partitions(str(names.runs.name))
        repositories = sorted({*settings.repositories, *map(repository_of, partitions)})
        server = LakeFSClient(load_server_credentials(), settings.lakefs)
        records = [metrics.read_records(repository, server, settings) for repository in repositories]
        metrics.deliver(metrics.metrics_of(records), settings.metrics)
        unreadable = {each.repository: each.unreadable for each in records if each.unreadable}
        return SkipReason(f"Metrics of {len(records)} repositories. Could not be read: {unreadable or 'none'}")

    return [write_metrics]
