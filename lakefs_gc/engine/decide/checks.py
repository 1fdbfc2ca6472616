"""Rule 8: what keeps a mark from being swept until a person has looked.

The checks are evaluated when the mark is made and stored in it, bound by its digest; the sweep reads them there.  An
approval may override a check by its name, with a reason, and the override is stored with the approval.

Each has one of three answers (rule 12).  What could not be looked at, was switched off, or had nothing to look at is
unknown, and blocks like a failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lakefs_gc.config import Protections, SafetyParameters
from lakefs_gc.engine.records.check import (
    CHECKS,
    COMMITTED_DATA_FOUND,
    LIVE_OBJECTS_EXIST,
    NO_HEAD_OBJECT_MARKED,
    NO_OBJECT_KEPT_UNVERIFIED,
    NOTHING_NEWER_THAN_CUTOFF,
    OTHER_REPOSITORIES_WERE_READ,
    RULES_NOT_LOOSER,
    SERVER_LIST_IS_COMPLETE,
    SHARE_OF_BYTES,
    SHARE_OF_OBJECTS,
    WARNING_CHECKS,
    Answer,
    Check,
    Severity,
    Unknown,
)
from lakefs_gc.formats.gc_rules import GCRules


@dataclass(frozen=True)
class HeadSample:
    """Objects that branches show, looked for among the marked ones.

    ``marked`` are those that are marked.  ``unread`` has each branch that could not be asked, with the reason.
    """

    objects: int
    marked: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OtherRepositories:
    """Which other repositories were looked at for references to objects of this one.

    ``unreadable`` and ``not_asked`` map a repository to the reason.  Those that are ``not_asked`` are named in
    ``safety.repositories_not_read``: a person has answered for them.
    """

    unreadable: Mapping[str, str] = field(default_factory=dict)
    not_asked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EarlierMark:
    """The mark before this one, by which the rules are compared; ``rules`` are None where none were set."""

    mark_id: str
    rules: GCRules | None
    protections: Protections


@dataclass(frozen=True)
class Evidence:
    """What the checks of a mark are evaluated from; sizes in bytes, counts of objects.

    What may be impossible to tell is ``Unknown`` then.  ``earlier`` is None for the first mark of a repository, and
    ``server_missed`` counts the active commits that the server does not list.
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
    earlier: EarlierMark | Unknown | None
    heads: HeadSample | Unknown
    lost: int
    lost_to_our_sweeps: int
    others: OtherRepositories | Unknown
    shielded: int
    server_missed: int | Unknown
    protections: Protections = field(default_factory=Protections)


def evaluate(evidence: Evidence, safety: SafetyParameters) -> tuple[Check, ...]:
    """Return the checks of a mark, in the order of ``CHECKS``."""
    failed = {check.name: check for check in _failed_checks(evidence, safety)}
    return tuple(failed.get(name) or _passed(name) for name in CHECKS)


def _passed(name: str) -> Check:
    severity = Severity.WARN if name in WARNING_CHECKS else Severity.ERROR
    return Check(name, Answer.SAFE, CHECKS[name], severity)


def _unknown(name: str, unknown: Unknown) -> Check:
    return Check(name, Answer.UNKNOWN, unknown.reason)


