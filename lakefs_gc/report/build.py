"""Builds the page of a mark from its records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakefs_gc.config import Protections
from lakefs_gc.engine.records.check import Check
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_facts import Amount, Funnel, MarkFacts
from lakefs_gc.engine.records.mark_parts import Overview
from lakefs_gc.formats.gc_rules import rules_from_record
from lakefs_gc.report.meanings import MEANINGS
from lakefs_gc.report.next_step import BackupState, Standing, forecast_note, next_step, why_empty
from lakefs_gc.report.page import (
    BACKUP,
    AgeRow,
    CheckRow,
    Comparison,
    CurvePoint,
    Fact,
    FunnelStep,
    MarkPage,
    NextState,
    OutcomeRow,
    RunRow,
)
from lakefs_gc.report.words import at, objects_of
from lakefs_gc.units import human_bytes, human_duration

_SWEPT_PER_SECOND = (2_400, 14_000)
"""Objects that a sweep deletes in a second: on a store with a low limit of requests, and on a fast one (scale.md)."""
_SMALLEST_SWEEP_SECONDS = 20
_KEPT = {
    "shown_by_a_branch": "a branch shows them, although the server's list omits them",
    "shielded": "could not be looked up, so they are kept unverified",
    "protected_path": "a commit has them under a protected path",
}
_BEFORE_SWEEP = frozenset(
    {
        NextState.empty,
        NextState.blocked,
        NextState.backup_missing,
        NextState.ready_later,
        NextState.ready,
        NextState.policy,
    }
)
"""After a sweep, and of a mark that is not the newest, no forecast can be computed."""
NO_OVERVIEW = Overview((), ())


@dataclass(frozen=True)
class Extras:
    """What the caller knows beyond the records of the mark."""

    outcomes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    last_runs: Sequence[RunRow] = ()
    forecast: Sequence[CurvePoint] = ()


def mark_page(
    mark: Mark,
    facts: MarkFacts | None,
    overview: Overview = NO_OVERVIEW,
    standing: Standing | None = None,
    extras: Extras | None = None,
) -> MarkPage:
    """Return the page of a mark. ``standing`` is what happened since; default: the mark was just made."""
    standing = standing or Standing(mark.created_at)
    extras = extras or Extras()
    checks = [_check_row(check) for check in mark.checks]
    following = next_step(mark, facts, standing)
    may_have_forecast = mark.is_ours and following.state in _BEFORE_SWEEP
    funnel = facts.funnel if facts else None
    return MarkPage(
        mark_id=mark.mark_id,
        repository=mark.repository,
        digest=mark.digest,
        next=following,
        marked=None if mark.candidate_bytes is None else Amount(mark.candidates, mark.candidate_bytes),
        objects=mark.candidates,
        why_empty=why_empty(mark, facts),
        failed_checks=tuple(row for row in checks if row.result != "passed"),
        passed_checks=tuple(row for row in checks if row.result == "passed"),
        funnel=tuple(_funnel_steps(funnel, mark)) if funnel else (),
        reasons=tuple(
            (reason, Amount(total["objects"], total["size_bytes"])) for reason, total in mark.reasons.items()
        ),
        ages=tuple(_ages(facts)) if facts else (),
        comparison=tuple(_comparison(mark, facts)),
        compared_with=f"mark {facts.earlier.mark_id} of {at(facts.earlier.created_at)}"
        if facts and facts.earlier
        else "",
        groups=facts.paths.groups if facts and facts.paths else (),
        groups_note=_groups_note(mark, facts),
        prefixes=overview.largest_prefixes,
        sample=overview.sample,
        in_force=tuple(_in_force(mark, facts, standing)),
        lowered=facts.lowered if facts else (),
        timing=tuple(_timing(mark, facts)),
        consequences=tuple(_consequences(mark, facts)),
        files=tuple(_files(mark)),
        facts=tuple(_facts(mark)),
        created_at=mark.created_at,
        ready_at=facts.ready_at if facts else None,
        outcomes=tuple(OutcomeRow(name, Amount(o["objects"], o["size_bytes"])) for name, o in extras.outcomes.items()),
        last_runs=tuple(extras.last_runs),
        forecast=tuple(extras.forecast),
        forecast_note=forecast_note(mark) if may_have_forecast and not extras.forecast else "",
    )


def _check_row(check: Check) -> CheckRow:
    result = "passed" if check.passed else "failed" if check.blocks_sweep else "warning"
    return CheckRow(
        name=check.name,
        result=result,
        answer=check.answer.value,
        message=check.message,
        meaning="" if check.passed else MEANINGS.get(check.name, ""),
        override=f"--override {check.name}" if check.blocks_sweep else "",
    )


def _funnel_steps(funnel: Funnel, mark: Mark) -> Iterator[FunnelStep]:
    def step(name: str, label: str, amount: Amount, *, is_detail: bool = False) -> FunnelStep:
        whole = funnel.listed
        shares = _share(amount.objects, whole.objects), _share(amount.size_bytes, whole.size_bytes)
        return FunnelStep(name, label, amount, *shares, is_detail)

    yield step("listed", "listed", funnel.listed)
    yield step("live", "live, because something references them", funnel.live)
    yield step("newer", "newer than the cutoff, and unreferenced", funnel.newer)
    if funnel.not_lakefs.objects:
        yield step("not_lakefs", "names that lakeFS did not generate, never marked", funnel.not_lakefs)
    yield step("kept", "kept, and unreferenced", funnel.kept)
    for why, amount in funnel.kept_because.items():
        yield step(why, f"of these: {_KEPT.get(why, why)}", amount, is_detail=True)
    if mark.only.is_part:
        yield step("other_part", f"unreferenced, but not {mark.only.value.replace('_', ' ')}", funnel.other_part)
    yield step("marked", "marked for deletion", funnel.marked)
    for reason, total in mark.reasons.items():
        amount = Amount(total["objects"], total["size_bytes"])
        if amount.objects:
            yield step(reason, f"of these: {reason.replace('_', ' ')}", amount, is_detail=True)


def _share(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _ages(facts: MarkFacts) -> Iterator[AgeRow]:
    for name in dict.fromkeys((*facts.listed_by_age, *facts.marked_by_age)):
        listed, marked, never = (
            counted.get(name, 0) for counted in (facts.listed_by_age, facts.marked_by_age, facts.never_committed_by_age)
        )
        if listed or marked:
            yield AgeRow(name, listed, marked, never)


def _comparison(mark: Mark, facts: MarkFacts | None) -> Iterator[Comparison]:
    if facts is None or facts.earlier is None:
        return
    before = facts.earlier
    yield Comparison("objects in the store", before.listed_objects, mark.counts.get("store_listing", 0))
    yield Comparison("marked objects", before.marked.objects, mark.candidates)
    yield Comparison("marked bytes", before.marked.size_bytes, mark.candidate_bytes or 0, is_bytes=True)


def _groups_note(mark: Mark, facts: MarkFacts | None) -> str:
    if not mark.candidates:
        return ""
    if facts is None or facts.paths is None:
        return "The paths of the objects were not looked up for this mark."
    return facts.paths.unknown


def _in_force(mark: Mark, facts: MarkFacts | None, standing: Standing) -> Iterator[Fact]:
    rules = rules_from_record(mark.rules)
    if rules is not None:
        of_branches = [f"{branch}: {days} days" for branch, days in sorted(rules.branches.items())]
        yield Fact("retention rules", ", ".join([f"default: {rules.default_retention_days} days", *of_branches]))
    elif mark.is_ours:
        yield Fact("retention rules", "none, so everything that was ever committed is kept")
    if facts:
        yield Fact(
            "minimum age", f"{human_duration(facts.min_age_seconds)}: objects since {at(mark.cutoff)} are not marked"
        )
    protections = mark.run.get("protections")
    if mark.is_ours:
        yield Fact("protections", _protections(protections))
    for names, text in ((mark.unreadable, "could not be read"), (mark.not_asked, "not read, by the settings")):
        if names:
            yield Fact("other repositories", f"{', '.join(sorted(names))}: {text}")
    yield Fact(BACKUP, _backup(mark, standing))


def _protections(content: Mapping[str, Any] | None) -> str:
    kept = Protections.model_validate(
        {name: value for name, value in (content or {}).items() if name in Protections.model_fields}
    )
    parts = [
        *(f"tags {pattern}" for pattern in kept.tags),
        *(f"branches {pattern}" for pattern in kept.branches),
        *(f"paths {prefix}" for prefix in kept.path_prefixes),
    ]
    if kept.days:
        parts.append(f"commits of the last {kept.days:g} days")
    if kept.last_commits:
        parts.append(f"the last {kept.last_commits} commits of each branch")
    return ", ".join(parts) or "none"


def _backup(mark: Mark, standing: Standing) -> str:
    required = ", and the sweep requires one" if mark.needs_backup else ""
    if standing.backup is BackupState.complete:
        return "complete: every object of it can be restored"
    if standing.backup is BackupState.of_another_digest:
        return f"of another digest, so it is not a backup of this mark{required}"
    if standing.backup is BackupState.missing:
        return f"none yet{required}: run `lakefs-gc backup {mark.repository} --mark {mark.mark_id}` first"
    if standing.backup is BackupState.not_configured:
        why = f"none, because no backup location is configured (backup.url){required}"
        return f"{why}. What is deleted is gone for good"
    return f"unknown: the backup location was not read{required}"


def _timing(mark: Mark, facts: MarkFacts | None) -> Iterator[Fact]:
    if facts and facts.ready_at and facts.ready_at > mark.created_at:
        yield Fact("earliest delete", f"{at(facts.ready_at)}, when every commit of the time of the mark has ended")
    if mark.sweep_policy != "manual":
        delay = f", {human_duration(mark.sweep_delay_hours * 3600)} after the mark" if mark.sweep_delay_hours else ""
        yield Fact("policy", f"{mark.sweep_policy}: the sensor approves the mark{delay}, unless a check failed")
    if mark.candidates:
        slow, fast = (mark.candidates / rate + _SMALLEST_SWEEP_SECONDS for rate in _SWEPT_PER_SECOND)
        span = dict.fromkeys((human_duration(fast), human_duration(slow)))
        yield Fact("expected duration of the sweep", f"about {' to '.join(span)}")
    if facts:
        yield Fact("duration of the mark", human_duration(facts.run_seconds))


def _consequences(mark: Mark, facts: MarkFacts | None) -> Iterator[str]:
    if not mark.candidates:
        return
    if space := mark.run.get("deleted_bytes"):
        yield f"Space: {space}."
    if not mark.reasons or mark.reasons.get("expired", {}).get("objects"):
        yield (
            "Commits that the retention rules let expire keep their history, but reading an object of this mark "
            "through them answers 410 Gone. A branch or tag that somebody makes from such a commit before the sweep "
            "keeps its objects."
        )
    if mark.reasons.get("never_committed", {}).get("objects"):
        yield "Objects that were never committed have no path. No commit and no branch changes."
    if facts and any(setting.name == "sweep.delete_versions" for setting in facts.lowered):
        yield "Every version of the objects is deleted permanently. Only a backup can restore them."


def _files(mark: Mark) -> Iterator[Fact]:
    if not mark.candidates:
        return
    yield Fact("as CSV", f"lakefs-gc report {mark.repository} {mark.mark_id} --list FILE")
    yield Fact("as text, one address a line", f"{mark.location}deleted.text/")
    yield Fact("as Parquet", f"{mark.location}deleted/")


def _facts(mark: Mark) -> Iterator[Fact]:
    yield Fact("mark", mark.mark_id)
    yield Fact("repository", mark.repository)
    yield Fact("made by", mark.made_by)
    yield Fact("made at", at(mark.created_at))
    yield Fact("location", mark.location)
    yield Fact("digest", mark.digest)
    yield Fact("cutoff", mark.cutoff.isoformat())
    if mark.only.is_part:
        yield Fact("only", mark.only.value.replace("_", " "))
    for stage in ("committed", "uncommitted", "foreign_references"):
        if stage in mark.counts:
            yield Fact(f"references: {stage.replace('_', ' ')}", f"{mark.counts[stage]:,}")
    if mark.named_at_root:
        yield Fact("names at the root", f"all collected, because the repository refers to {mark.named_at_root}")
    elif mark.not_lakefs is not None and mark.not_lakefs[0]:
        count, size_bytes = mark.not_lakefs
        yield Fact("unrecognized names", f"{objects_of(count)} at the root, {human_bytes(size_bytes)} (never marked)")
