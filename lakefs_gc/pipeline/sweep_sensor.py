"""The sensor: start the sweep of each mark that may be swept.

It walks through the records of marks and approvals in the order in which they were stored, and its cursor remembers
how far it came: two marks between two ticks are two sweeps.  (``@asset_sensor`` sees only the latest of them.)

SQLite gives the storage ids of the newest records out again when their runs are deleted.  So the cursor knows the time
of its record too: where that record is gone, what is new is told by time.  Run keys keep what is read twice from being
started twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from dagster import (
    AssetKey,
    AssetRecordsFilter,
    DagsterInstance,
    DefaultSensorStatus,
    EventLogRecord,
    RunConfig,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    sensor,
)

from lakefs_gc.config import MANUAL, SweepPolicy, SweepSettings
from lakefs_gc.engine.records.approval import POLICY
from lakefs_gc.engine.workspace.workspace import Clock, utc_now
from lakefs_gc.pipeline.assets.sweep import SweepConfig
from lakefs_gc.pipeline.jobs import gc_sweep
from lakefs_gc.pipeline.partitions import gc_runs, repository_tags

logger = logging.getLogger(__name__)

_MARK = AssetKey("mark")
_APPROVAL = AssetKey("sweep_approval")
_SWEEP = AssetKey("sweep")
_PAGE = 500
_INTERVAL_SECONDS = 30
# Records of several machines are stored in another order than their times say; clocks differ by no more (rule 2).
_OVERLAP_SECONDS = 300.0
_NOBODY = "nobody: a policy"


@dataclass(frozen=True)
class Found:
    """What a materialization of ``mark``, ``sweep_approval`` or ``sweep`` says of the mark it is about."""

    storage_id: int
    run_key: str
    mark_id: str
    digest: str
    rows: int
    epoch_seconds: float
    policy: str = MANUAL
    delay_seconds: float = 0.0
    """Of a mark: which policy may sweep it without a person, and when (``Mark.sweep_policy``)."""
    approved_epoch_seconds: float = 0.0
    """Of an approval: when it was given.  Two records of one approval are one request."""

    @classmethod
    def of(cls, record: EventLogRecord) -> Found | None:
        """None when it was not made by our asset."""
        materialization = record.asset_materialization
        if materialization is None or materialization.partition is None:
            return None
        metadata = {name: value.value for name, value in materialization.metadata.items()}
        if not metadata.get("mark_id") or not metadata.get("digest"):
            return None
        approved_at = metadata.get("approved_at")
        rows, delay_hours = metadata.get("dagster/row_count"), metadata.get("sweep_delay_hours")
        return cls(
            storage_id=record.storage_id,
            run_key=materialization.partition,
            mark_id=str(metadata["mark_id"]),
            digest=str(metadata["digest"]),
            rows=rows if isinstance(rows, int) else 0,
            epoch_seconds=record.timestamp,
            policy=str(metadata.get("sweep_policy", MANUAL)),
            delay_seconds=delay_hours * 3600 if isinstance(delay_hours, int | float) else 0.0,
            approved_epoch_seconds=approved_at if isinstance(approved_at, float) else record.timestamp,
        )


@dataclass(frozen=True)
class WaitingMark:
    """A mark that the policy sweeps at ``due_epoch_seconds``, unless a person approves it before."""

    run_key: str
    mark_id: str
    digest: str
    due_epoch_seconds: float

    @classmethod
    def of(cls, mark: Found, delay_seconds: float) -> WaitingMark:
        """A mark that is due so long after it was made."""
        return cls(mark.run_key, mark.mark_id, mark.digest, mark.epoch_seconds + delay_seconds)


@dataclass(frozen=True)
class SensorCursor:
    """How far the sensor came: storage ids and times of the last records that it saw, and the marks that wait."""

    mark_storage_id: int = 0
    approval_storage_id: int = 0
    # 0: not known, in a cursor of an older version.
    mark_epoch_seconds: float = 0.0
    approval_epoch_seconds: float = 0.0
    waiting: tuple[WaitingMark, ...] = field(default=())

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | None) -> SensorCursor:
        if not text:
            return cls()
        content = json.loads(text)
        content["waiting"] = tuple(WaitingMark(**waiting) for waiting in content["waiting"])
        return cls(**content)


class Position(NamedTuple):
    """A record that the sensor saw last: none at all, or all are gone, with the storage id 0."""

    storage_id: int
    epoch_seconds: float


class Tick(NamedTuple):
    """What one tick finds: the sweeps to start, the next cursor, and the partitions whose sweeps it leaves out."""

    requests: list[RunRequest]
    cursor: SensorCursor
    gone: list[str]


def sweep_sensor(settings: SweepSettings, clock: Clock = utc_now) -> SensorDefinition:
    """The sensor for a policy (see ``SweepSettings.policy``).

    It runs by default: with the default policy, ``manual``, it only acts on approvals.
    """

    @sensor(
        name="sweep_after_mark",
        job=gc_sweep,
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description=_DESCRIPTIONS[settings.policy].format(hours=settings.delay_hours),
    )
    def sweep_after_mark(context: SensorEvaluationContext) -> SensorResult:
        found = evaluate(context.instance, SensorCursor.from_json(context.cursor), settings, clock().timestamp())
        cursor = found.cursor.to_json()
        if found.requests:
            return SensorResult(run_requests=found.requests, cursor=cursor)
        return SensorResult(skip_reason=_nothing_to_do(found), cursor=cursor)

    return sweep_after_mark


_DESCRIPTIONS = {
    "manual": "Start the sweep of each mark that was approved.",
    "after": "Start the sweep of each mark that was approved, or that was made {hours:g} hours ago.",
    "immediately": "Start the sweep of each mark as soon as it is made.",
}


def _nothing_to_do(tick: Tick) -> str:
    said = f"Left out, its partition was deleted: {', '.join(tick.gone)}" if tick.gone else "No new approval"
    waiting = tick.cursor.waiting
    if not waiting:
        return f"{said}."
    due = datetime.fromtimestamp(min(mark.due_epoch_seconds for mark in waiting), UTC)
    return f"{said}; {len(waiting)} marks wait, the next is due at {due:%Y-%m-%d %H:%M} UTC."


def evaluate(
    instance: DagsterInstance, cursor: SensorCursor, settings: SweepSettings, now_epoch_seconds: float
) -> Tick:
    """One tick: what is approved, or due by the policy, and was not swept meanwhile."""
    requests: list[RunRequest] = []
    # Marks that wait since the policy was another are for a person now.
    waiting = list(cursor.waiting) if settings.policy != "manual" else []
    marks, last_mark = _new_since(Position(cursor.mark_storage_id, cursor.mark_epoch_seconds), instance, _MARK)
    if settings.policy != "manual":
        delay_seconds = settings.policy_delay_hours * 3600
        # There is nothing to sweep in a mark of nothing.  A mark that was made under another policy may be swept by
        # this one only if both let it, and not before both do.
        by_policy = [mark for mark in marks if mark.rows and mark.policy != MANUAL]
        found = [WaitingMark.of(mark, max(delay_seconds, mark.delay_seconds)) for mark in by_policy]
        waiting += [mark for mark in found if mark not in cursor.waiting]
    last_approval = Position(cursor.approval_storage_id, cursor.approval_epoch_seconds)
    approvals, last_approval = _new_since(last_approval, instance, _APPROVAL)
    for approval in approvals:
        waiting = [other for other in waiting if other.digest != approval.digest]
        if not _is_swept(instance, approval, approval.storage_id):
            # An approval that is given again, after a sweep that failed, is a new sweep: so its time is in the key.
            key = f"{approval.run_key}:{approval.digest}:approval-{approval.approved_epoch_seconds:.6f}"
            if key not in {request.run_key for request in requests}:
                requests.append(_request(approval.run_key, SweepConfig(mark_id=approval.mark_id), key))
    due = [mark for mark in waiting if mark.due_epoch_seconds <= now_epoch_seconds]
    requests += [_request_by_policy(mark, settings.policy) for mark in due if not _is_swept(instance, mark)]
    left = tuple(mark for mark in waiting if mark not in due)
    startable, gone = _with_partition(instance, requests)
    next_cursor = SensorCursor(
        mark_storage_id=last_mark.storage_id,
        approval_storage_id=last_approval.storage_id,
        mark_epoch_seconds=last_mark.epoch_seconds,
        approval_epoch_seconds=last_approval.epoch_seconds,
        waiting=left,
    )
    return Tick(startable, next_cursor, gone)


def _with_partition(instance: DagsterInstance, requests: list[RunRequest]) -> tuple[list[RunRequest], list[str]]:
    """The requests whose partition is still there, and the partitions of the others.

    For one whose partition is not, Dagster fails the whole tick, and each that follows: no repository would be swept.
    """
    partitions = set(instance.get_dynamic_partitions(str(gc_runs.name))) if requests else set()
    gone = [str(request.partition_key) for request in requests if request.partition_key not in partitions]
    for run_key in gone:
        logger.warning(
            "the sweep of partition %s is not started: the partition was deleted; to have it swept, approve its mark "
            "again on the command line, or sweep it there",
            run_key,
        )
    return [request for request in requests if request.partition_key in partitions], gone


def _new_since(last: Position, instance: DagsterInstance, asset: AssetKey) -> tuple[list[Found], Position]:
    """What was materialized since a record, in the order in which it was stored; and the last record of all."""
    there = _found_again(last, instance, asset) if last.storage_id else last
    if there:
        records = _records_after(there.storage_id, instance, asset)
        return _said_by(records, asset), _position_of(records) or there
    records = _records_after(0, instance, asset)
    if last.epoch_seconds:
        new = [record for record in records if record.timestamp > last.epoch_seconds - _OVERLAP_SECONDS]
    else:
        # Nobody can tell what is new, and what is old may be for a person: nothing is started unasked.
        logger.warning(
            "the last record of %s that the sensor knows was deleted: what was stored since the last tick is not "
            "seen; approve again what was approved and not swept",
            asset.path[-1],
        )
        new = []
    return _said_by(new, asset), _position_of(records) or Position(0, 0.0)


def _found_again(last: Position, instance: DagsterInstance, asset: AssetKey) -> Position | None:
    """The record, if it still has its storage id; as long as it does, all that is new has a greater one."""
    records = instance.fetch_materializations(
        AssetRecordsFilter(asset_key=asset, storage_ids=[last.storage_id]), limit=1
    ).records
    found = _position_of(records)
    return found if found and last.epoch_seconds in (0.0, found.epoch_seconds) else None


def _position_of(records: Sequence[EventLogRecord]) -> Position | None:
    return Position(records[-1].storage_id, records[-1].timestamp) if records else None


def _records_after(
    storage_id: int, instance: DagsterInstance, asset: AssetKey, partitions: Sequence[str] | None = None
) -> list[EventLogRecord]:
    """Materializations in the order in which they were stored."""
    records: list[EventLogRecord] = []
    while True:
        page = instance.fetch_materializations(
            AssetRecordsFilter(asset_key=asset, after_storage_id=storage_id, asset_partitions=partitions),
            limit=_PAGE,
            ascending=True,
        ).records
        records += page
        if len(page) < _PAGE:
            return records
        storage_id = page[-1].storage_id


def _said_by(records: Sequence[EventLogRecord], asset: AssetKey) -> list[Found]:
    """What records say of marks.

    A materialization that somebody reported by hand says nothing of a mark, and approves nothing: it is left out.
    """
    found = []
    for record in records:
        said = Found.of(record)
        if said is None:
            logger.warning("record %d of %s was not made by lakefs-gc: left out", record.storage_id, asset.path[-1])
        else:
            found.append(said)
    return found


def _is_swept(instance: DagsterInstance, mark: Found | WaitingMark, after_storage_id: int = 0) -> bool:
    """Whether a sweep of this mark succeeded after a record: somebody was quicker, on the command line for instance."""
    sweeps = _said_by(_records_after(after_storage_id, instance, _SWEEP, partitions=[mark.run_key]), _SWEEP)
    return any(sweep.digest == mark.digest for sweep in sweeps)


def _request_by_policy(mark: WaitingMark, policy: SweepPolicy) -> RunRequest:
    via = f"{POLICY}{policy}"
    config = SweepConfig(mark_id=mark.mark_id, approve_digest=mark.digest, approved_by=_NOBODY, approved_via=via)
    return _request(mark.run_key, config, f"{mark.run_key}:{mark.digest}:policy-{policy}")


def _request(partition: str, config: SweepConfig, key: str) -> RunRequest:
    return RunRequest(
        run_key=key,
        partition_key=partition,
        run_config=RunConfig(ops={"sweep": config}),
        tags=dict(repository_tags(partition)),
    )
