"""Rule 8: what keeps a mark from being swept until a person has looked.

The brakes are evaluated when the mark is made and kept in it, bound by its digest; the sweep reads them there.  An
approval may override a brake by its name, with a reason, and the override is kept with the approval.

Each has one of three answers (rule 12).  What could not be looked at, was switched off, or had nothing to look at is
unknown, and blocks like a failure.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from lakefs_gc.config import Protections, SafetyParameters
from lakefs_gc.engine.records.answer import Answer, Unknown
from lakefs_gc.errors import SafetyError
from lakefs_gc.formats.gc_rules import GCRules

logger = logging.getLogger(__name__)

MARK_AGE = "mark_is_recent"
RULES_NOT_LOOSER = "rules_not_looser"


@dataclass(frozen=True)
class Brake:
    """One thing that was checked.  ``blocks``: the sweep is refused while it has not passed and is not overridden."""

    name: str
    answer: Answer
    message: str
    blocks: bool = True

    @property
    def passed(self) -> bool:
        """Whether it is proved safe."""
        return self.answer is Answer.SAFE


BRAKES: Mapping[str, str] = {
    "share_of_objects": "Not more than the configured share of the listed objects is marked.",
    "share_of_bytes": "Not more than the configured share of the listed bytes is marked.",
    "something_is_committed": "In a repository with metadata something is committed.",
    RULES_NOT_LOOSER: "No branch is kept for fewer days, and nothing is protected less, than at the mark before.",
    "nothing_newer_than_cutoff": "Every marked object is older than the cutoff.",
    "no_head_object_marked": "No object that a branch shows, of a sample, is marked.",
    "live_objects_are_there": "Every referenced object exists, except those that an earlier sweep deleted.",
    "other_repositories_were_read": "The metadata of every visible repository was read.",
    "nothing_shielded": "No object was kept only because it could not be looked up.",
    "server_list_is_complete": "The server lists every commit that its rules retain.",
}
"""The brakes of a mark, by name, and what each says when it passes."""

KEPT_ONLY = frozenset({"nothing_shielded", "server_list_is_complete"})
"""Brakes whose failure says that more was kept than had to be: that only warns.  Unknown blocks here, too."""


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
    """What the brakes of a mark are evaluated from; sizes in bytes, counts of objects.

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


class _Problem(NamedTuple):
    """A brake that has not passed."""

    name: str
    answer: Answer
    message: str
    blocks: bool = True


def evaluate(evidence: Evidence, safety: SafetyParameters) -> tuple[Brake, ...]:
    """The brakes of a mark, in the order of ``BRAKES``."""
    problems = {problem.name: problem for problem in _problems(evidence, safety)}
    return tuple(
        Brake(*problems[name]) if name in problems else Brake(name, Answer.SAFE, says, name not in KEPT_ONLY)
        for name, says in BRAKES.items()
    )


def _unknown(name: str, unknown: Unknown) -> _Problem:
    return _Problem(name, Answer.UNKNOWN, unknown.reason)


def _problems(seen: Evidence, safety: SafetyParameters) -> Iterator[_Problem]:
    """What each brake that has not passed says."""
    unsafe = Answer.UNSAFE
    if seen.marked > safety.share_counts_from_objects or seen.marked_bytes > safety.share_counts_from_bytes:
        for name, part, whole, unit in (
            ("share_of_objects", seen.marked, seen.listed, "objects"),
            ("share_of_bytes", seen.marked_bytes, seen.listed_bytes, "bytes"),
        ):
            if part > whole * safety.max_marked_share:
                yield _Problem(
                    name, unsafe, f"{part:,} of {whole:,} {unit} are marked, more than {safety.max_marked_share:.0%}"
                )
    if seen.marked and not seen.committed and seen.has_metadata:
        yield _Problem(
            "something_is_committed", unsafe, "nothing is committed, though the repository has metadata of commits"
        )
    yield from _rules_problem(seen)
    if seen.newest_marked is not None and seen.newest_marked >= seen.cutoff:
        yield _Problem(
            "nothing_newer_than_cutoff",
            unsafe,
            f"an object of {seen.newest_marked} is marked, the cutoff is {seen.cutoff}",
        )
    yield from _head_problem(seen.heads)
    if seen.lost:
        yield _Problem(
            "live_objects_are_there",
            unsafe,
            f"{seen.lost:,} referenced objects do not exist, and no sweep deleted them: data were lost "
            "(the asset missing lists them)",
        )
    yield from _others_problem(seen.others)
    if seen.shielded:
        yield _Problem(
            "nothing_shielded",
            unsafe,
            f"{seen.shielded:,} objects were kept since too many paths would have to be looked up "
            "(raise safety.max_twin_lookups to decide them)",
            blocks=False,
        )
    if isinstance(seen.server_missed, Unknown):
        yield _unknown("server_list_is_complete", seen.server_missed)
    elif seen.server_missed:
        yield _Problem(
            "server_list_is_complete",
            unsafe,
            f"the server's list omits {seen.server_missed:,} active commits; their objects were kept",
            blocks=False,
        )


def _rules_problem(seen: Evidence) -> Iterator[_Problem]:
    earlier = seen.earlier
    if isinstance(earlier, Unknown):
        yield _unknown(RULES_NOT_LOOSER, earlier)
    elif earlier is not None:
        looser = _looser(seen.rules, earlier.rules), _dropped(seen.protections, earlier.protections)
        if any(looser):
            message = f"since mark {earlier.mark_id} " + "; ".join(filter(None, looser))
            yield _Problem(RULES_NOT_LOOSER, Answer.UNSAFE, message)


def _head_problem(heads: HeadSample | Unknown) -> Iterator[_Problem]:
    name = "no_head_object_marked"
    if isinstance(heads, Unknown):
        yield _unknown(name, heads)
    elif heads.marked:
        yield _Problem(
            name,
            Answer.UNSAFE,
            f"{len(heads.marked)} of {heads.objects} objects that branches show are marked, e.g. {heads.marked[0]}",
        )
    elif heads.unread:
        branch, why = min(heads.unread.items())
        yield _Problem(
            name,
            Answer.UNKNOWN,
            f"whether an object that a branch shows is marked was not checked on {len(heads.unread)} branches, "
            f"e.g. {branch}: {why} (start a new run when lakeFS answers)",
        )


def _others_problem(others: OtherRepositories | Unknown) -> Iterator[_Problem]:
    name = "other_repositories_were_read"
    if isinstance(others, Unknown):
        yield _unknown(name, others)
    elif others.unreadable:
        repositories = ", ".join(sorted(others.unreadable))
        yield _Problem(
            name,
            Answer.UNKNOWN,
            f"these repositories may refer to objects of this one, and could not be read: {repositories} (restore the "
            "access; or, if they imported nothing from here, name them in safety.repositories_not_read)",
        )
    elif others.not_asked:
        repositories = ", ".join(sorted(others.not_asked))
        yield _Problem(
            name,
            Answer.UNKNOWN,
            f"not read, because safety.repositories_not_read names them: {repositories}",
            blocks=False,
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
    age: timedelta,
    safety: SafetyParameters,
) -> None:
    """Raise ``SafetyError`` unless each brake that blocks is off or overridden (name to reason).

    ``age`` is how old the mark is at most (``marks.age_of``).
    """
    is_recent = age <= timedelta(days=safety.max_mark_age_days)
    recent = Brake(
        MARK_AGE,
        Answer.SAFE if is_recent else Answer.UNSAFE,
        f"the mark is {age.days} days old, more than {safety.max_mark_age_days:g}",
    )
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
