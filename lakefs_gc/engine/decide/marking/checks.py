"""Evaluates the checks of a mark from the evidence: what keeps it from being swept until a person decides (rule 8).

The checks are evaluated when the mark is made, and stored in it, bound by its digest; the sweep reads them there. An
approval may override a check by its name, with a reason, and the override is stored with the approval.

Each check has one of three answers (rule 12). What could not be read, was switched off, or had nothing to compare is
unknown, and blocks like a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from lakefs_gc.config import Protections, SafetyParameters
from lakefs_gc.engine.records.check import (
    CHECKS,
    COMMITTED_DATA_FOUND,
    LIVE_OBJECTS_EXIST,
    NO_HEAD_OBJECT_MARKED,
    NO_OBJECT_KEPT_UNVERIFIED,
    NOTHING_NEWER_THAN_CUTOFF,
    ONLY_NAMES_OF_LAKEFS,
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
    """A sample of the objects that branches show, and which of them are marked.

    ``unread`` maps each branch that could not be read to the reason.
    """

    objects: int
    marked: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class UnreadRepositories:
    """The other repositories that were not searched for references to objects of this one.

    ``unreadable`` and ``not_asked`` map a repository to the reason. Those that are ``not_asked`` are named in
    ``safety.repositories_not_read``: a person has decided that they refer to nothing here.
    """

    unreadable: Mapping[str, str] = field(default_factory=dict)
    not_asked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EarlierMark:
    """The previous mark, with which the rules are compared; ``rules`` are None if none were set."""

    mark_id: str
    rules: GCRules | None
    protections: Protections


@dataclass(frozen=True)
class ChosenNames:
    """How many marked objects of a whole bucket have a name in ``data/`` that lakeFS did not generate, and one.

    ``at_root`` counts those at the root, if the repository references no name there that lakeFS generates.
    """

    objects: int = 0
    example: str = ""
    at_root: int = 0
    example_at_root: str = ""


@dataclass(frozen=True)
class ListedOtherwise:
    """How many marked objects may be live objects under other names; one of them, and a live object that it may be."""

    objects: int = 0
    marked: str = ""
    live: str = ""


@dataclass(frozen=True)
class Evidence:
    """What the checks of a mark are evaluated from; sizes in bytes, counts of objects.

    A fact that could not be read is ``Unknown``. ``earlier`` is None for the first mark of a repository, and
    ``server_missed`` counts the active commits that the server's list omits.
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
    unlisted: int
    listed_otherwise: ListedOtherwise | Unknown
    others: UnreadRepositories | Unknown
    shielded: int
    server_missed: int | Unknown
    chosen_names: ChosenNames | Unknown
    protections: Protections = field(default_factory=Protections)


class _Failure(NamedTuple):
    """Why a check did not pass."""

    answer: Answer
    message: str
    severity: Severity = Severity.ERROR


def evaluate(evidence: Evidence, safety: SafetyParameters) -> tuple[Check, ...]:
    """Return the checks of a mark, in the order of ``CHECKS``."""
    return tuple(_check(name, _EVALUATORS[name](evidence, safety)) for name in CHECKS)


def _check(name: str, failure: _Failure | None) -> Check:
    if failure is not None:
        return Check(name, *failure)
    severity = Severity.WARN if name in WARNING_CHECKS else Severity.ERROR
    return Check(name, Answer.SAFE, CHECKS[name], severity)


def _unknown(unknown: Unknown) -> _Failure:
    return _Failure(Answer.UNKNOWN, unknown.reason)


def _unsafe(message: str, severity: Severity = Severity.ERROR) -> _Failure:
    return _Failure(Answer.UNSAFE, message, severity)


def _share(seen: Evidence, safety: SafetyParameters, unit: str) -> _Failure | None:
    if not (seen.marked > safety.share_counts_from_objects or seen.marked_bytes > safety.share_counts_from_bytes):
        return None
    part, whole = (seen.marked, seen.listed) if unit == "objects" else (seen.marked_bytes, seen.listed_bytes)
    if part <= whole * safety.max_marked_share:
        return None
    return _unsafe(f"{part:,} of {whole:,} {unit} are marked, more than {100 * safety.max_marked_share:g}%")


