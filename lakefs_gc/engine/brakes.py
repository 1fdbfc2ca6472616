"""Rule 8: what keeps a mark from being swept until a person has looked.

The brakes are evaluated when the mark is made and kept in it, bound by its digest; the sweep reads them there.  An
approval may override a brake by its name, with a reason, and the override is kept with the approval.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lakefs_gc.config import Protections, SafetyParameters
from lakefs_gc.errors import SafetyError
from lakefs_gc.formats.gc_rules import GCRules

logger = logging.getLogger(__name__)

MARK_AGE = "mark_is_recent"
RULES_NOT_LOOSER = "rules_not_looser"


@dataclass(frozen=True)
class Brake:
    """One thing that was checked.  ``blocks``: the sweep is refused while it has not passed and is not overridden."""

    name: str
    passed: bool
    message: str
    blocks: bool = True


BRAKES: Mapping[str, str] = {
    "share_of_objects": "Not more than the configured share of the listed objects is marked.",
    "share_of_bytes": "Not more than the configured share of the listed bytes is marked.",
    "something_is_committed": "In a repository with metadata something is committed.",
    RULES_NOT_LOOSER: "No branch is kept for fewer days, and nothing is protected less, than at the mark before.",
    "nothing_newer_than_cutoff": "Every marked object is older than the cutoff.",
    "no_head_object_marked": "No object that a branch shows, of a sample, is marked.",
    "live_objects_are_there": "Every object that is referenced exists, but for those that a sweep of ours deleted.",
    "other_repositories_were_read": "The metadata of every visible repository could be read.",
    "nothing_shielded": "No object was kept only because it could not be looked up.",
    "server_list_is_complete": "The server lists every commit that its rules retain.",
}
"""The brakes of a mark, by name, and what each says when it passes."""

WARNINGS = frozenset({"other_repositories_were_read", "nothing_shielded", "server_list_is_complete"})
"""Brakes that only warn.

