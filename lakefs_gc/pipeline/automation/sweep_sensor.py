"""The sensor ``sweep_after_mark``: starts the sweep of each mark that may be swept.

It reads the records of marks and approvals in storage order, and its cursor keeps the last record of each. So two marks
between two ticks start two sweeps. (``@asset_sensor`` returns only the latest.)

After runs are deleted, SQLite reuses the storage ids of the newest records. So the cursor also keeps the time of its
record: if that record was deleted, the time decides what is new. Run keys prevent that a record that is read twice
starts two sweeps.

Dagster's own filter by time (``AssetRecordsFilter.after_timestamp``) cannot replace storage ids. Clocks of machines
differ, so it would need to overlap by five minutes, and each record would be requested in ten ticks. Only the run key
would stop the repeats, and deleting a run deletes its key.
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
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from lakefs_gc.config import MANUAL, SweepPolicy, SweepSettings
from lakefs_gc.engine.records.approval import POLICY
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.workspace.workspace import Clock, utc_now
from lakefs_gc.pipeline.assets.sweep import SweepConfig
from lakefs_gc.pipeline.jobs import gc_sweep
from lakefs_gc.pipeline.names import OWN, Names
from lakefs_gc.pipeline.partitions import repository_tags
from lakefs_gc.units import human_duration

logger = logging.getLogger(__name__)

_PAGE = 500
_INTERVAL_SECONDS = 30
# Storage order and times may disagree for records of several machines, by at most the allowed clock skew (rule 2).
_OVERLAP_SECONDS = 300.0
_BY_POLICY = "nobody: a policy"


@dataclass(frozen=True)
class MarkRecord:
    """The mark that a materialization of ``mark``, ``sweep_approval`` or ``sweep`` is about."""

    storage_id: int
    run_key: str
    mark_id: str
    digest: str
    rows: int
    epoch_seconds: float
    policy: str = MANUAL
    delay_seconds: float = 0.0
    """For a mark: the policy that may sweep it without a person, and its delay (``Mark.sweep_policy``)."""
    approved_epoch_seconds: float = 0.0
    """For an approval: its time. Two records of one approval are one request."""
    only: Scope = Scope.all
    """For an approval or a sweep: what it is of, the whole mark or one part."""
    ready_epoch_seconds: float = 0.0
    """For a mark or an approval: when a sweep may delete (``stored_marks.ready_at``). 0 if unknown: the sweep waits."""

    @classmethod
    def of(cls, record: EventLogRecord) -> MarkRecord | None:
        """Return the record of a materialization, or None if an asset of lakefs-gc did not make it."""
        materialization = record.asset_materialization
        if materialization is None or materialization.partition is None:
            return None
        metadata = {name: value.value for name, value in materialization.metadata.items()}
        if not metadata.get("mark_id") or not metadata.get("digest"):
            return None
        # Earlier versions approved and swept whole marks only, without this field.
        only = metadata.get("only", Scope.all)
        if only not in list(Scope):
            return None
        approved_at, ready_at = metadata.get("approved_at"), metadata.get("ready_at")
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
            only=Scope(str(only)),
            ready_epoch_seconds=ready_at if isinstance(ready_at, float) else 0.0,
        )


@dataclass(frozen=True)
class WaitingMark:
    """A mark that the policy sweeps at ``due_epoch_seconds``, unless a person approves it earlier."""

    run_key: str
    mark_id: str
    digest: str
    due_epoch_seconds: float

    @classmethod
    def of(cls, mark: MarkRecord, delay_seconds: float) -> WaitingMark:
        """Return a mark that is due ``delay_seconds`` after it was made, and not before it is ready."""
        due_epoch_seconds = max(mark.epoch_seconds + delay_seconds, mark.ready_epoch_seconds)
        return cls(mark.run_key, mark.mark_id, mark.digest, due_epoch_seconds)


@dataclass(frozen=True)
class SensorCursor:
    """The position of the sensor: storage ids and times of the last records that it read, and the waiting marks."""

    mark_storage_id: int = 0
    approval_storage_id: int = 0
    # 0: unknown, in a cursor of an older version.
    mark_epoch_seconds: float = 0.0
    approval_epoch_seconds: float = 0.0
    waiting: tuple[WaitingMark, ...] = field(default=())
    postponed: tuple[MarkRecord, ...] = field(default=())
    """Approvals of marks that are not ready: their sweeps would only wait, and each would hold a slot."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | None) -> SensorCursor:
        if not text:
            return cls()
        content = json.loads(text)
        content["waiting"] = tuple(WaitingMark(**waiting) for waiting in content["waiting"])
        postponed = content.pop("postponed", ())  # an older version has none
        records = (MarkRecord(**record | {"only": Scope(record["only"])}) for record in postponed)
        return cls(**content, postponed=tuple(records))


