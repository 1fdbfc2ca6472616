"""The sensor, on the records of a real instance."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    DagsterInstance,
    MaterializeResult,
    RunRequest,
    SensorResult,
    SkipReason,
    asset,
    build_sensor_context,
)
from dagster import materialize as materialize_assets
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.sensor_definition import SensorExecutionData

import lakefs_gc.pipeline.automation.sweep_sensor as sensors
from lakefs_gc.config import Settings, SweepSettings
from lakefs_gc.engine.scope import Scope
from lakefs_gc.pipeline.assets.sweep import SweepConfig
from lakefs_gc.pipeline.automation.sweep_sensor import SensorCursor, evaluate, sweep_sensor
from lakefs_gc.pipeline.code_location import build_definitions
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc_tests.support.materializations import (
    mark_id_of,
    record_approval,
    record_manually,
    record_mark,
    record_sweep,
)

FIRST, SECOND, OTHER = "lake/one", "lake/two", "pond/one"
MANUAL = SweepSettings()
AFTER = SweepSettings(policy="after", delay_hours=6)
IMMEDIATELY = SweepSettings(policy="immediately")


@pytest.fixture(params=["ephemeral", "sqlite"])
def instance(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DagsterInstance]:
    on_disk = request.param == "sqlite"
    with DagsterInstance.local_temp(str(tmp_path)) if on_disk else DagsterInstance.ephemeral() as opened:
        yield opened


def now() -> float:
    return datetime.now(UTC).timestamp()


def in_hours(hours: float) -> float:
    return now() + hours * 3600


def swept(requests: list[RunRequest]) -> list[str | None]:
    return [request.partition_key for request in requests]


def config_of(request: RunRequest) -> dict[str, Any]:
    config: dict[str, Any] = request.run_config["ops"]["sweep"]["config"]
    return config


def test_manual_policy_waits_for_the_approval(instance: DagsterInstance) -> None:
    digest = record_mark(instance, FIRST)
    requests, cursor, _ = evaluate(instance, SensorCursor(), MANUAL, in_hours(1000))
    assert requests == []

    record_approval(instance, FIRST, digest)
    requests, cursor, _ = evaluate(instance, cursor, MANUAL, now())
    assert swept(requests) == [FIRST]
    assert config_of(requests[0])["mark_id"] == mark_id_of(FIRST)
    # The approval stands beside the mark: the sweep reads it, and is given none on the way.
    assert config_of(requests[0])["approve_digest"] == ""
    assert requests[0].tags["lakefs_gc/repository"] == "lake"
    assert requests[0].partition_key == FIRST

    assert evaluate(instance, cursor, MANUAL, now())[0] == []


def test_several_approvals_between_two_ticks_lose_none(instance: DagsterInstance) -> None:
    for run_key in (FIRST, SECOND, OTHER):
        record_approval(instance, run_key, record_mark(instance, run_key))
    requests, _, _ = evaluate(instance, SensorCursor(), MANUAL, now())
    assert swept(requests) == [FIRST, SECOND, OTHER]
    assert {request.tags["lakefs_gc/repository"] for request in requests} == {"lake", "pond"}
    assert len({request.run_key for request in requests}) == 3


def test_immediate_policy_sweeps_every_mark_once(instance: DagsterInstance) -> None:
    digests = [record_mark(instance, run_key) for run_key in (FIRST, SECOND)]
    requests, cursor, _ = evaluate(instance, SensorCursor(), IMMEDIATELY, now())
    assert swept(requests) == [FIRST, SECOND]
    # What the policy approves is the digest that the mark had: a mark that is changed meanwhile is refused.
    assert [config_of(request)["approve_digest"] for request in requests] == digests
    assert config_of(requests[0])["approved_via"] == "policy immediately"
    assert cursor.waiting == ()
    assert evaluate(instance, cursor, IMMEDIATELY, in_hours(1))[0] == []


def test_what_a_policy_may_sweep_was_fixed_when_the_mark_was_made(instance: DagsterInstance) -> None:
    """A cursor that was reset, or a policy that is new, brings old marks to light: they were made for a person."""
    record_mark(instance, FIRST, policy="manual")
    record_manually(instance, "mark", OTHER)
    record_mark(instance, SECOND, policy="after", delay_hours=24)
    for settings in (IMMEDIATELY, AFTER):
        requests, cursor, _ = evaluate(instance, SensorCursor(), settings, in_hours(23))
        assert (requests, [waiting.run_key for waiting in cursor.waiting]) == ([], [SECOND])
        assert swept(evaluate(instance, cursor, settings, in_hours(25))[0]) == [SECOND], "the longer delay holds"
    assert evaluate(instance, SensorCursor(), MANUAL, in_hours(1000))[0] == []


def test_delayed_policy_waits_and_then_sweeps_once(instance: DagsterInstance) -> None:
    record_mark(instance, FIRST)
    requests, cursor, _ = evaluate(instance, SensorCursor(), AFTER, now())
    assert requests == []
    assert [mark.run_key for mark in cursor.waiting] == [FIRST]
    assert evaluate(instance, cursor, AFTER, in_hours(5.9))[0] == []

    requests, cursor, _ = evaluate(instance, cursor, AFTER, in_hours(6.1))
    assert swept(requests) == [FIRST]
    assert cursor.waiting == ()
    assert evaluate(instance, cursor, AFTER, in_hours(7))[0] == []


def test_approval_comes_before_the_delay_and_replaces_it(instance: DagsterInstance) -> None:
    digest = record_mark(instance, FIRST)
    record_mark(instance, SECOND)
    _, cursor, _ = evaluate(instance, SensorCursor(), AFTER, now())
    record_approval(instance, FIRST, digest)
    requests, cursor, _ = evaluate(instance, cursor, AFTER, now())
    assert swept(requests) == [FIRST]
    requests, _, _ = evaluate(instance, cursor, AFTER, in_hours(7))
    assert swept(requests) == [SECOND]


def test_approval_of_another_digest_leaves_the_mark_waiting(instance: DagsterInstance) -> None:
    record_mark(instance, FIRST)
    _, cursor, _ = evaluate(instance, SensorCursor(), AFTER, now())
    record_approval(instance, FIRST, "sha256:of-another")
    _, cursor, _ = evaluate(instance, cursor, AFTER, now())
    assert [mark.digest for mark in cursor.waiting] == [f"sha256:{FIRST}"]


def test_marks_that_wait_are_left_to_people_when_the_policy_becomes_manual(instance: DagsterInstance) -> None:
    record_mark(instance, FIRST)
    _, cursor, _ = evaluate(instance, SensorCursor(), AFTER, now())
    requests, cursor, _ = evaluate(instance, cursor, MANUAL, in_hours(7))
    assert (requests, cursor.waiting) == ([], ())


@pytest.mark.parametrize("settings", [AFTER, IMMEDIATELY], ids=lambda settings: settings.policy)
def test_policies_leave_empty_marks_alone(instance: DagsterInstance, settings: SweepSettings) -> None:
    record_mark(instance, FIRST, candidates=0)
    requests, cursor, _ = evaluate(instance, SensorCursor(), settings, in_hours(100))
    assert (requests, cursor.waiting) == ([], ())


def test_approval_given_again_after_a_failed_sweep_starts_another(instance: DagsterInstance) -> None:
    digest = record_mark(instance, FIRST)
    record_approval(instance, FIRST, digest)
    first, cursor, _ = evaluate(instance, SensorCursor(), MANUAL, now())
    # A failed sweep leaves no materialization.
    record_approval(instance, FIRST, digest)
    second, _, _ = evaluate(instance, cursor, MANUAL, now())
    assert swept(first) == swept(second) == [FIRST]
    assert first[0].run_key != second[0].run_key
    assert digest in str(first[0].run_key)


def test_what_was_swept_after_its_approval_is_not_swept_again(instance: DagsterInstance) -> None:
    # Approved and swept on the command line, in the same instance, before the sensor was ever switched on.
    digest = record_mark(instance, FIRST)
    record_approval(instance, FIRST, digest)
    record_sweep(instance, FIRST, digest)
    for settings in (MANUAL, AFTER, IMMEDIATELY):
        assert evaluate(instance, SensorCursor(), settings, in_hours(100))[0] == []
    # Or swept at once: there naming the mark is its approval.
    record_sweep(instance, "lake/three", record_mark(instance, "lake/three"))
    for settings in (AFTER, IMMEDIATELY):
        assert evaluate(instance, SensorCursor(), settings, in_hours(100))[0] == []
    # A sweep of another mark, or of another partition, says nothing about this one.
    record_approval(instance, SECOND, record_mark(instance, SECOND))
    record_sweep(instance, SECOND, "sha256:of-another")
    record_sweep(instance, OTHER, f"sha256:{SECOND}")
    assert swept(evaluate(instance, SensorCursor(), MANUAL, now())[0]) == [SECOND]
    # And approving once more after the sweep asks for a new one.
    record_approval(instance, FIRST, digest)
    assert FIRST in swept(evaluate(instance, SensorCursor(), MANUAL, now())[0])


def test_reads_past_one_page(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "_PAGE", 3)
    run_keys = [f"lake/{number}" for number in range(7)]
    for run_key in run_keys:
        record_approval(instance, run_key, record_mark(instance, run_key))
    requests, cursor, _ = evaluate(instance, SensorCursor(), MANUAL, now())
    assert swept(requests) == run_keys
    assert evaluate(instance, cursor, MANUAL, now())[0] == []
    policy_requests, _, _ = evaluate(instance, SensorCursor(), IMMEDIATELY, now())
    assert sorted(map(str, swept(policy_requests))) == sorted(run_keys)


def test_mark_made_during_a_tick_is_seen_in_the_next(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_mark(instance, FIRST)
    real = instance.fetch_materializations
    fetched: list[str] = []

    def fetch_and_mark(records_filter: Any, *args: Any, **kwargs: Any) -> Any:
        page = real(records_filter, *args, **kwargs)
        if not fetched:
            record_mark(instance, SECOND)
        fetched.append(records_filter.asset_key.path[-1])
        return page

    monkeypatch.setattr(instance, "fetch_materializations", fetch_and_mark)
    requests, cursor, _ = evaluate(instance, SensorCursor(), IMMEDIATELY, now())
    assert swept(requests) == [FIRST]
    assert fetched
    assert swept(evaluate(instance, cursor, IMMEDIATELY, now())[0]) == [SECOND]


@pytest.mark.parametrize("asset", ["mark", "sweep_approval", "sweep"])
def test_materialization_reported_by_hand_neither_sweeps_nor_stops_the_sensor(
    instance: DagsterInstance, asset: str, caplog: pytest.LogCaptureFixture
) -> None:
    record_manually(instance, asset, FIRST)
    requests, cursor, _ = evaluate(instance, SensorCursor(), IMMEDIATELY, now())
    assert requests == []
    record_approval(instance, SECOND, record_mark(instance, SECOND))
    record_manually(instance, asset, SECOND)
    assert swept(evaluate(instance, cursor, MANUAL, now())[0]) == [SECOND]
    assert "was not made by lakefs-gc" in caplog.text


@pytest.mark.of_ci(
    "sqlite-1-immediately", "sqlite-1-manual", "sqlite-1-after", "sqlite-5-after", "sqlite-5-immediately"
)
@pytest.mark.parametrize("settings", [MANUAL, AFTER, IMMEDIATELY], ids=lambda settings: settings.policy)
@pytest.mark.parametrize("new", [1, 5])
def test_what_comes_after_runs_were_deleted_is_seen(
    instance: DagsterInstance, settings: SweepSettings, new: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite gives the storage ids of the newest records out again, fewer than there were or more."""
    monkeypatch.setattr(sensors, "_PAGE", 2)
    # An approval takes the place of what a policy does.
    names = ("mark", "sweep_approval") if settings == MANUAL else ("mark",)
    materialize(instance, "lake/stays", *names)
    runs = [materialize(instance, f"lake/trial-{number}", *names) for number in range(3)]
    before, cursor, _ = evaluate(instance, SensorCursor(), settings, in_hours(7))
    assert {"lake/trial-0", "lake/trial-1", "lake/trial-2"} < set(swept(before))
    for run_id in runs:
        instance.delete_run(run_id)
    expected = [f"lake/real-{number}" for number in range(new)]
    for run_key in expected:
        materialize(instance, run_key, *names)
    requests, cursor, _ = evaluate(instance, cursor, settings, in_hours(7))
    # What was seen shortly before may be asked for again, under the same run key: Dagster starts no second run.
    known = {request.run_key for request in before}
    assert swept([request for request in requests if request.run_key not in known]) == expected
    assert evaluate(instance, cursor, settings, in_hours(8))[0] == []


