"""The sensor that notifies people: killed runs, events that cannot be sent, and where it starts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance, DagsterRun, DagsterRunStatus

from lakefs_gc.notify import Event, EventKind
from lakefs_gc.pipeline.automation.notify_sensor import NotifyCursor, tell
from lakefs_gc.pipeline.names import OWN, Names
from lakefs_gc.pipeline.refusals import REFUSED_TAG

JOBS = ("gc_mark",)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    with DagsterInstance.local_temp(str(tmp_path)) as opened:
        yield opened


@pytest.fixture
def cursor() -> NotifyCursor:
    return NotifyCursor((datetime.now(UTC) - timedelta(seconds=1)).isoformat())


def killed(instance: DagsterInstance, run_key: str = "lake/first", job: str = "gc_mark", **run: object) -> str:
    """Store a run that Dagster's monitoring marks as failed. Return its id."""
    tags = {"lakefs_gc/repository": run_key.partition("/")[0], "dagster/partition": run_key}
    started = DagsterRun(job_name=job, status=DagsterRunStatus.STARTED, tags=tags, **run)  # type: ignore[arg-type]
    instance.add_run(started)
    instance.report_run_failed(started, "the process of the run was killed")
    return started.run_id


def test_a_killed_run_is_an_event(instance: DagsterInstance, cursor: NotifyCursor) -> None:
    run_id, events = killed(instance), list[Event]()
    told = tell(instance, cursor, events.append, JOBS)
    (event,) = events
    assert (event.kind, event.repository, event.dagster_run_id) == (EventKind.run_failed, "lake", run_id)
    assert event.message == "gc_mark of lake/first failed: the process of the run was killed"
    assert event.to_json()["kind"] == "run_failed"
    # A tag that is added later does not make it new.
    instance.add_run_tags(run_id, {"seen": "yes"})
    assert tell(instance, told.cursor, events.append, JOBS).sent == 0


@pytest.mark.parametrize("refused", [True, False])
def test_a_refused_run_is_an_event_and_one_that_a_person_has_ended_is_none(
    instance: DagsterInstance, cursor: NotifyCursor, refused: bool
) -> None:
    """Both are canceled."""
    tags = {"dagster/partition": "lake/first"}
    started = DagsterRun(job_name="gc_mark", status=DagsterRunStatus.STARTED, tags=tags)
    instance.add_run(started)
    # A person may execute a refused run again, with its tags.
    instance.add_run_tags(started.run_id, {REFUSED_TAG: started.run_id if refused else "another run"})
    instance.report_run_canceled(started)
    events = list[Event]()
    tell(instance, cursor, events.append, JOBS)
    assert [event.kind for event in events] == [EventKind.run_failed] * refused
    assert all(event.message.startswith("gc_mark of lake/first was refused") for event in events)


def test_only_the_runs_of_this_prefix(instance: DagsterInstance, cursor: NotifyCursor) -> None:
    killed(instance, job="other_job")
    killed(instance, job="__ASSET_JOB", asset_selection=frozenset({AssetKey("their_asset")}))
    killed(instance, job="__ASSET_JOB", asset_selection=frozenset({AssetKey(["gc", "mark"])}))
    for names, sent in ((Names(("gc",)), 1), (Names(("other",)), 0)):
        assert tell(instance, cursor, lambda _: None, JOBS, names).sent == sent


def test_an_event_that_cannot_be_sent_is_sent_again(instance: DagsterInstance, cursor: NotifyCursor) -> None:
    for name in ("a", "b", "c"):
        killed(instance, f"lake/{name}")
    sent: list[str] = []

    def fails_at_b(event: Event) -> None:
        if event.run_key == "lake/b" and "lake/b failed" not in sent:
            sent.append("lake/b failed")
            raise OSError("no route to the host of the webhook")
        sent.append(event.run_key)

    told = tell(instance, cursor, fails_at_b, JOBS)
    assert (told.sent, str(told.error)) == (1, "no route to the host of the webhook")
    told = tell(instance, told.cursor, fails_at_b, JOBS)
    assert (told.sent, told.error) == (2, None)
    assert sent == ["lake/a", "lake/b failed", "lake/b", "lake/c"]
    assert tell(instance, told.cursor, fails_at_b, JOBS).sent == 0


def test_the_cursor_names_only_recent_runs(instance: DagsterInstance, cursor: NotifyCursor) -> None:
    killed(instance)
    told = tell(instance, cursor, lambda _: None, JOBS, OWN)
    assert len(told.cursor.read) == 1
    later = NotifyCursor((datetime.now(UTC) + timedelta(hours=1)).isoformat(), told.cursor.read)
    assert tell(instance, later, lambda _: None, JOBS).cursor.read == ()
    assert NotifyCursor.from_json(told.cursor.to_json()) == told.cursor