class Position(NamedTuple):
    """The last record that the sensor read. Storage id 0: no record yet, or all were deleted."""

    storage_id: int
    epoch_seconds: float


class Tick(NamedTuple):
    """The result of one tick: the sweeps to start, the next cursor, and deleted partitions whose sweeps are skipped."""

    requests: list[RunRequest]
    cursor: SensorCursor
    deleted_partitions: list[str]


def sweep_sensor(
    settings: SweepSettings,
    clock: Clock = utc_now,
    job: UnresolvedAssetJobDefinition = gc_sweep,
    names: Names = OWN,
) -> SensorDefinition:
    """Return the sensor for a policy (see ``SweepSettings.policy``).

    It is running by default. With the default policy, ``manual``, it starts only approved sweeps.
    """

    @sensor(
        name=names.name("sweep_after_mark"),
        job=job,
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description=_DESCRIPTIONS[settings.policy].format(delay=human_duration(settings.delay_hours * 3600)),
    )
    def sweep_after_mark(context: SensorEvaluationContext) -> SensorResult:
        cursor_before = SensorCursor.from_json(context.cursor)
        tick = evaluate(context.instance, cursor_before, settings, clock().timestamp(), names)
        cursor = tick.cursor.to_json()
        if tick.requests:
            return SensorResult(run_requests=tick.requests, cursor=cursor)
        return SensorResult(skip_reason=_skip_reason(tick), cursor=cursor)

    return sweep_after_mark


_DESCRIPTIONS = {
    "manual": "Starts the sweep of each approved mark.",
    "after": "Starts the sweep of each mark that is approved or {delay} old.",
    "immediately": "Starts the sweep of each mark as soon as it is made.",
}


def _skip_reason(tick: Tick) -> str:
    deleted = ", ".join(tick.deleted_partitions)
    reason = f"Skipped because the partition was deleted: {deleted}" if deleted else "No new approval"
    due = [mark.due_epoch_seconds for mark in tick.cursor.waiting]
    ready = [approval.ready_epoch_seconds for approval in tick.cursor.postponed]
    for times, what in (
        (due, "Marks that wait for their delay"),
        (ready, "Approved marks that wait for commits to end"),
    ):
        if times:
            following = datetime.fromtimestamp(min(times), UTC)
            reason += f". {what}: {len(times)}. The next is due at {following:%Y-%m-%d %H:%M} UTC"
    return f"{reason}."


def evaluate(
    instance: DagsterInstance,
    cursor: SensorCursor,
    settings: SweepSettings,
    now_epoch_seconds: float,
    names: Names = OWN,
) -> Tick:
    """Evaluate one tick: request the sweeps of marks that are approved, or due by the policy, and not yet swept."""
    requests: list[RunRequest] = []
    # Marks that wait because of a former policy now need a person.
    waiting = list(cursor.waiting) if settings.policy != "manual" else []
    marks, last_mark = _new_since(
        Position(cursor.mark_storage_id, cursor.mark_epoch_seconds), instance, names.key("mark")
    )
    if settings.policy != "manual":
        delay_seconds = settings.policy_delay_hours * 3600
        # An empty mark needs no sweep. A mark that was made under another policy is swept only if both policies permit
        # it, and after the longer delay.
        by_policy = [mark for mark in marks if mark.rows and mark.policy != MANUAL]
        new = [WaitingMark.of(mark, max(delay_seconds, mark.delay_seconds)) for mark in by_policy]
        waiting += [mark for mark in new if mark not in cursor.waiting]
    last_approval = Position(cursor.approval_storage_id, cursor.approval_epoch_seconds)
    approvals, last_approval = _new_since(last_approval, instance, names.key("sweep_approval"))
    postponed: list[MarkRecord] = []
    for approval in (*cursor.postponed, *approvals):
        # The decision of a person replaces the policy. That also holds for the part that the person did not approve.
        waiting = [other for other in waiting if other.digest != approval.digest]
        if approval.ready_epoch_seconds > now_epoch_seconds:
            postponed += [approval] if approval not in postponed else []
        elif not _is_swept(instance, approval, names, approval.storage_id):
            # Approving again after a failed sweep starts a new sweep, so the key contains the time of the approval.
            time = f"{approval.approved_epoch_seconds:.6f}"
            key = f"{approval.run_key}:{approval.digest}:approval-{time}{approval.only.suffix}"
            if key not in {request.run_key for request in requests}:
                config = SweepConfig(mark_id=approval.mark_id, only=approval.only)
                requests.append(_request(approval.run_key, config, key, names))
    due = [mark for mark in waiting if mark.due_epoch_seconds <= now_epoch_seconds]
    unswept = [mark for mark in due if not _is_swept(instance, mark, names)]
    requests += [_request_by_policy(mark, settings.policy, names) for mark in unswept]
    left = tuple(mark for mark in waiting if mark not in due)
    startable, deleted_partitions = _with_partition(instance, requests, names)
    next_cursor = SensorCursor(
        mark_storage_id=last_mark.storage_id,
        approval_storage_id=last_approval.storage_id,
        mark_epoch_seconds=last_mark.epoch_seconds,
        approval_epoch_seconds=last_approval.epoch_seconds,
        waiting=left,
        postponed=tuple(postponed),
    )
    return Tick(startable, next_cursor, deleted_partitions)


