"""The sensor that computes the forecast of each mark: which marks, how often, and in which job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import AssetKey, AssetMaterialization, DagsterInstance, SensorResult, build_sensor_context

from lakefs_gc.config import Settings
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.pipeline.automation.forecast_sensor import forecast_sensors, forecasts_due
from lakefs_gc.pipeline.code_location import build_definitions
from lakefs_gc.pipeline.names import Names
from lakefs_gc.pipeline.partitions import gc_runs


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    with DagsterInstance.local_temp(str(tmp_path)) as opened:
        yield opened


def made(instance: DagsterInstance, asset: str, run_key: str, prefix: tuple[str, ...] = ()) -> None:
    """Record that an asset was materialized."""
    instance.add_dynamic_partitions(str(Names(prefix).runs.name), [run_key])
    instance.report_runless_asset_event(AssetMaterialization(AssetKey([*prefix, asset]), partition=run_key))


def due(instance: DagsterInstance, since: float, names: Names | None = None) -> list[str]:
    return [str(request.partition_key) for request in forecasts_due(instance, since, names or Names())]


def test_each_mark_without_a_forecast_is_due_oldest_first(instance: DagsterInstance) -> None:
    for run_key in ("lake/a", "pond/b", "lake/c"):
        made(instance, "mark", run_key)
    made(instance, "forecast", "pond/b")
    made(instance, "mark", "deleted/d")
    instance.delete_dynamic_partition(str(gc_runs.name), "deleted/d")
    now = time.time()
    assert due(instance, now) == ["lake/a", "lake/c"]
    assert due(instance, now + 3600) == [], "marks of before"
    # A mark that is made again in its partition has other data.
    made(instance, "mark", "pond/b")
    assert due(instance, now) == ["lake/a", "lake/c", "pond/b"]
    assert due(instance, now, Names(("gc",))) == []
    made(instance, "mark", "lake/e", ("gc",))
    assert due(instance, now, Names(("gc",))) == ["lake/e"]


def test_a_mark_is_requested_under_one_key(instance: DagsterInstance) -> None:
    """Ticks overlap, because clocks differ. Dagster starts no second run with the key of the first."""
    definitions = build_definitions(Settings())
    (sensor,) = forecast_sensors(Settings())
    first = sensor(build_sensor_context(instance, definitions=definitions))
    assert isinstance(first, SensorResult)
    assert not first.run_requests
    made(instance, "mark", "lake/a")
    keys = set()
    for _ in range(2):
        context = build_sensor_context(instance, cursor=first.cursor, definitions=definitions)
        result = sensor(context)
        assert isinstance(result, SensorResult)
        (request,) = result.run_requests or ()
        keys.add(request.run_key)
        assert (request.partition_key, request.tags["lakefs_gc/repository"]) == ("lake/a", "lake")
        assert float(str(result.cursor)) <= utc_now().timestamp()
    assert len(keys) == 1
