"""The sensor: start the sweep of each mark that may be swept.

It walks through the records of marks and approvals in the order in which they were stored, and its cursor remembers
how far it came: two marks between two ticks are two sweeps.  (``@asset_sensor`` sees only the latest of them.)
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

from lakefs_gc.assets.sweep import POLICY, SweepConfig
from lakefs_gc.config import SweepPolicy, SweepSettings
from lakefs_gc.engine.dataset import Clock, utc_now
from lakefs_gc.jobs import gc_sweep
from lakefs_gc.partitions import gc_runs, repository_tags

logger = logging.getLogger(__name__)

_MARK = AssetKey("mark")
_APPROVAL = AssetKey("sweep_approval")
_SWEEP = AssetKey("sweep")
_PAGE = 500
_INTERVAL_SECONDS = 30


@dataclass(frozen=True)
class Found:
    """What a materialization of ``mark``, ``sweep_approval`` or ``sweep`` says of the mark it is about."""

    storage_id: int
    run_key: str
    mark_id: str
    digest: str
    rows: int
    epoch_seconds: float

    @classmethod
    def of(cls, record: EventLogRecord) -> Found | None:
        """None when it was not made by our asset."""
        materialization = record.asset_materialization
        if materialization is None or materialization.partition is None:
            return None
        metadata = {name: value.value for name, value in materialization.metadata.items()}
        if not metadata.get("mark_id") or not metadata.get("digest"):
            return None
        rows = metadata.get("dagster/row_count")
        return cls(
            storage_id=record.storage_id,
            run_key=materialization.partition,
            mark_id=str(metadata["mark_id"]),
            digest=str(metadata["digest"]),
            rows=rows if isinstance(rows, int) else 0,
            epoch_seconds=record.timestamp,
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
    """How far the sensor came: storage ids of the last records that it saw, and the marks that wait."""

    mark_storage_id: int = 0
    approval_storage_id: int = 0
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
    marks, mark_storage_id = _found_after(cursor.mark_storage_id, instance, _MARK)
    if settings.policy != "manual":
        delay_seconds = settings.delay_hours * 3600 if settings.policy == "after" else 0.0
        # There is nothing to sweep in a mark of nothing.
        waiting += [WaitingMark.of(mark, delay_seconds) for mark in marks if mark.rows]
    approvals, approval_storage_id = _found_after(cursor.approval_storage_id, instance, _APPROVAL)
    for approval in approvals:
        waiting = [other for other in waiting if other.digest != approval.digest]
        if not _is_swept(instance, approval, approval.storage_id):
            # An approval that is given again, after a sweep that failed, is a new sweep: so its record is in the key.
            key = f"{approval.run_key}:{approval.digest}:approval-{approval.storage_id}"
            requests.append(_request(approval.run_key, SweepConfig(mark_id=approval.mark_id), key))
    due = [mark for mark in waiting if mark.due_epoch_seconds <= now_epoch_seconds]
    requests += [_request_by_policy(mark, settings.policy) for mark in due if not _is_swept(instance, mark)]
    left = tuple(mark for mark in waiting if mark not in due)
    startable, gone = _with_partition(instance, requests)
    return Tick(startable, SensorCursor(mark_storage_id, approval_storage_id, left), gone)


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


def _found_after(
    storage_id: int, instance: DagsterInstance, asset: AssetKey, partitions: Sequence[str] | None = None
) -> tuple[list[Found], int]:
    """What was materialized after a record, in the order in which it was stored; and the id of the last record.

    A materialization that somebody reported by hand says nothing of a mark, and approves nothing: it is left out.
    """
    found = []
    while True:
        page = instance.fetch_materializations(
            AssetRecordsFilter(asset_key=asset, after_storage_id=storage_id, asset_partitions=partitions),
            limit=_PAGE,
            ascending=True,
        )
        for record in page.records:
            storage_id = record.storage_id
            said = Found.of(record)
            if said is None:
                logger.warning("record %d of %s was not made by lakefs-gc: left out", storage_id, asset.path[-1])
            else:
                found.append(said)
        if len(page.records) < _PAGE:
            return found, storage_id


def _is_swept(instance: DagsterInstance, mark: Found | WaitingMark, after_storage_id: int = 0) -> bool:
    """Whether a sweep of this mark succeeded after a record: somebody was quicker, on the command line for instance."""
    sweeps, _ = _found_after(after_storage_id, instance, _SWEEP, partitions=[mark.run_key])
    return any(sweep.digest == mark.digest for sweep in sweeps)


def _request_by_policy(mark: WaitingMark, policy: SweepPolicy) -> RunRequest:
    config = SweepConfig(mark_id=mark.mark_id, approve_digest=mark.digest, approved_via=f"{POLICY}{policy}")
    return _request(mark.run_key, config, f"{mark.run_key}:{mark.digest}:policy-{policy}")


def _request(partition: str, config: SweepConfig, key: str) -> RunRequest:
    return RunRequest(
        run_key=key,
        partition_key=partition,
        run_config=RunConfig(ops={"sweep": config}),
        tags=dict(repository_tags(partition)),
    )
