"""What people are notified of, from what a Dagster run has recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetKey,
    AssetRecordsFilter,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
)

from lakefs_gc.config import MANUAL
from lakefs_gc.engine.run import repository_of
from lakefs_gc.notify import Event, EventKind
from lakefs_gc.pipeline.names import Names
from lakefs_gc.pipeline.partitions import REPOSITORY_TAG
from lakefs_gc.pipeline.refusals import is_refused
from lakefs_gc.units import human_duration

_PARTITION_TAG = "dagster/partition"
_OUTCOMES = ("_objects", "_bytes")


def events_of_run(instance: DagsterInstance, run: DagsterRun, ended_at: datetime, names: Names) -> Iterator[Event]:
    """Yield the events of a run that has ended. A run that was interrupted, or that a person has ended, has none.

    A refused run ends as canceled, too. It counts as failed, because no person canceled it.
    """
    if run.status is DagsterRunStatus.CANCELED and not is_refused(run):
        return
    wanted = {
        DagsterEventType.ASSET_MATERIALIZATION,
        DagsterEventType.ASSET_CHECK_EVALUATION,
        DagsterEventType.STEP_FAILURE,
        DagsterEventType.RUN_FAILURE,
    }
    entries = [record.event_log_entry for record in instance.get_records_for_run(run.run_id, of_type=wanted).records]
    events = [entry.dagster_event for entry in entries if entry.dagster_event]
    run_key = run.tags.get(_PARTITION_TAG, "")
    common: dict[str, Any] = {
        "repository": run.tags.get(REPOSITORY_TAG) or (repository_of(run_key) if "/" in run_key else ""),
        "run_key": run_key,
        "at": ended_at,
        "dagster_run_id": run.run_id,
    }
    failed = [
        event.asset_check_evaluation_data
        for event in events
        if event.event_type is DagsterEventType.ASSET_CHECK_EVALUATION and not event.asset_check_evaluation_data.passed
    ]
    mark, sweep = _metadata_of(events, names.key("mark")), _metadata_of(events, names.key("sweep"))
    blocked = bool(mark) and any(check.blocking for check in failed)
    if mark and blocked:
        yield _check_failed(mark, failed, common)
    elif mark and mark["dagster/row_count"] and not _is_decided(instance, run_key, mark["digest"], names):
        yield _mark_waits(mark, failed, common)
    if sweep and run.status is DagsterRunStatus.SUCCESS:
        yield _swept(sweep, common)
    if run.status is not DagsterRunStatus.SUCCESS and not blocked:
        yield _run_failed(run, events, common)


def _check_failed(mark: Mapping[str, Any], failed: list[AssetCheckEvaluation], common: Mapping[str, Any]) -> Event:
    checks = _checks(failed)
    blocking = [check["message"] or check["name"] for check in checks if check["severity"] == "ERROR"]
    return Event(
        EventKind.check_failed,
        mark_id=mark["mark_id"],
        message=f"A check of mark {mark['mark_id']} failed, so the mark cannot be swept: {'; '.join(blocking)}",
        remedy="Correct the cause and mark again, or review the mark and override the check by name: "
        f"`lakefs-gc show {common['repository']} --mark {mark['mark_id']}`",
        facts={**_numbers(mark), "failed_checks": checks, **_page(mark)},
        page=_text(mark),
        **common,
    )


def _mark_waits(mark: Mapping[str, Any], warnings: list[AssetCheckEvaluation], common: Mapping[str, Any]) -> Event:
    named = f"{common['repository']} --mark {mark['mark_id']}"
    policy = str(mark.get("sweep_policy", MANUAL))
    delay_hours = mark.get("sweep_delay_hours") or 0
    if following := _page(mark).get("next"):
        then = f"{following['text']}. {following['detail']}"
    else:  # a run of an earlier version
        then = (
            "Its sweep waits for an approval"
            if policy == MANUAL
            else f"Its policy ({policy}) sweeps it {human_duration(delay_hours * 3600)} after it was made"
        )
    return Event(
        EventKind.mark_waits,
        mark_id=mark["mark_id"],
        message=f"Mark {mark['mark_id']} lists {mark['dagster/row_count']:,} objects ({mark['size']}). {then}",
        remedy=f"Review it: `lakefs-gc show {named}`. Then approve it in Dagster, or with `lakefs-gc approve {named}`",
        facts={**_numbers(mark), "sweep_policy": policy, "failed_checks": _checks(warnings), **_page(mark)},
        page=_text(mark),
        **common,
    )


def _swept(sweep: Mapping[str, Any], common: Mapping[str, Any]) -> Event:
    outcomes = {name: value for name, value in sweep.items() if name.endswith(_OUTCOMES)}
    objects = {name.removesuffix("_objects"): value for name, value in outcomes.items() if name.endswith("_objects")}
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in objects.items() if count)
    mark_id = str(sweep.get("mark_id", ""))
    return Event(
        EventKind.swept,
        mark_id=mark_id,
        message=f"Mark {mark_id} was swept: {counts or 'no objects'}",
        facts=outcomes,
        **common,
    )


def _run_failed(run: DagsterRun, events: list[DagsterEvent], common: Mapping[str, Any]) -> Event:
    """Return the event for a failed run: with the first error of a stage, or with Dagster's reason for the run."""
    of_step = [event for event in events if event.event_type is DagsterEventType.STEP_FAILURE]
    of_run = [event for event in events if event.event_type is DagsterEventType.RUN_FAILURE]
    message, remedy = (of_run[-1].message or "") if of_run else "", "Open the run in Dagster and read its log"
    if of_step:
        data = of_step[0].step_failure_data
        failure = data.user_failure_data
        message = failure.description if failure and failure.description else str(data.error_display_string)
        if failure and (what_to_do := failure.metadata.get("what_to_do")):
            remedy = str(what_to_do.value)
    where = f"{run.job_name} of {common['run_key'] or common['repository']}"
    how = "was refused" if is_refused(run) else "failed"
    return Event(
        EventKind.run_failed,
        message=f"{where} {how}: {message.strip()}",
        remedy=remedy,
        facts={"job": run.job_name},
        **common,
    )