@pytest.mark.parametrize("settings", [MANUAL, IMMEDIATELY], ids=lambda settings: settings.policy)
def test_what_comes_after_all_runs_were_deleted_is_seen(instance: DagsterInstance, settings: SweepSettings) -> None:
    runs = [materialize(instance, run_key) for run_key in (FIRST, SECOND)]
    _, cursor, _ = evaluate(instance, SensorCursor(), settings, now())
    for run_id in runs:
        instance.delete_run(run_id)
    requests, cursor, _ = evaluate(instance, cursor, settings, now())
    assert requests == []
    materialize(instance, OTHER)
    requests, cursor, _ = evaluate(instance, cursor, settings, now())
    assert set(swept(requests)) == {OTHER}
    assert evaluate(instance, cursor, settings, now())[0] == []


def test_an_approval_with_the_storage_id_of_a_deleted_one_is_another(instance: DagsterInstance) -> None:
    run_id = materialize(instance, FIRST)
    first, cursor, _ = evaluate(instance, SensorCursor(), MANUAL, now())
    instance.delete_run(run_id)
    materialize(instance, FIRST)
    second, _, _ = evaluate(instance, cursor, MANUAL, now())
    assert swept(first) == swept(second) == [FIRST]
    assert first[0].run_key != second[0].run_key