def _committed_data(seen: Evidence, safety: SafetyParameters) -> _Failure | None:
    if seen.marked and not seen.committed and seen.has_metadata:
        return _unsafe("no committed object was found, although the repository has metadata of commits")
    return None


def _rules(seen: Evidence, safety: SafetyParameters) -> _Failure | None:
    if isinstance(seen.earlier, Unknown):
        return _unknown(seen.earlier)
    if seen.earlier is None:
        return None
    looser = _looser(seen.rules, seen.earlier.rules), _dropped(seen.protections, seen.earlier.protections)
    if any(looser):
        return _unsafe(f"since mark {seen.earlier.mark_id} " + "; ".join(filter(None, looser)))
    return None


def _newest(seen: Evidence, safety: SafetyParameters) -> _Failure | None:
    if seen.newest_marked is not None and seen.newest_marked >= seen.cutoff:
        return _unsafe(f"an object of {seen.newest_marked} is marked, but the cutoff is {seen.cutoff}")
    return None


def _heads(seen: Evidence, safety: SafetyParameters) -> _Failure | None:
    heads = seen.heads
    if isinstance(heads, Unknown):
        return _unknown(heads)
    if heads.marked:
        return _unsafe(
            f"{len(heads.marked)} of {heads.objects} objects that branches show are marked, e.g. {heads.marked[0]}"
        )
    if heads.unread:
        branch, why = min(heads.unread.items())
        return _Failure(
            Answer.UNKNOWN,
            f"whether an object that a branch shows is marked was not checked on {len(heads.unread)} branches, "
            f"e.g. {branch}: {why} (start a new run when lakeFS answers)",
        )
    return None


def _live_objects(seen: Evidence, safety: SafetyParameters) -> _Failure | None:
    otherwise, found = seen.listed_otherwise, []
    # All that is wrong, so that nobody overrides the check because of one reason and does not see the other.
    if isinstance(otherwise, Unknown):
        found.append(otherwise.reason)
    elif otherwise.objects:
        found.append(
            f"{otherwise.objects:,} marked objects may be live: {otherwise.live} is referenced and exists, but is not "
            f"listed, and {otherwise.marked} has its size and time. The store may list objects under other names "
            "(compare the two; if they are one object, do not collect this repository, and report it)"
        )
    if seen.lost:
        found.append(
            f"{seen.lost:,} referenced objects do not exist, and no sweep deleted them: data were lost "
            "(the asset missing lists them)"
        )
    if found:
        is_unknown = isinstance(otherwise, Unknown) and not seen.lost
        return _Failure(Answer.UNKNOWN if is_unknown else Answer.UNSAFE, ". ".join(found))
    if seen.unlisted:
        return _unsafe(
            f"{seen.unlisted:,} live objects exist and are older than the cutoff, but the listing does not have them: "
            "it was not whole, so the mark may lack garbage, too (check the mounts, then mark again)",
            Severity.WARN,
        )
    return None


def _other_repositories(seen: Evidence, safety: SafetyParameters) -> _Failure | None:
    others = seen.others
    if isinstance(others, Unknown):
        return _unknown(others)
    if others.unreadable:
        repositories = ", ".join(sorted(others.unreadable))
        return _Failure(
            Answer.UNKNOWN,
            f"these repositories may refer to objects of this one, and could not be read: {repositories} (restore the "
            "access; or, if they imported nothing from here, name them in safety.repositories_not_read)",
        )
    if others.not_asked:
        repositories = ", ".join(sorted(others.not_asked))
        message = f"not read, because safety.repositories_not_read names them: {repositories}"
        return _Failure(Answer.UNKNOWN, message, Severity.WARN)
    return None