def _metadata_of(events: list[DagsterEvent], key: AssetKey) -> dict[str, Any]:
    """Return the metadata of the materialization of an asset as plain values, or nothing if the run has none."""
    for event in events:
        if event.event_type is DagsterEventType.ASSET_MATERIALIZATION and event.asset_key == key:
            metadata = event.step_materialization_data.materialization.metadata
            return {name: getattr(value, "value", None) for name, value in metadata.items()}
    return {}


def _is_decided(instance: DagsterInstance, run_key: str, digest: str, names: Names) -> bool:
    """Return whether a mark was approved or swept in the meantime, for example by `lakefs-gc run`."""
    return any(
        record.asset_materialization is not None
        and getattr(record.asset_materialization.metadata.get("digest"), "value", None) == digest
        for asset in ("sweep_approval", "sweep")
        for record in instance.fetch_materializations(
            AssetRecordsFilter(asset_key=names.key(asset), asset_partitions=[run_key]), limit=1
        ).records
    )


def _numbers(mark: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "digest": mark["digest"],
        "objects": mark["dagster/row_count"],
        "bytes": mark["bytes"],
        "cutoff": datetime.fromtimestamp(mark["cutoff"], UTC).isoformat(),
    }


def _page(mark: Mapping[str, Any]) -> dict[str, Any]:
    """Return the page of a mark as values, from when it was made. Empty for a run of an earlier version."""
    facts: dict[str, Any] = _notification(mark).get("facts", {})
    return facts


def _text(mark: Mapping[str, Any]) -> str:
    return str(_notification(mark).get("text", ""))


def _notification(mark: Mapping[str, Any]) -> dict[str, Any]:
    found = mark.get("notification")
    return found if isinstance(found, dict) else {}  # an earlier version wrote a text


def _checks(failed: list[AssetCheckEvaluation]) -> list[dict[str, str]]:
    return [
        {
            "name": check.check_name,
            "severity": check.severity.value,
            **{
                name: str(getattr(check.metadata.get(name), "value", "")) for name in ("message", "meaning", "override")
            },
        }
        for check in failed
    ]