def test_old_records_are_not_taken_for_new_ones_when_runs_are_deleted(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "_OVERLAP_SECONDS", 0.0)
    materialize(instance, FIRST)
    last = materialize(instance, SECOND)
    _, cursor, _ = evaluate(instance, SensorCursor(), IMMEDIATELY, now())
    instance.delete_run(last)
    requests, cursor, _ = evaluate(instance, cursor, IMMEDIATELY, now())
    assert requests == []
    materialize(instance, OTHER)
    assert set(swept(evaluate(instance, cursor, IMMEDIATELY, now())[0])) == {OTHER}


def test_a_mark_that_waits_is_not_there_twice_after_runs_were_deleted(instance: DagsterInstance) -> None:
    record_mark(instance, FIRST)
    last = materialize(instance, SECOND, "mark")
    _, cursor, _ = evaluate(instance, SensorCursor(), AFTER, now())
    instance.delete_run(last)
    _, again, _ = evaluate(instance, cursor, AFTER, now())
    assert again.waiting == cursor.waiting
    assert swept(evaluate(instance, again, AFTER, in_hours(7))[0]) == [FIRST, SECOND]


def test_cursor_of_an_older_version_goes_on(instance: DagsterInstance, caplog: pytest.LogCaptureFixture) -> None:
    """It knows no times: what was deleted before the first tick is not made up for, and nothing old is started."""
    materialize(instance, FIRST)
    last = materialize(instance, SECOND)
    _, known, _ = evaluate(instance, SensorCursor(), MANUAL, now())
    ids = {"mark_storage_id": known.mark_storage_id, "approval_storage_id": known.approval_storage_id, "waiting": []}
    old = SensorCursor.from_json(json.dumps(ids))
    requests, again, _ = evaluate(instance, old, MANUAL, now())
    assert (requests, again) == ([], known)
    instance.delete_run(last)
    requests, cursor, _ = evaluate(instance, old, MANUAL, now())
    assert requests == []
    assert "again what was approved" in caplog.text
    materialize(instance, OTHER)
    assert swept(evaluate(instance, cursor, MANUAL, now())[0]) == [OTHER]


