"""Runs ``mark``, ``approve`` and ``sweep``. Imported late: Dagster and Spark take seconds to load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lakefs_gc.cli.mark_reports import find_mark, read_json
from lakefs_gc.config import Settings, load_server_credentials
from lakefs_gc.engine.records.approval import VIA_COMMAND_LINE, VIA_SWEEP_COMMAND, is_approved
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.mark_facts import REPORT_FILE
from lakefs_gc.engine.records.stored_marks import Marked, open_mark
from lakefs_gc.engine.run import new_run_key, repository_of
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.workspace.workspace import Workspace, utc_now
from lakefs_gc.errors import ApprovalError, InterruptedRunError, LakeFSGCError, SweepIncompleteError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.pipeline.assets.forecast import ForecastConfig
from lakefs_gc.pipeline.assets.sweep import SweepConfig
from lakefs_gc.pipeline.assets.sweep_approval import ApprovalConfig
from lakefs_gc.pipeline.automation.approval_sensor import INTERVAL_SECONDS
from lakefs_gc.pipeline.jobs import gc_forecast
from lakefs_gc.pipeline.session import GCSession
from lakefs_gc.report.next_step import forecast_note
from lakefs_gc.terminal.output import Output

Outcomes = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Swept:
    """The outcomes of a sweep. ``incomplete`` is the error to raise after its output."""

    mark_id: str
    only: Scope
    outcomes: Outcomes
    errors: list[dict[str, str | int]] = field(default_factory=list)
    incomplete: SweepIncompleteError | None = None


@dataclass(frozen=True)
class Made:
    """A mark as stored. ``forecast`` says where its forecast is, or how to get one.

    ``incomplete`` is the error to raise after its output: the forecast failed or was interrupted.
    """

    mark: Mark
    forecast: str
    incomplete: LakeFSGCError | None = None


def mark(
    settings: Settings,
    out: Output,
    repository: str,
    min_age_hours: float | None,
    unsafe_min_age: bool,
    only: Scope = Scope.all,
    *,
    with_forecast: bool = False,
) -> Made:
    """Make a mark of a repository, of all candidates or of one part, and its forecast if that is requested."""
    server = LakeFSClient(load_server_credentials(), settings.lakefs)
    server.repository(repository)  # a wrong name fails before Spark starts
    run_key = new_run_key(repository, utc_now())
    facts, failed = dict[str, Any](), None
    try:
        with GCSession.open(settings) as session:
            with out.progress(f"marking {repository}"):
                facts = session.mark(run_key, min_age_hours=min_age_hours, unsafe_min_age=unsafe_min_age, only=only)
            failed = _forecast(session, out, run_key) if with_forecast else None
    except InterruptedRunError as error:
        if not facts:
            raise
        failed = error
    made = open_mark(repository, facts["mark_id"], server, settings).mark
    if with_forecast and failed is None:
        return Made(made, f"The report beside the mark has its forecast: {made.location}{REPORT_FILE}")
    return Made(made, forecast_note(made), failed)


def _forecast(session: GCSession, out: Output, run_key: str) -> LakeFSGCError | None:
    """Compute the forecast of a run in its session, and return why it failed: the mark is complete all the same."""
    try:
        with out.progress(f"forecasting {repository_of(run_key)}"):
            session.materialize(gc_forecast.name, run_key, {"forecast": ForecastConfig()})
    except InterruptedRunError:
        raise
    except LakeFSGCError as error:
        return error
    return None


def approve(
    settings: Settings,
    out: Output,
    repository: str,
    mark_id: str,
    digest: str,
    approved_by: str,
    overrides: tuple[str, ...] = (),
    why: str = "",
    only: Scope = Scope.all,
) -> dict[str, Any]:
    """Approve a mark, or one part of it, and return the approval with the next step."""
    marked = find_mark(settings, repository, mark_id)
    marked.mark.refuse_no_part(only)  # fails before Spark starts
    config = ApprovalConfig(
        mark_id=mark_id,
        digest=digest,
        approved_by=approved_by,
        overrides=list(overrides),
        why=why,
        approved_via=VIA_COMMAND_LINE,
        only=only,
    )
    with GCSession.open(settings) as session, out.progress(f"approving {mark_id}"):
        session.approve(marked.mark.run_key, config)
        is_kept = not session.instance.is_ephemeral
    return {
        "mark_id": mark_id,
        "repository": repository,
        "digest": digest,
        "only": only.value,
        "approved_by": approved_by,
        "overrides": list(overrides),
        "next": _next_of_approved(settings, repository, mark_id, only, is_kept),
    }


def _next_of_approved(settings: Settings, repository: str, mark_id: str, only: Scope, is_kept: bool) -> str:
    sweep_command = f"`lakefs-gc sweep {repository} --mark {mark_id}{only.option}`"
    if is_kept:
        return (
            "If Dagster's daemon runs on this DAGSTER_HOME, the sensor sweep_after_mark starts the sweep within a "
            f"minute. Otherwise, run {sweep_command} to delete the objects."
        )
    named = "" if repository in settings.repositories else f" with {repository} among `repositories` in its settings"
    return (
        f"This machine starts no sweep, because DAGSTER_HOME is not set. Another Dagster instance{named} reads the "
        f"approval from the namespace (sensor approvals_in_namespaces, every {INTERVAL_SECONDS} seconds) and starts "
        f"the sweep. Without one, run {sweep_command} to delete the objects."
    )


def sweep(
    settings: Settings,
    out: Output,
    repository: str,
    mark_id: str,
    digest: str = "",
    *,
    approved_by: str,
    only: Scope = Scope.all,
) -> Swept:
    """Sweep a mark, or one part of it. Raises what the stage raises, except for failed deletes.

    Raises ``ApprovalError`` without ``digest`` if another installation made the mark and it has no approval.
    """
    marked = find_mark(settings, repository, mark_id)
    marked.mark.refuse_no_part(only)  # fails before Spark starts
    config = SweepConfig(
        mark_id=mark_id,
        approve_digest=digest or marked.mark.digest,
        approved_by=approved_by,
        approved_via=VIA_SWEEP_COMMAND,
        only=only,
    )
    try:
        with GCSession.open(settings) as session, out.progress(f"sweeping {mark_id}"):
            if not digest:
                _refuse_unknown_mark(marked, only, Workspace(session.settings.resolved_work_url()))
            session.sweep(marked.mark.run_key, config)
    except SweepIncompleteError as error:
        if "outcomes" not in error.facts:
            raise
        return Swept(mark_id, only, error.facts["outcomes"], error.facts.get("errors", []), error)
    return Swept(mark_id, only, read_json(marked.store, MarkPaths.of(mark_id).sweep_summary_of(only))["outcomes"])


def _refuse_unknown_mark(marked: Marked, only: Scope, workspace: Workspace) -> None:
    """Raise ``ApprovalError`` for a mark of another installation: it may have been rewritten since."""
    mark = marked.mark
    if workspace.has_made(mark.run_key, mark.mark_id, mark.digest) or is_approved(marked.store, mark, only):
        return
    raise ApprovalError(
        f"mark {mark.mark_id} of {mark.repository} was not made by this installation. Its digest is {mark.digest}",
        remedy="compare this digest with the one that was shown when the mark was made, then pass it: "
        f"`lakefs-gc sweep {mark.repository} --mark {mark.mark_id}{only.option} --digest {mark.digest}`",
    )


def sweep_facts(swept: Swept) -> dict[str, Any]:
    """Return a sweep as JSON for scripts: objects and bytes of each outcome, and the most frequent errors."""
    counts = {name: outcome["objects"] for name, outcome in swept.outcomes.items()}
    sizes = {f"{name}_bytes": outcome["size_bytes"] for name, outcome in swept.outcomes.items()}
    return {"mark_id": swept.mark_id, "only": swept.only.value, **counts, **sizes, "errors": swept.errors}