def _failed_checks(seen: Evidence, safety: SafetyParameters) -> Iterator[Check]:
    """Yield each check that did not pass."""
    unsafe = Answer.UNSAFE
    if seen.marked > safety.share_counts_from_objects or seen.marked_bytes > safety.share_counts_from_bytes:
        for name, part, whole, unit in (
            (SHARE_OF_OBJECTS, seen.marked, seen.listed, "objects"),
            (SHARE_OF_BYTES, seen.marked_bytes, seen.listed_bytes, "bytes"),
        ):
            if part > whole * safety.max_marked_share:
                yield Check(
                    name, unsafe, f"{part:,} of {whole:,} {unit} are marked, more than {safety.max_marked_share:.0%}"
                )
    if seen.marked and not seen.committed and seen.has_metadata:
        yield Check(COMMITTED_DATA_FOUND, unsafe, "nothing is committed, though the repository has metadata of commits")
    yield from _rules_problem(seen)
    if seen.newest_marked is not None and seen.newest_marked >= seen.cutoff:
        yield Check(
            NOTHING_NEWER_THAN_CUTOFF,
            unsafe,
            f"an object of {seen.newest_marked} is marked, the cutoff is {seen.cutoff}",
        )
    yield from _head_problem(seen.heads)
    if seen.lost:
        yield Check(
            LIVE_OBJECTS_EXIST,
            unsafe,
            f"{seen.lost:,} referenced objects do not exist, and no sweep deleted them: data were lost "
            "(the asset missing lists them)",
        )
    yield from _others_problem(seen.others)
    if seen.shielded:
        yield Check(
            NO_OBJECT_KEPT_UNVERIFIED,
            unsafe,
            f"{seen.shielded:,} objects were kept since too many paths would have to be looked up "
            "(raise safety.max_twin_lookups to decide them)",
            severity=Severity.WARN,
        )
    if isinstance(seen.server_missed, Unknown):
        yield _unknown(SERVER_LIST_IS_COMPLETE, seen.server_missed)
    elif seen.server_missed:
        yield Check(
            SERVER_LIST_IS_COMPLETE,
            unsafe,
            f"the server's list omits {seen.server_missed:,} active commits; their objects were kept",
            severity=Severity.WARN,
        )


def _rules_problem(seen: Evidence) -> Iterator[Check]:
    earlier = seen.earlier
    if isinstance(earlier, Unknown):
        yield _unknown(RULES_NOT_LOOSER, earlier)
    elif earlier is not None:
        looser = _looser(seen.rules, earlier.rules), _dropped(seen.protections, earlier.protections)
        if any(looser):
            message = f"since mark {earlier.mark_id} " + "; ".join(filter(None, looser))
            yield Check(RULES_NOT_LOOSER, Answer.UNSAFE, message)


def _head_problem(heads: HeadSample | Unknown) -> Iterator[Check]:
    name = NO_HEAD_OBJECT_MARKED
    if isinstance(heads, Unknown):
        yield _unknown(name, heads)
    elif heads.marked:
        yield Check(
            name,
            Answer.UNSAFE,
            f"{len(heads.marked)} of {heads.objects} objects that branches show are marked, e.g. {heads.marked[0]}",
        )
    elif heads.unread:
        branch, why = min(heads.unread.items())
        yield Check(
            name,
            Answer.UNKNOWN,
            f"whether an object that a branch shows is marked was not checked on {len(heads.unread)} branches, "
            f"e.g. {branch}: {why} (start a new run when lakeFS answers)",
        )


def _others_problem(others: OtherRepositories | Unknown) -> Iterator[Check]:
    name = OTHER_REPOSITORIES_WERE_READ
    if isinstance(others, Unknown):
        yield _unknown(name, others)
    elif others.unreadable:
        repositories = ", ".join(sorted(others.unreadable))
        yield Check(
            name,
            Answer.UNKNOWN,
            f"these repositories may refer to objects of this one, and could not be read: {repositories} (restore the "
            "access; or, if they imported nothing from here, name them in safety.repositories_not_read)",
        )
    elif others.not_asked:
        repositories = ", ".join(sorted(others.not_asked))
        yield Check(
            name,
            Answer.UNKNOWN,
            f"not read, because safety.repositories_not_read names them: {repositories}",
            severity=Severity.WARN,
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


def protections_from_json(content: Mapping[str, Any] | None) -> Protections:
    """As a mark has them; one that says nothing of them protected nothing that is known."""
    known = Protections.model_fields.keys() & (content or {}).keys()
    return Protections.model_validate({name: (content or {})[name] for name in known})