``nothing_shielded`` and ``server_list_is_complete`` find what was kept.  Where there are too many commits to compare,
the latter says that nobody looked, and what the list lacks can be lost: that warns only, since every mark of such a
repository has it.  What a repository that could not be read imported from here can be lost: that warns only, since one
that nobody here may read would end all collecting.  Whoever approves reads its name, and one that the mark does not
name ends the sweep (``second_look``).
"""


@dataclass(frozen=True)
class Evidence:
    """What the brakes of a mark are evaluated from; sizes in bytes, counts of objects.

    ``heads_unread`` has the branches whose sample could not be had, with the reason.  ``server_missed`` is None where
    the server's list was not compared with anything.
    """

    cutoff: datetime
    listed: int
    listed_bytes: int
    marked: int
    marked_bytes: int
    newest_marked: datetime | None
    committed: int
    has_metadata: bool
    rules: GCRules | None
    earlier_rules: GCRules | None
    earlier_mark_id: str
    heads_sampled: int
    heads_marked: list[str]
    lost: int
    lost_to_our_sweeps: int
    heads_unread: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    shielded: int = 0
    server_missed: int | None = 0
    protections: Protections = field(default_factory=Protections)
    earlier_protections: Protections = field(default_factory=Protections)


def evaluate(evidence: Evidence, safety: SafetyParameters) -> tuple[Brake, ...]:
    """The brakes of a mark, in the order of ``BRAKES``."""
    problems = dict(_problems(evidence, safety))
    return tuple(
        Brake(name, name not in problems, problems.get(name, says), name not in WARNINGS)
        for name, says in BRAKES.items()
    )


def _problems(seen: Evidence, safety: SafetyParameters) -> Iterator[tuple[str, str]]:
    """Name and message of each brake that is on."""
    if seen.marked > safety.share_counts_from_objects:
        for name, part, whole, unit in (
            ("share_of_objects", seen.marked, seen.listed, "objects"),
            ("share_of_bytes", seen.marked_bytes, seen.listed_bytes, "bytes"),
        ):
            if part > whole * safety.max_marked_share:
                yield name, f"{part:,} of {whole:,} {unit} are marked, more than {safety.max_marked_share:.0%}"
    if seen.marked and not seen.committed and seen.has_metadata:
        yield "something_is_committed", "nothing is committed, though the repository has metadata of commits"
    looser = _looser(seen.rules, seen.earlier_rules), _dropped(seen.protections, seen.earlier_protections)
    if seen.earlier_mark_id and any(looser):
        yield RULES_NOT_LOOSER, f"since mark {seen.earlier_mark_id} " + "; ".join(filter(None, looser))
    if seen.newest_marked is not None and seen.newest_marked >= seen.cutoff:
        yield "nothing_newer_than_cutoff", f"an object of {seen.newest_marked} is marked, the cutoff is {seen.cutoff}"
    if seen.heads_marked:
        yield (
            "no_head_object_marked",
            f"{len(seen.heads_marked)} of {seen.heads_sampled} objects that branches show are marked, "
            f"e.g. {seen.heads_marked[0]}",
        )
    elif seen.heads_unread:
        branch, why = min(seen.heads_unread.items())
        yield (
            "no_head_object_marked",
            f"whether an object that a branch shows is marked was not checked on {len(seen.heads_unread)} branches, "
            f"e.g. {branch}: {why} (start a new run when lakeFS answers)",
        )
    if seen.lost:
        yield (
            "live_objects_are_there",
            f"{seen.lost:,} referenced objects do not exist, and no sweep of ours deleted them: data were lost "
            "(asset missing lists them)",
        )
    if seen.unreadable:
        names = ", ".join(sorted(seen.unreadable))
        yield "other_repositories_were_read", f"these may refer to objects here, and could not be read: {names}"
    if seen.shielded:
        yield (
            "nothing_shielded",
            f"{seen.shielded:,} objects were kept since too many paths would have to be looked up "
            "(raise safety.max_twin_lookups to decide them)",
        )
    if seen.server_missed is None:
        yield (
            "server_list_is_complete",
            "the server's list of active commits was not checked, and some servers leave out commits that the rules "
            "retain: there are more than safety.max_commits (raise it; each takes about 1 kB of the driver's memory)",
        )
    elif seen.server_missed:
        yield (
            "server_list_is_complete",
            f"the server's list lacks {seen.server_missed:,} active commits; they were kept",
        )


def _looser(rules: GCRules | None, earlier: GCRules | None) -> str:
    """Which branch is kept for fewer days; empty when none is."""
    if rules is None:
        return ""
    if earlier is None:
        return "rules were set where there were none: expired commits are collected now"
    branches = ["(every other branch)", *sorted(rules.branches.keys() | earlier.branches.keys())]
    for branch in branches:
        before, after = earlier.retention_days(branch), rules.retention_days(branch)
        if after < before:
            return f"branch {branch} is kept for {after} days, before for {before}"
    return ""


def _dropped(now: Protections, earlier: Protections) -> str:
    """Which protections are gone, or protect less; empty when none does.  Patterns are compared by their letters."""
    # A prefix that covers an earlier one protects all that it did.
    paths = [prefix for prefix in earlier.path_prefixes if not prefix.startswith(now.path_prefixes)]
    gone = {
        "tags": sorted(set(earlier.tags) - set(now.tags)),
        "branches": sorted(set(earlier.branches) - set(now.branches)),
        "paths": sorted(set(paths)),
    }
    dropped = [f"{what} {', '.join(names)}" for what, names in gone.items() if names]
    if now.days < earlier.days:
        dropped.append(f"commits younger than {earlier.days:g} days (now {now.days:g})")
    if now.last_commits < earlier.last_commits:
        dropped.append(f"the last {earlier.last_commits} commits of each branch (now {now.last_commits})")
    return f"safety.protect no longer has {'; '.join(dropped)}" if dropped else ""


def refuse_braked(
    brakes: tuple[Brake, ...],
    overrides: Mapping[str, str],
    *,
    repository: str,
    mark_id: str,
    created_at: datetime,
    now: datetime,
    safety: SafetyParameters,
) -> None:
    """Raise ``SafetyError`` unless each brake that blocks is off or overridden (name to reason)."""
    age = now - created_at
    limit = timedelta(days=safety.max_mark_age_days)
    recent = Brake(MARK_AGE, age <= limit, f"the mark is {age.days} days old, more than {safety.max_mark_age_days:g}")
    on = [brake for brake in (*brakes, recent) if brake.blocks and not brake.passed]
    for brake in on:
        if brake.name in overrides:
            logger.warning("brake %s of mark %s is overridden: %s", brake.name, mark_id, overrides[brake.name])
    left = [brake for brake in on if brake.name not in overrides]
    if left:
        flags = " ".join(f"--override {brake.name}" for brake in left)
        raise SafetyError(
            f"mark {mark_id} of {repository} is not swept: " + "; ".join(b.message for b in left),
            remedy=f"find out why; if it is right, `lakefs-gc approve {repository} --mark {mark_id} {flags} --why ...`",
            brakes=",".join(brake.name for brake in left),
        )


def rules_as_json(rules: GCRules | None) -> dict[str, Any] | None:
    """As a mark keeps them."""
    return None if rules is None else {"default_days": rules.default_retention_days, "branches": dict(rules.branches)}


def rules_from_json(content: Mapping[str, Any] | None) -> GCRules | None:
    """As a mark has them."""
    return None if content is None else GCRules(content["default_days"], dict(content["branches"]))


def protections_from_json(content: Mapping[str, Any] | None) -> Protections:
    """As a mark has them; one that says nothing of them protected nothing that is known."""
    known = Protections.model_fields.keys() & (content or {}).keys()
    return Protections.model_validate({name: (content or {})[name] for name in known})