def test_a_sweep_that_would_wait_for_commits_is_started_when_it_can_delete(instance: DagsterInstance) -> None:
    """A run that waits holds a slot. The cursor of one tick is that of the next, as Dagster stores it."""
    digest = record_mark(instance, FIRST, policy="manual")
    record_approval(instance, FIRST, digest, "expired", ready_at=in_hours(0.3))
    record_approval(instance, SECOND, record_mark(instance, SECOND, policy="manual"), ready_at=now() - 1)
    requests, cursor, _ = evaluate(instance, SensorCursor(), MANUAL, now())
    assert swept(requests) == [SECOND]
    cursor = SensorCursor.from_json(cursor.to_json())
    requests, cursor, _ = evaluate(instance, cursor, MANUAL, in_hours(0.2))
    assert requests == []
    result = tick(instance, MANUAL, cursor.to_json(), datetime.now(UTC))
    assert "Approved marks that wait for commits to end: 1" in str(result.skip_reason)
    requests, cursor, _ = evaluate(instance, SensorCursor.from_json(cursor.to_json()), MANUAL, in_hours(0.4))
    assert swept(requests) == [FIRST]
    assert config_of(requests[0])["only"] == "expired"
    assert evaluate(instance, cursor, MANUAL, in_hours(0.5))[0] == [], "once"