def _with_partition(
    instance: DagsterInstance, requests: list[RunRequest], names: Names
) -> tuple[list[RunRequest], list[str]]:
    """Return the requests whose partition exists, and the partitions of the others.

    A request for a deleted partition would fail this tick and each later one, so no repository would be swept.
    """
    partitions = set(instance.get_dynamic_partitions(str(names.runs.name))) if requests else set()
    deleted = [str(request.partition_key) for request in requests if request.partition_key not in partitions]
    for run_key in deleted:
        logger.warning(
            "the sweep of partition %s is not started, because the partition was deleted. To sweep its mark, run "
            "`lakefs-gc approve` or `lakefs-gc sweep` on the command line",
            run_key,
        )
    return [request for request in requests if request.partition_key in partitions], deleted


def _new_since(last: Position, instance: DagsterInstance, asset: AssetKey) -> tuple[list[MarkRecord], Position]:
    """Return what was materialized after a record, in storage order, and the position of the newest record."""
    position = _existing(last, instance, asset) if last.storage_id else last
    if position:
        records = _records_after(position.storage_id, instance, asset)
        return _mark_records(records, asset), _position_of(records) or position
    records = _records_after(0, instance, asset)
    if last.epoch_seconds:
        new = [record for record in records if record.timestamp > last.epoch_seconds - _OVERLAP_SECONDS]
    else:
        # It is unknown what is new, and old marks may be meant for a person, so no sweep is started.
        logger.warning(
            "the record of %s at the sensor's cursor was deleted, so records since the last tick are skipped. Approve "
            "again what was approved and not swept",
            asset.path[-1],
        )
        new = []
    return _mark_records(new, asset), _position_of(records) or Position(0, 0.0)


def _existing(last: Position, instance: DagsterInstance, asset: AssetKey) -> Position | None:
    """Return the position of a record, or None if it was deleted. While it exists, new records have greater ids."""
    records = instance.fetch_materializations(
        AssetRecordsFilter(asset_key=asset, storage_ids=[last.storage_id]), limit=1
    ).records
    position = _position_of(records)
    return position if position and last.epoch_seconds in (0.0, position.epoch_seconds) else None


def _position_of(records: Sequence[EventLogRecord]) -> Position | None:
    return Position(records[-1].storage_id, records[-1].timestamp) if records else None


def _records_after(
    storage_id: int, instance: DagsterInstance, asset: AssetKey, partitions: Sequence[str] | None = None
) -> list[EventLogRecord]:
    """Return materializations in storage order."""
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


def _mark_records(records: Sequence[EventLogRecord], asset: AssetKey) -> list[MarkRecord]:
    """Return the records of marks. Materializations that a user reported manually are skipped: they approve nothing."""
    mark_records = []
    for record in records:
        mark_record = MarkRecord.of(record)
        if mark_record is None:
            logger.warning(
                "record %d of %s was not made by lakefs-gc, so it is skipped", record.storage_id, asset.path[-1]
            )
        else:
            mark_records.append(mark_record)
    return mark_records


def _is_swept(
    instance: DagsterInstance, mark: MarkRecord | WaitingMark, names: Names, after_storage_id: int = 0
) -> bool:
    """Return whether a sweep of this mark succeeded after a record, for example on the command line.

    For the approval of a part or of the whole mark, the sweep must have been of everything that was approved. For a
    mark that waits for its policy, any sweep counts: then a person has decided what is swept.
    """
    key = names.key("sweep")
    sweeps = _mark_records(_records_after(after_storage_id, instance, key, partitions=[mark.run_key]), key)
    approved = mark.only if isinstance(mark, MarkRecord) else None
    return any(sweep.digest == mark.digest and (approved is None or sweep.only.covers(approved)) for sweep in sweeps)


def _request_by_policy(mark: WaitingMark, policy: SweepPolicy, names: Names) -> RunRequest:
    via = f"{POLICY}{policy}"
    config = SweepConfig(mark_id=mark.mark_id, approve_digest=mark.digest, approved_by=_BY_POLICY, approved_via=via)
    return _request(mark.run_key, config, f"{mark.run_key}:{mark.digest}:policy-{policy}", names)


def _request(partition: str, config: SweepConfig, key: str, names: Names) -> RunRequest:
    return RunRequest(
        run_key=key,
        partition_key=partition,
        run_config=RunConfig(ops={names.name("sweep"): config}),
        tags=dict(repository_tags(partition)),
    )
