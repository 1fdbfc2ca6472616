"""The sensor that records approvals that were given elsewhere, on the records of a real instance."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from dagster import AssetKey, AssetRecordsFilter, DagsterInstance, build_sensor_context
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.sensor_definition import SensorExecutionData

from lakefs_gc.config import SafetyParameters, Settings, SweepSettings
from lakefs_gc.engine.records.approval import VIA_COMMAND_LINE, Approval
from lakefs_gc.engine.records.pending_approvals import PendingApproval
from lakefs_gc.errors import RepositoryNotFoundError, ServerUnavailableError
from lakefs_gc.pipeline.automation import approval_sensor as sensor_module
from lakefs_gc.pipeline.automation.approval_sensor import ReadApprovals, approval_sensor, read_namespaces
from lakefs_gc.pipeline.automation.sweep_sensor import SensorCursor, evaluate
from lakefs_gc.pipeline.code_location import build_definitions
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc_tests.support.materializations import mark_id_of

GIVEN_AT = datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)
FIRST, SECOND, OTHER = "lake/one", "lake/two", "pond/one"


@pytest.fixture(params=["ephemeral", "sqlite"])
def instance(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DagsterInstance]:
    on_disk = request.param == "sqlite"
    with DagsterInstance.local_temp(str(tmp_path)) if on_disk else DagsterInstance.ephemeral() as opened:
        yield opened


def standing(run_key: str, at: datetime = GIVEN_AT) -> PendingApproval:
    repository = run_key.partition("/")[0]
    approval = Approval(mark_id_of(run_key), repository, f"sha256:{run_key}", "ann", VIA_COMMAND_LINE, at)
    return PendingApproval(run_key, approval)


def tick(instance: DagsterInstance, look: ReadApprovals, *repositories: str) -> SensorExecutionData:
    """One tick, and what Dagster's daemon does with its result."""
    settings = Settings(repositories=repositories)
    sensor = approval_sensor(settings, look)
    with (
        build_sensor_context(instance=instance, definitions=build_definitions(settings)) as context,
        partition_loading_context(dynamic_partitions_store=instance),
    ):
        result = sensor.evaluate_tick(context)
    for event in result.asset_events:
        instance.report_runless_asset_event(event)
    for request in result.dynamic_partitions_requests or []:
        instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
    return result


def approvals(instance: DagsterInstance) -> list[str | None]:
    wanted = AssetRecordsFilter(asset_key=AssetKey("sweep_approval"))
    records = instance.fetch_materializations(wanted, limit=100, ascending=True).records
    return [record.partition_key for record in records]


def swept(instance: DagsterInstance) -> list[str | None]:
    found = evaluate(instance, SensorCursor(), SweepSettings(), GIVEN_AT.timestamp())
    return [request.partition_key for request in found.requests]


def test_an_approval_from_elsewhere_is_recorded_once_and_swept(instance: DagsterInstance) -> None:
    in_namespaces = {"lake": [standing(FIRST)], "pond": [standing(OTHER)]}
    # One repository of the settings, one that only has partitions.
    instance.add_dynamic_partitions(str(gc_runs.name), [OTHER])
    tick(instance, in_namespaces.__getitem__, "lake")
    assert sorted(map(str, approvals(instance))) == [FIRST, OTHER]
    assert set(instance.get_dynamic_partitions(str(gc_runs.name))) == {FIRST, OTHER}
    assert sorted(map(str, swept(instance))) == [FIRST, OTHER]
    again = tick(instance, in_namespaces.__getitem__, "lake")
    assert again.skip_message == "New approvals in the namespaces of 2 repositories: none."
    assert len(approvals(instance)) == 2
    # Given again, after a sweep that failed.
    in_namespaces["lake"] = [standing(FIRST, datetime.now(UTC))]
    tick(instance, in_namespaces.__getitem__, "lake")
    assert len(approvals(instance)) == 3
    found = evaluate(instance, SensorCursor(), SweepSettings(), GIVEN_AT.timestamp())
    assert len({request.run_key for request in found.requests}) == 3


def test_two_records_of_one_approval_are_one_sweep(instance: DagsterInstance) -> None:
    """A tick may find it in the moment between the file and the record of the one who gave it."""
    for _ in range(2):
        instance.report_runless_asset_event(sensor_module.as_materialization(standing(FIRST), SafetyParameters()))
    instance.add_dynamic_partitions(str(gc_runs.name), [FIRST])
    assert swept(instance) == [FIRST]


def test_a_repository_that_cannot_be_looked_at_stops_no_other(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sensor_module, "_TIMEOUT_SECONDS", 1.0)
    release = threading.Event()

    def look(repository: str) -> list[PendingApproval]:
        if repository == "down":
            raise ServerUnavailableError("the server does not answer", remedy="start it")
        if repository == "hangs":
            release.wait(60)
        if repository == "removed":
            raise RepositoryNotFoundError("there is no such repository", remedy="check the name")
        return [standing(FIRST)] if repository == "lake" else []

    instance.add_dynamic_partitions(str(gc_runs.name), ["removed/one"])
    tick(instance, look, "down", "hangs", "lake")
    assert approvals(instance) == [FIRST]
    for said in ("down were not read: the server does not answer", "hangs were not read: no answer within"):
        assert said in caplog.text
    assert "removed" not in caplog.text, "its partitions outlive a repository"
    silent = tick(instance, look, "down", "lake", "removed")
    assert silent.skip_message is not None
    assert "down: the server does not answer; removed: there is no such repository" in silent.skip_message
    release.set()


def test_without_a_repository_it_says_what_to_do(instance: DagsterInstance) -> None:
    assert "List them under `repositories`" in str(tick(instance, read_namespaces(Settings())).skip_message)