def test_a_postponed_sweep_that_ran_is_not_started(instance: DagsterInstance) -> None:
    digest = record_mark(instance, FIRST, policy="manual")
    record_approval(instance, FIRST, digest, ready_at=in_hours(0.3))
    _, cursor, _ = evaluate(instance, SensorCursor(), MANUAL, now())
    record_sweep(instance, FIRST, digest)  # by the command line, which waits itself
    requests, cursor, _ = evaluate(instance, cursor, MANUAL, in_hours(0.4))
    assert (requests, cursor.postponed) == ([], ())


def materialize(instance: DagsterInstance, run_key: str, *names: str) -> str:
    """A run that makes a mark and approves it, as far as the sensor can see; its id."""
    metadata: dict[str, Any] = {"mark_id": mark_id_of(run_key), "digest": f"sha256:{run_key}", "dagster/row_count": 3}
    metadata |= {"sweep_policy": "immediately", "sweep_delay_hours": 0.0}
    instance.add_dynamic_partitions(str(gc_runs.name), [run_key])
    made = [
        asset(name=name, partitions_def=gc_runs)(lambda: MaterializeResult(metadata=metadata))
        for name in names or ("mark", "sweep_approval")
    ]
    return materialize_assets(made, instance=instance, partition_key=run_key).run_id


def tick(instance: DagsterInstance, settings: SweepSettings, cursor: str | None, at: datetime) -> SensorResult:
    definitions = build_definitions(Settings(sweep=settings))
    context = build_sensor_context(instance=instance, cursor=cursor, definitions=definitions)
    result = sweep_sensor(settings, clock=lambda: at)(context)
    assert isinstance(result, SensorResult)
    return result


def test_ticks_go_on_from_the_stored_cursor(instance: DagsterInstance) -> None:
    record_mark(instance, FIRST)
    began = datetime.now(UTC)
    first = tick(instance, AFTER, None, began)
    assert not first.run_requests
    assert isinstance(first.skip_reason, SkipReason)
    assert "Marks that wait for their delay: 1." in str(first.skip_reason.skip_message)
    # A restart has nothing but the text of the cursor.
    record_mark(instance, SECOND)
    second = tick(instance, AFTER, first.cursor, began + timedelta(hours=3))
    assert not second.run_requests
    third = tick(instance, AFTER, second.cursor, began + timedelta(hours=7))
    assert swept(list(third.run_requests or [])) == [FIRST, SECOND]
    fourth = tick(instance, AFTER, third.cursor, began + timedelta(hours=8))
    assert not fourth.run_requests
    assert "No new approval" in str(fourth.skip_reason)


