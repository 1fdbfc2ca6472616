"""The checks of a mark: their names, what each proves, and how one answer is recorded (rules 8 and 12).

A check is evaluated when the mark is made (``engine.decide.marking.checks``) and stored in it, bound by the mark's
digest. A failed check with the severity ERROR blocks the sweep until an approval overrides the check by name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from lakefs_gc.config import SafetyParameters
from lakefs_gc.errors import SafetyError
from lakefs_gc.formats.durable_record import record

logger = logging.getLogger(__name__)

SHARE_OF_OBJECTS = "share_of_objects"
SHARE_OF_BYTES = "share_of_bytes"
COMMITTED_DATA_FOUND = "committed_data_found"
RULES_NOT_LOOSER = "rules_not_looser"
NOTHING_NEWER_THAN_CUTOFF = "nothing_newer_than_cutoff"
NO_HEAD_OBJECT_MARKED = "no_head_object_marked"
LIVE_OBJECTS_EXIST = "live_objects_exist"
OTHER_REPOSITORIES_WERE_READ = "other_repositories_were_read"
NO_OBJECT_KEPT_UNVERIFIED = "no_object_kept_unverified"
SERVER_LIST_IS_COMPLETE = "server_list_is_complete"
ONLY_NAMES_OF_LAKEFS = "only_names_of_lakefs"
MARK_IS_RECENT = "mark_is_recent"

CHECKS: Mapping[str, str] = {
    SHARE_OF_OBJECTS: "At most the configured share of the listed objects is marked.",
    SHARE_OF_BYTES: "At most the configured share of the listed bytes is marked.",
    COMMITTED_DATA_FOUND: "A repository that has metadata of commits has committed objects.",
    RULES_NOT_LOOSER: "No branch is retained for fewer days, and no protection is weaker, than at the previous mark.",
    NOTHING_NEWER_THAN_CUTOFF: "Every marked object is older than the cutoff.",
    NO_HEAD_OBJECT_MARKED: "No object of a sample of those that branches show is marked.",
    LIVE_OBJECTS_EXIST: "Every referenced object exists, except those that an earlier sweep deleted.",
    OTHER_REPOSITORIES_WERE_READ: "The metadata of every visible repository was read.",
    NO_OBJECT_KEPT_UNVERIFIED: "No object was kept only because it could not be looked up.",
    SERVER_LIST_IS_COMPLETE: "The server lists every commit that its rules retain.",
    ONLY_NAMES_OF_LAKEFS: "In a whole bucket, only names that lakeFS generates are marked, and those at the root only "
    "if the repository has objects there.",
}
"""The checks that a mark stores, by name, with the statement that is true when the check passes."""

SWEEP_CHECKS: Mapping[str, str] = {
    MARK_IS_RECENT: "The mark is not older than safety.max_mark_age_days.",
}
"""The checks that are evaluated when a mark is approved or swept, and not stored in it."""

WARNING_CHECKS = frozenset({NO_OBJECT_KEPT_UNVERIFIED, SERVER_LIST_IS_COMPLETE})
"""Checks whose failure means that more was kept than necessary, so it only warns. An unknown answer still blocks."""

FORMER_NAMES: Mapping[str, str] = {
    "nothing_shielded": NO_OBJECT_KEPT_UNVERIFIED,
    "live_objects_are_there": LIVE_OBJECTS_EXIST,
    "something_is_committed": COMMITTED_DATA_FOUND,
}
"""Former to current names of checks. Overrides, approvals and marks may use a former name for one release."""


class Answer(StrEnum):
    """What a check proves. ``UNKNOWN`` blocks a sweep like ``UNSAFE``."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Unknown:
    """A fact that could not be established, was not requested, or had an empty sample; ``reason`` is for people."""

    reason: str


class Severity(StrEnum):
    """What a failed check does, in the words of Dagster: ERROR blocks the sweep, WARN does not."""

    ERROR = "ERROR"
    WARN = "WARN"


@record
class Check:
    """The recorded result of one check. ``severity`` applies if it fails."""

    name: str
    answer: Answer
    message: str
    severity: Severity = Severity.ERROR

    @property
    def passed(self) -> bool:
        """Return whether the check proved that the sweep is safe."""
        return self.answer is Answer.SAFE

    @property
    def blocks_sweep(self) -> bool:
        """Return whether the sweep is refused unless an approval overrides this check."""
        return not self.passed and self.severity is not Severity.WARN


def failed_checks(checks: Iterable[Check]) -> list[Check]:
    """Return the checks that did not pass, whatever their severity."""
    return [check for check in checks if not check.passed]


def current_name(name: str, where: str) -> str:
    """Return the current name of a check, and log a warning if ``name`` is a former name.

    ``where`` (for example ``an override``) is the part of the warning that says what uses the former name.
    """
    current = FORMER_NAMES.get(name, name)
    if current != name:
        logger.warning(
            "%s uses the former check name %s: use %s, the former name stops working in the next release",
            where,
            name,
            current,
        )
    return current


def refuse_failed_checks(
    checks: tuple[Check, ...],
    overrides: Mapping[str, str],
    *,
    repository: str,
    mark_id: str,
    age: timedelta,
    safety: SafetyParameters,
) -> None:
    """Raise ``SafetyError`` unless each check that blocks the sweep is overridden (name to reason).

    ``age`` is the greatest age that the mark can have (``stored_marks.age_of``).
    """
    is_recent = age <= timedelta(days=safety.max_mark_age_days)
    recent = Check(
        MARK_IS_RECENT,
        Answer.SAFE if is_recent else Answer.UNSAFE,
        f"the mark is {age.days} days old, more than {safety.max_mark_age_days:g}",
    )
    blocking = [check for check in (*checks, recent) if check.blocks_sweep]
    for check in blocking:
        if check.name in overrides:
            logger.warning("check %s of mark %s is overridden: %s", check.name, mark_id, overrides[check.name])
    left = [check for check in blocking if check.name not in overrides]
    if left:
        flags = " ".join(f"--override {check.name}" for check in left)
        raise SafetyError(
            f"mark {mark_id} of {repository} is not swept: " + "; ".join(check.message for check in left),
            remedy="Find the cause. If the mark is correct, run "
            f"`lakefs-gc approve {repository} --mark {mark_id} {flags} --why ...`",
            failed_checks=",".join(check.name for check in left),
        )
