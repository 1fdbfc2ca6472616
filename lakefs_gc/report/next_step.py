"""Decides what the page of a mark tells a person to do next. The sweep itself checks everything again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from lakefs_gc.config import MANUAL
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_facts import MarkFacts
from lakefs_gc.report.page import NextState, NextStep
from lakefs_gc.report.words import at, objects_of
from lakefs_gc.units import human_duration


class BackupState(StrEnum):
    """Whether the mark has a backup; unknown if nobody looked."""

    unknown = "unknown"
    not_configured = "not configured"
    missing = "missing"
    of_another_digest = "of another digest"
    complete = "complete"


@dataclass(frozen=True)
class Standing:
    """What happened to a mark until ``now``. ``state`` is that of ``history``."""

    now: datetime
    state: str = "marked"
    approved_by: str = ""
    approved_at: datetime | None = None
    overridden: Collection[str] = ()
    superseded_by: str = ""
    backup: BackupState = BackupState.unknown


def next_step(mark: Mark, facts: MarkFacts | None, standing: Standing) -> NextStep:
    """Return the next step for a mark, by what happened to it."""
    state = standing.state
    named = f"{mark.repository} --mark {mark.mark_id}"
    if not mark.candidates:
        return NextStep(NextState.empty, "Nothing to approve: no object is marked", why_empty(mark, facts))
    if state.startswith(("restored", "partly restored")) or "restore after" in state:
        detail = "A sweep of this mark needs a new approval. To collect the objects again, make a new mark."
        return NextStep(NextState.restored, state.capitalize(), detail, (f"lakefs-gc mark {mark.repository}",))
    if state == "swept":
        return NextStep(NextState.swept, "Swept: nothing to do", "The ledger beside the mark has each outcome.")
    if state == "sweeping":
        return NextStep(NextState.approved, "A sweep is running", "Its ledger beside the mark has each outcome so far.")
    if "incomplete" in state or "sweep failed" in state:
        detail = "Some objects could not be deleted. Fix the cause and sweep again: the sweep continues."
        return NextStep(NextState.failed, "The sweep is incomplete", detail, (f"lakefs-gc sweep {named}",))
    if state == "approved":
        by = f" by {standing.approved_by}" if standing.approved_by else ""
        detail = f"The sensor sweep_after_mark starts the sweep.{_from(facts, standing.now)}"
        return NextStep(NextState.approved, f"Approved{by}", detail, (f"lakefs-gc sweep {named}",))
    if standing.superseded_by:
        detail = f"Mark {standing.superseded_by} is newer. Review and approve that one instead."
        show = f"lakefs-gc show {mark.repository} --mark {standing.superseded_by}"
        return NextStep(NextState.superseded, "Superseded by a newer mark", detail, (show,))
    return _before_approval(mark, facts, standing)


def _before_approval(mark: Mark, facts: MarkFacts | None, standing: Standing) -> NextStep:
    approve = f"lakefs-gc approve {mark.repository} --mark {mark.mark_id} --digest {mark.digest} --by YOUR_NAME"
    blocking = [check.name for check in mark.checks if check.blocks_sweep]
    if blocking:
        flags = " ".join(f"--override {name}" for name in blocking)
        plural = "checks" if len(blocking) > 1 else "check"
        detail = (
            "Find out why before anything else. If the mark is right all the same, an approval must override "
            f"{'each of them' if len(blocking) > 1 else 'it'} by name, with a reason."
        )
        headline = f"Blocked by {len(blocking)} failed {plural}: {', '.join(blocking)}"
        commands = (f'{approve} {flags} --why "THE REASON"',)
        return NextStep(NextState.blocked, headline, detail, commands, tuple(blocking))
    if mark.needs_backup and standing.backup is not BackupState.complete:
        detail = "The settings require a complete backup of every object that is swept. Back the mark up, then approve."
        backup = f"lakefs-gc backup {mark.repository} --mark {mark.mark_id}"
        return NextStep(NextState.backup_missing, "A backup is required first", detail, (backup, approve))
    done = f"So far: {standing.state}. " if ": only" in standing.state else ""
    reviewed = f"{done}Review the {objects_of(mark.candidates)} below, then approve the digest that you reviewed."
    if mark.sweep_policy != MANUAL:
        due = at(mark.created_at + timedelta(hours=mark.sweep_delay_hours))
        detail = f"The policy {mark.sweep_policy} approves this mark. Approve it yourself to sweep it earlier."
        return NextStep(NextState.policy, f"The policy sweeps this mark from {due}", detail, (approve,))
    if facts and facts.ready_at and facts.ready_at > standing.now:
        headline = f"Ready for approval; deletes from {at(facts.ready_at)} at the earliest"
        wait = human_duration((facts.ready_at - standing.now).total_seconds())
        detail = f"{reviewed} You can approve now: the sweep then waits {wait} before it deletes."
        return NextStep(NextState.ready_later, headline, detail, (approve,))
    return NextStep(NextState.ready, "Ready for approval", reviewed, (approve,))


def forecast_note(mark: Mark) -> str:
    """Return how the report of a mark gets its forecast."""
    return (
        "The report of this mark has no forecast yet. Where Dagster's daemon runs, the sensor forecast_after_mark adds "
        f"it. Otherwise `lakefs-gc forecast {mark.repository}` adds it, or, if the data of the run are not kept (no "
        f"DAGSTER_HOME and no work_url), `lakefs-gc mark {mark.repository} --forecast` makes a mark with it."
    )


def _from(facts: MarkFacts | None, now: datetime) -> str:
    waits = facts is not None and facts.ready_at is not None and facts.ready_at > now
    return f" It deletes from {at(facts.ready_at)} at the earliest." if waits and facts and facts.ready_at else ""


def why_empty(mark: Mark, facts: MarkFacts | None) -> str:
    """Return why a mark has no objects; empty if it has some."""
    if mark.candidates:
        return ""
    if facts is None or facts.funnel is None:
        return "0 marked."
    funnel, age = facts.funnel, human_duration(facts.min_age_seconds)
    others = {
        f"newer than the cutoff (minimum age {age})": funnel.newer.objects,
        "kept": funnel.kept.objects,
        "not of this part": funnel.other_part.objects,
        "not lakeFS's own": funnel.not_lakefs.objects,
    }
    reasons = [f"{objects_of(count)} {'is' if count == 1 else 'are'} {why}" for why, count in others.items() if count]
    live = f"{funnel.live.objects:,} of {objects_of(funnel.listed.objects)} are live"
    if not funnel.listed.objects:
        return "0 marked: the store has no object of this repository."
    if not reasons:
        return f"0 marked: all {objects_of(funnel.listed.objects)} are live."
    return f"0 marked: {', and '.join([live, *reasons])}."