@pytest.mark.parametrize("settings", [MANUAL, AFTER, IMMEDIATELY], ids=lambda settings: settings.policy)
def test_a_partition_that_was_deleted_stops_no_other(
    instance: DagsterInstance, settings: SweepSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """Dagster fails a whole tick that asks for a run of such a partition, and the cursor stays where it was."""
    definitions = build_definitions(Settings(sweep=settings))
    sensor = sweep_sensor(settings, clock=lambda: datetime.now(UTC) + timedelta(hours=7))

    def next_tick(cursor: str | None) -> SensorExecutionData:
        with (
            build_sensor_context(instance=instance, cursor=cursor, definitions=definitions) as context,
            partition_loading_context(dynamic_partitions_store=instance),
        ):
            return sensor.evaluate_tick(context)

    def mark_and_approve(run_key: str) -> None:
        digest = record_mark(instance, run_key)
        if settings == MANUAL:
            record_approval(instance, run_key, digest)

    mark_and_approve(FIRST)
    mark_and_approve(OTHER)
    instance.delete_dynamic_partition(str(gc_runs.name), FIRST)
    first = next_tick(None)
    assert [request.partition_key for request in first.run_requests or []] == [OTHER]
    assert f"the sweep of partition {FIRST} is not started" in caplog.text
    again = next_tick(first.cursor)
    assert not again.run_requests
    assert again.skip_message == "No new approval."

    mark_and_approve(SECOND)
    instance.delete_dynamic_partition(str(gc_runs.name), SECOND)
    alone = next_tick(again.cursor)
    assert not alone.run_requests
    assert alone.skip_message == f"Skipped because the partition was deleted: {SECOND}."


def test_sensor_starts_runs_of_the_sweep_job() -> None:
    definition = sweep_sensor(MANUAL)
    assert definition.job_name == "gc_sweep"
    assert definition.description
    assert "6 h old" in str(sweep_sensor(AFTER).description)


def test_the_approval_of_a_part_starts_the_sweep_of_this_part(instance: DagsterInstance) -> None:
    digest = record_mark(instance, FIRST)
    record_approval(instance, FIRST, digest, "expired")
    requests, cursor, _ = evaluate(instance, SensorCursor(), MANUAL, now())
    assert [SweepConfig(**config_of(request)).only for request in requests] == [Scope.expired]
    record_sweep(instance, FIRST, digest, "expired")
    record_approval(instance, FIRST, digest, "never_committed")
    record_approval(instance, FIRST, digest)
    later, cursor, _ = evaluate(instance, cursor, MANUAL, now())
    assert [SweepConfig(**config_of(request)).only for request in later] == [Scope.never_committed, Scope.all]
    keys = [request.run_key for request in (*requests, *later)]
    assert len(set(keys)) == 3
    assert evaluate(instance, cursor, MANUAL, now())[0] == []


def test_a_sweep_of_a_part_does_not_answer_the_approval_of_more(instance: DagsterInstance) -> None:
    digest = record_mark(instance, FIRST)
    for approved in ("expired", "never_committed", "all"):
        record_approval(instance, FIRST, digest, approved)
    record_sweep(instance, FIRST, digest, "expired")
    requests, _, _ = evaluate(instance, SensorCursor(), MANUAL, now())
    assert [SweepConfig(**config_of(request)).only for request in requests] == [Scope.never_committed, Scope.all]
    record_sweep(instance, FIRST, digest)
    assert evaluate(instance, SensorCursor(), MANUAL, now())[0] == []


@pytest.mark.parametrize("decided_by", [record_approval, record_sweep])
def test_a_policy_does_not_sweep_what_a_person_did_not_approve(
    instance: DagsterInstance, decided_by: Callable[[DagsterInstance, str, str, str], None]
) -> None:
    digest = record_mark(instance, FIRST)
    _, cursor, _ = evaluate(instance, SensorCursor(), AFTER, now())
    assert [mark.digest for mark in cursor.waiting] == [digest]
    decided_by(instance, FIRST, digest, "expired")
    requests, cursor, _ = evaluate(instance, cursor, AFTER, in_hours(7))
    assert [config_of(request)["approve_digest"] for request in requests] in ([], [""])
    assert cursor.waiting == ()


def test_an_approval_of_an_unknown_part_starts_nothing(instance: DagsterInstance) -> None:
    record_approval(instance, FIRST, record_mark(instance, FIRST), "some")
    assert evaluate(instance, SensorCursor(), MANUAL, now())[0] == []