def _kept_unverified(seen: Evidence, safety: SafetyParameters) -> _Failure | None:
    if seen.shielded:
        return _unsafe(
            f"{seen.shielded:,} objects were kept unverified, because too many paths would have to be looked up "
            "(raise safety.max_twin_lookups to decide them)",
            Severity.WARN,
        )
    return None


def _server_list(seen: Evidence, safety: SafetyParameters) -> _Failure | None:
    if isinstance(seen.server_missed, Unknown):
        return _unknown(seen.server_missed)
    if seen.server_missed:
        return _unsafe(
            f"the server's list omits {seen.server_missed:,} of the active commits; their objects were kept",
            Severity.WARN,
        )
    return None


def _names(seen: Evidence, safety: SafetyParameters) -> _Failure | None:
    names = seen.chosen_names
    if isinstance(names, Unknown):
        return _unknown(names)
    found = []
    if names.objects:
        found.append(f"lakeFS did not generate the names of {names.objects:,} marked objects, e.g. {names.example}")
    if names.at_root:
        found.append(
            f"{names.at_root:,} marked objects are at the root, e.g. {names.example_at_root}, and the repository "
            "references no object there with a name that lakeFS generates"
        )
    if not found:
        return None
    return _unsafe(
        f"{'. '.join(found)}. The namespace is a whole bucket, so they may belong to another program (override this if "
        "only lakeFS and its clients write to data/ and to the root)"
    )


_EVALUATORS: Mapping[str, Callable[[Evidence, SafetyParameters], _Failure | None]] = {
    SHARE_OF_OBJECTS: partial(_share, unit="objects"),
    SHARE_OF_BYTES: partial(_share, unit="bytes"),
    COMMITTED_DATA_FOUND: _committed_data,
    RULES_NOT_LOOSER: _rules,
    NOTHING_NEWER_THAN_CUTOFF: _newest,
    NO_HEAD_OBJECT_MARKED: _heads,
    LIVE_OBJECTS_EXIST: _live_objects,
    OTHER_REPOSITORIES_WERE_READ: _other_repositories,
    NO_OBJECT_KEPT_UNVERIFIED: _kept_unverified,
    SERVER_LIST_IS_COMPLETE: _server_list,
    ONLY_NAMES_OF_LAKEFS: _names,
}
"""What evaluates each check of ``CHECKS``: None if it passed."""


def _looser(rules: GCRules | None, earlier: GCRules | None) -> str:
    """Return which branch is retained for fewer days; an empty string if none is."""
    if rules is None:
        return ""
    if earlier is None:
        return "rules were set, and there were none before: expired commits are collected now"
    branches = ["(every other branch)", *sorted(rules.branches.keys() | earlier.branches.keys())]
    for branch in branches:
        before, after = earlier.retention_days(branch), rules.retention_days(branch)
        if after < before:
            return f"branch {branch} is retained for {after} days instead of {before}"
    return ""


def _dropped(now: Protections, earlier: Protections) -> str:
    """Return which protections are removed or weaker; an empty string if none is. Patterns are compared as text."""
    # A prefix that covers an earlier one protects all that it did.
    paths = [prefix for prefix in earlier.path_prefixes if not prefix.startswith(now.path_prefixes)]
    gone = {
        "tags": sorted(set(earlier.tags) - set(now.tags)),
        "branches": sorted(set(earlier.branches) - set(now.branches)),
        "paths": sorted(set(paths)),
    }
    dropped = [f"{what} {', '.join(names)}" for what, names in gone.items() if names]
    if now.days < earlier.days:
        dropped.append(f"commits newer than {earlier.days:g} days (now {now.days:g})")
    if now.last_commits < earlier.last_commits:
        dropped.append(f"the last {earlier.last_commits} commits of each branch (now {now.last_commits})")
    return f"safety.protect no longer has {'; '.join(dropped)}" if dropped else ""


def protections_from_json(content: Mapping[str, Any] | None) -> Protections:
    """Return the protections that a mark records; none for a mark that records none."""
    known = Protections.model_fields.keys() & (content or {}).keys()
    return Protections.model_validate({name: (content or {})[name] for name in known})
