"""The sensor ``notify``: tells people what the runs have done, and what waits for them.

It reads the runs that have ended in this Dagster instance, wherever they were started: by a schedule or a sensor, in
the UI, or on the command line. A run that was killed counts as soon as Dagster has marked it as failed.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    RunRecord,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    sensor,
)

from lakefs_gc.engine.workspace.workspace import Clock, utc_now
from lakefs_gc.notify import Notify
from lakefs_gc.pipeline.automation.run_events import events_of_run
from lakefs_gc.pipeline.names import OWN, Names

_INTERVAL_SECONDS = 30
_RUNS_AT_ONCE = 50
"""Runs of one tick: Dagster ends a tick after 60 seconds."""
_ENDED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]
_OVERLAP = timedelta(minutes=5)
"""Clocks of machines may differ by this much (rule 2), so a run may appear after others that ended later."""


@dataclass(frozen=True)
class NotifyCursor:
    """The time up to which runs were read, and the runs of the last minutes before it that were read already."""

    until: str
    read: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> NotifyCursor:
        content = json.loads(text)
        return cls(content["until"], tuple(content["read"]))


class Told(NamedTuple):
    """The result of a tick: the next cursor, the number of events that were sent, and the error that ended it."""

    cursor: NotifyCursor
    sent: int
    error: Exception | None


def notify_sensor(notify: Notify, names: Names, jobs: Collection[str], clock: Clock = utc_now) -> SensorDefinition:
    """Return the sensor that passes the events of the runs of ``jobs``, or of the assets, to ``notify``."""

    @sensor(
        name=names.name("notify"),
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description="Notifies people: a mark waits for its approval, a check or a run failed, a mark was swept.",
    )
    def notify_people(context: SensorEvaluationContext) -> SensorResult:
        if not context.cursor:
            # What happened before the sensor was switched on is not news.
            return SensorResult(skip_reason="Starts now.", cursor=NotifyCursor(clock().isoformat()).to_json())
        told = tell(context.instance, NotifyCursor.from_json(context.cursor), notify, jobs, names)
        if told.error is not None:
            context.log.error(f"An event could not be sent. It is sent again in the next tick: {told.error!r}")
        failed = f" Then one could not be sent: {told.error!r}" if told.error else ""
        return SensorResult(skip_reason=f"Events sent: {told.sent}.{failed}", cursor=told.cursor.to_json())

    return notify_people


def tell(
    instance: DagsterInstance, cursor: NotifyCursor, notify: Notify, jobs: Collection[str], names: Names = OWN
) -> Told:
    """Send the events of the runs that have ended since the last tick, oldest first.

    Each is sent at least once: the cursor stays before the first run with an event that could not be sent.
    """
    since = datetime.fromisoformat(cursor.until) - _OVERLAP
    records = instance.get_run_records(
        RunsFilter(statuses=_ENDED, updated_after=since),
        order_by="update_timestamp",
        ascending=True,
        limit=_RUNS_AT_ONCE + len(cursor.read),
    )
    read, until, sent = list(cursor.read), cursor.until, 0
    for record in records:
        run, ended_at = record.dagster_run, _ended_at(record)
        # A run that ended long ago was only edited: it got a tag.
        if run.run_id not in read and ended_at > since and _is_of(record, jobs, names):
            try:
                for event in events_of_run(instance, run, ended_at, names):
                    notify(event)
                    sent += 1
            except Exception as error:
                return Told(_advanced(until, read, records), sent, error)
        if run.run_id not in read:
            read.append(run.run_id)
        until = max(until, record.update_timestamp.astimezone(UTC).isoformat())
    return Told(_advanced(until, read, records), sent, None)


def _advanced(until: str, read: Collection[str], records: Collection[RunRecord]) -> NotifyCursor:
    """Return the next cursor. It names only those runs that the next tick reads again."""
    since = datetime.fromisoformat(until) - _OVERLAP
    recent = {record.dagster_run.run_id for record in records if record.update_timestamp.astimezone(UTC) > since}
    return NotifyCursor(until, tuple(run_id for run_id in read if run_id in recent))


def _ended_at(record: RunRecord) -> datetime:
    return datetime.fromtimestamp(record.end_time, UTC) if record.end_time else record.update_timestamp.astimezone(UTC)


def _is_of(record: RunRecord, jobs: Collection[str], names: Names) -> bool:
    """Return whether a run is of one of the jobs, or materializes an asset below the prefix."""
    run = record.dagster_run
    selected = run.asset_selection or ()
    return run.job_name in jobs or any(Names.of(key) == names for key in selected)
