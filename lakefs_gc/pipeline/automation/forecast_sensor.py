"""The sensor ``forecast_after_mark``: computes the forecast of each mark, so that its report has the curve.

The forecast is a run of its own after the mark. As a part of ``gc_mark`` it would delay each mark, and its failure
would fail the run of a mark that is complete.
"""

from __future__ import annotations

from collections.abc import Iterator

from dagster import (
    AssetRecordsFilter,
    DagsterInstance,
    DefaultSensorStatus,
    EventLogRecord,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    sensor,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from lakefs_gc.config import Settings
from lakefs_gc.engine.workspace.workspace import Clock, utc_now
from lakefs_gc.pipeline.jobs import gc_forecast
from lakefs_gc.pipeline.names import OWN, Names
from lakefs_gc.pipeline.partitions import repository_tags

_INTERVAL_SECONDS = 30
_MOST_MARKS = 100
_OVERLAP_SECONDS = 300.0
"""Clocks of machines may differ by this much (rule 2). A run key stops the second request for a mark."""


def forecast_sensors(
    settings: Settings,
    job: UnresolvedAssetJobDefinition = gc_forecast,
    names: Names = OWN,
    clock: Clock = utc_now,
) -> list[SensorDefinition]:
    """Return the sensor that runs ``job`` for the partition of each new mark. It is running by default.

    None with ``emr`` in the settings, where each forecast would start machines.
    """
    if settings.emr is not None:
        return []

    @sensor(
        name=names.name("forecast_after_mark"),
        job=job,
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description="Computes the forecast of each new mark, and adds its curve to the report. Deletes nothing.",
    )
    def forecast_after_mark(context: SensorEvaluationContext) -> SensorResult:
        now = clock().timestamp()
        if not context.cursor:
            # Marks of before the sensor was switched on have no forecast, unless somebody asks for one.
            return SensorResult(skip_reason="Starts now.", cursor=str(now))
        requests = list(forecasts_due(context.instance, float(context.cursor), names))
        if requests:
            return SensorResult(run_requests=requests, cursor=str(now))
        return SensorResult(skip_reason="No new mark.", cursor=str(now))

    return [forecast_after_mark]


def forecasts_due(instance: DagsterInstance, since_epoch_seconds: float, names: Names = OWN) -> Iterator[RunRequest]:
    """Yield a request for each mark since a time, or a little earlier, that no forecast of its run has followed."""
    since = since_epoch_seconds - _OVERLAP_SECONDS
    partitions = str(names.runs.name)
    marks = _records(instance, AssetRecordsFilter(asset_key=names.key("mark"), after_timestamp=since))
    for mark in reversed(marks):
        run_key = mark.partition_key
        # A request for a partition that was deleted would fail this tick and each later one.
        if run_key is None or not instance.has_dynamic_partition(partitions, run_key):
            continue
        wanted = AssetRecordsFilter(
            asset_key=names.key("forecast"), asset_partitions=[run_key], after_timestamp=mark.timestamp
        )
        if not _records(instance, wanted):
            yield RunRequest(
                run_key=f"{run_key}:{mark.timestamp:.6f}:forecast",
                partition_key=run_key,
                tags=dict(repository_tags(run_key)),
            )


def _records(instance: DagsterInstance, wanted: AssetRecordsFilter) -> list[EventLogRecord]:
    """Return the newest materializations first."""
    return list(instance.fetch_materializations(wanted, limit=_MOST_MARKS).records)
