"""The sensor: start the sweep of each mark that may be swept.

It walks through the records of marks and approvals in the order in which they were stored, and its cursor remembers
how far it came: two marks between two ticks are two sweeps.  (``@asset_sensor`` sees only the latest of them.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import timedelta

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

from lakefs_gc.assets.sweep import SweepConfig
from lakefs_gc.config import SweepPolicy, SweepSettings
from lakefs_gc.engine.dataset import Clock, utc_now
from lakefs_gc.jobs import gc_sweep
from lakefs_gc.partitions import repository_tags

_MARK = AssetKey("mark")
_APPROVAL = AssetKey("sweep_approval")
_PAGE = 500
_INTERVAL_SECONDS = 30


@dataclass(frozen=True)
class WaitingMark:
    """A mark that the policy sweeps at ``due_epoch_seconds``, unless a person approves it before."""

    run_key: str
    mark_id: str
    digest: str
    due_epoch_seconds: float


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


def sweep_sensor(settings: SweepSettings, clock: Clock = utc_now) -> SensorDefinition:
    """The sensor for a policy (see ``SweepSettings.policy``).

    It runs by default: with the default policy, ``manual``, it only acts on approvals.
    """

    @sensor(
        name="sweep_after_mark",
        job=gc_sweep,
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Start the sweep of each mark that may be swept.  Policy: {settings.policy}.",
    )
    def sweep_after_mark(context: SensorEvaluationContext) -> SensorResult:
        requests, cursor = evaluate(
            context.instance, SensorCursor.from_json(context.cursor), settings, clock().timestamp()
        )
        return SensorResult(run_requests=requests, cursor=cursor.to_json())

    return sweep_after_mark


def evaluate(
    instance: DagsterInstance, cursor: SensorCursor, settings: SweepSettings, now_epoch_seconds: float
) -> tuple[list[RunRequest], SensorCursor]:
    """One tick: the sweeps to start, and the next cursor."""
    requests: list[RunRequest] = []
    waiting = list(cursor.waiting)
    mark_storage_id, approval_storage_id = cursor.mark_storage_id, cursor.approval_storage_id
    for record in _records(instance, _MARK, mark_storage_id):
        mark_storage_id = record.storage_id
        if settings.policy != "manual":
            waiting += _waiting(record, settings)
    for record in _records(instance, _APPROVAL, approval_storage_id):
        approval_storage_id = record.storage_id
        run_key, mark_id, digest = _of(record)
        # An approval that is given again, after a sweep that failed, is a new sweep: so its record is in the key.
        requests.append(
            _request(run_key, SweepConfig(mark_id=mark_id), f"{run_key}:{digest}:approval-{record.storage_id}")
        )
        waiting = [other for other in waiting if other.digest != digest]
    due = [mark for mark in waiting if mark.due_epoch_seconds <= now_epoch_seconds]
    requests += [_request_by_policy(mark, settings.policy) for mark in due]
    left = tuple(mark for mark in waiting if mark not in due)
    return requests, SensorCursor(mark_storage_id, approval_storage_id, left)


def _records(instance: DagsterInstance, asset: AssetKey, after_storage_id: int) -> Iterator[EventLogRecord]:
    while True:
        page = instance.fetch_materializations(
            AssetRecordsFilter(asset_key=asset, after_storage_id=after_storage_id), limit=_PAGE, ascending=True
        )
        yield from page.records
        if len(page.records) < _PAGE:
            return
        after_storage_id = page.records[-1].storage_id


def _of(record: EventLogRecord) -> tuple[str, str, str]:
    """Run key, mark id and digest of a mark or an approval."""
    materialization = record.asset_materialization
    if materialization is None or materialization.partition is None:
        raise ValueError(f"record {record.storage_id} is no materialization of a partition")
    metadata = materialization.metadata
    return materialization.partition, str(metadata["mark_id"].value), str(metadata["digest"].value)


def _waiting(record: EventLogRecord, settings: SweepSettings) -> list[WaitingMark]:
    materialization = record.asset_materialization
    if materialization is None or materialization.metadata["dagster/row_count"].value == 0:
        return []
    delay = timedelta(hours=settings.delay_hours if settings.policy == "after" else 0)
    return [WaitingMark(*_of(record), record.timestamp + delay.total_seconds())]


def _request_by_policy(mark: WaitingMark, policy: SweepPolicy) -> RunRequest:
    config = SweepConfig(mark_id=mark.mark_id, approve_digest=mark.digest, approved_via=f"policy {policy}")
    return _request(mark.run_key, config, f"{mark.run_key}:{mark.digest}:policy-{policy}")


def _request(partition: str, config: SweepConfig, key: str) -> RunRequest:
    return RunRequest(
        run_key=key,
        partition_key=partition,
        run_config=RunConfig(ops={"sweep": config}),
        tags=dict(repository_tags(partition)),
    )
