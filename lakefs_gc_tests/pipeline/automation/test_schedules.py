"""The schedule."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from dagster import (
    DagsterInstance,
    DefaultScheduleStatus,
    RunRequest,
    SkipReason,
    build_schedule_context,
)
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from lakefs_gc.config import ScheduleSettings, Settings
from lakefs_gc.pipeline.automation.schedules import mark_schedule
from lakefs_gc.pipeline.code_location import build_definitions
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc_tests.support.code_location import CodeLocation, failure_of

TICK = datetime(2026, 3, 1, 3, tzinfo=UTC)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    with DagsterInstance.local_temp(str(tmp_path)) as opened:
        yield opened


def evaluate(instance: DagsterInstance, settings: Settings, tick: datetime = TICK) -> list[RunRequest | SkipReason]:
    context = build_schedule_context(
        instance=instance,
        scheduled_execution_time=tick,
        repository_def=build_definitions(settings).get_repository_def(),
    )
    answers = mark_schedule(settings)(context)
    assert isinstance(answers, Iterator)
    return list(answers)


def partitions(instance: DagsterInstance) -> list[str]:
    return sorted(instance.get_dynamic_partitions(str(gc_runs.name)))


def test_starts_a_run_for_each_repository(instance: DagsterInstance) -> None:
    requests = evaluate(instance, Settings(repositories=("lake", "pond")))
    assert all(isinstance(request, RunRequest) for request in requests)
    keys = [request.partition_key for request in requests if isinstance(request, RunRequest)]
    assert [str(key).partition("/")[0] for key in keys] == ["lake", "pond"]
    tags = [request.tags["lakefs_gc/repository"] for request in requests if isinstance(request, RunRequest)]
    assert tags == ["lake", "pond"]
    assert partitions(instance) == [], "a dry run in the UI is such an evaluation: the runs add their partitions"


def test_same_tick_twice_is_the_same_run(instance: DagsterInstance) -> None:
    settings = Settings(repositories=("lake",))
    once, again = evaluate(instance, settings), evaluate(instance, settings)
    assert isinstance(once[0], RunRequest)
    assert isinstance(again[0], RunRequest)
    assert once[0].run_key == again[0].run_key is not None
    later = evaluate(instance, settings, TICK.replace(day=2))
    assert isinstance(later[0], RunRequest)
    assert later[0].run_key != once[0].run_key


def test_says_why_it_does_nothing_without_repositories(instance: DagsterInstance) -> None:
    (reason,) = evaluate(instance, Settings())
    assert isinstance(reason, SkipReason)
    assert "repositories" in str(reason.skip_message)
    assert partitions(instance) == []


def test_goes_by_its_settings_and_is_off_at_first() -> None:
    settings = Settings(schedule=ScheduleSettings(cron="30 1 * * 6", timezone="Europe/Berlin"))
    schedule = mark_schedule(settings)
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("30 1 * * 6", "Europe/Berlin")
    assert schedule.job_name == "gc_mark"
    assert schedule.default_status is DefaultScheduleStatus.STOPPED


def test_a_refused_run_leaves_the_assets_as_they_were(
    instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Dagster's daemon starts it. It is refused, because no server is configured."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LAKECTL_SERVER_ENDPOINT_URL", raising=False)
    settings = Settings(repositories=("lake",), work_url=(tmp_path / "work").as_uri())
    (request,) = evaluate(instance, settings)
    assert isinstance(request, RunRequest)
    location = CodeLocation.of(settings, instance)
    refused = location.start(request.tags)
    shown = failure_of(refused, "store_listing")
    assert (shown["error"], partitions(instance)) == ("ConfigurationError", [])
    assert "LAKECTL_SERVER_ENDPOINT_URL" in shown["description"]
    assert failed_assets(location) == set()
    # The same in a partition that somebody made paints them red.
    instance.add_dynamic_partitions(str(gc_runs.name), [str(request.partition_key)])
    assert not location.start(request.tags).success
    assert failed_assets(location) >= {"store_listing", "committed", "mark"}


def failed_assets(location: CodeLocation) -> set[str]:
    """The assets with a failed partition, as the UI counts them."""
    assets = [spec.key for spec in location.definitions.resolve_all_asset_specs()]
    values = {key.path[-1]: get_and_update_asset_status_cache_value(location.instance, key, gc_runs) for key in assets}
    return {
        name
        for name, value in values.items()
        if value and value.deserialize_failed_partition_subsets(gc_runs).get_partition_keys()
    }
