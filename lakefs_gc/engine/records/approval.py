"""The approval of a sweep: durable, beside the mark, and bound to the mark's digest (rule 9)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Annotated, Any, Self

from pydantic import AfterValidator

from lakefs_gc.config import MANUAL, SafetyParameters
from lakefs_gc.engine.records.check import (
    CHECKS,
    MARK_IS_RECENT,
    SWEEP_CHECKS,
    current_name,
    refuse_failed_checks,
)
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.restore_log import notes_before, refuse_restored
from lakefs_gc.engine.scope import PARTS, Scope
from lakefs_gc.errors import ApprovalError, CorruptFileError
from lakefs_gc.formats.durable_record import DurableRecord, Time, record
from lakefs_gc.storage.base import ObjectInfo, ObjectStore
from lakefs_gc.units import human_duration

logger = logging.getLogger(__name__)

VIA_DAGSTER = "dagster"
VIA_COMMAND_LINE = "command line"
VIA_SWEEP_COMMAND = "sweep command"
"""Given by a command that sweeps itself, so the sensor must not start another sweep for it."""
_VERSION = 2
_WHOLE_MARKS = 1
"""The version before approvals of parts: each is of a whole mark."""
POLICY = "policy "
"""The prefix of ``approved_via`` in the approval of a policy."""


def _refuse_blank(reason: str) -> str:
    if not reason.strip():
        raise ValueError("a check is overridden without a reason")
    return reason


_Reason = Annotated[str, AfterValidator(_refuse_blank)]


@record
class Approval(DurableRecord):
    """Who approved which digest of which mark, or of which part of it, when (UTC) and how.

    ``approved_via`` is ``VIA_DAGSTER``, ``VIA_COMMAND_LINE``, ``VIA_SWEEP_COMMAND``, or ``POLICY`` and its name, as
    ``policy after``.
    """

    mark_id: str
    repository: str
    digest: str
    approved_by: str
    approved_via: str
    approved_at: Time
    overrides: dict[str, _Reason] = field(default_factory=dict)
    """Name of each overridden check to the reason."""
    only: Scope = Scope.all
    """What was approved: the whole mark, or one part of it."""
    schema_version: int = field(default=_VERSION, kw_only=True)

    kind = "an approval"
    current_version = _VERSION
    version_keys = MappingProxyType({_WHOLE_MARKS: None})
    remedy = "Approve the mark again"
    sorted_fields = False

    @classmethod
    def from_json(cls, data: bytes, file: str) -> Self:
        """Read an approval, with the current names of checks. Raise ``CorruptFileError``."""
        approval = super().from_json(data, file)
        return replace(approval, overrides=with_current_names(approval.overrides, f"the approval {file}"))

    @classmethod
    def upgrade(cls, content: dict[str, Any], version: int, file: str) -> dict[str, Any]:
        """Return the fields. An approval of version 1 is of the whole mark."""
        if version != _WHOLE_MARKS:
            return content
        if "only" in content:
            raise ValueError(f"version {version} has no field 'only'")
        return content | {"only": Scope.all.value}


def with_current_names(overrides: Mapping[str, str], where: str) -> dict[str, str]:
    """Return overrides with the current name of each check, and log a warning for each former name in ``where``."""
    return {current_name(name, where): why for name, why in overrides.items()}


def approve(
    store: ObjectStore,
    mark: Mark,
    digest: str,
    *,
    by: str,
    via: str,
    now: datetime,
    age: timedelta,
    safety: SafetyParameters,
    overrides: Mapping[str, str] | None = None,
    only: Scope = Scope.all,
) -> Approval:
    """Record that the mark with this digest, or one part of it, may be swept, and which failed checks are overridden.

    ``age`` is the greatest age of the mark (``age_of``). Raise ``ApprovalError`` if no person is named, if the mark has
    another digest, or if an override has an unknown check or no reason, ``MarkError`` if the mark does not record which
    objects are of the part, and ``SafetyError`` if a failed check blocks the sweep and is not overridden. The checks of
    a mark of lakeFS's own client are evaluated when it is swept.
    """
    if not by.strip():
        raise ApprovalError(
            f"The approval of mark {mark.mark_id} of {mark.repository} does not name a person",
            remedy="Pass --by NAME, or fill in the field `approved_by` in the UI",
        )
    if not digest:
        raise ApprovalError(
            f"The approval of mark {mark.mark_id} of {mark.repository} has no digest, so it could be of another mark "
            "than the one that was reviewed",
            remedy="Review the mark, then pass its digest with --digest, or in the field `digest` in the UI",
        )
    overrides = with_current_names(overrides or {}, "an override")
    for name, why in overrides.items():
        if name not in CHECKS and name not in SWEEP_CHECKS:
            raise ApprovalError(
                f"Unknown check {name!r}", remedy=f"Known checks: {', '.join([*CHECKS, *SWEEP_CHECKS])}"
            )
        if not why.strip():
            raise ApprovalError(
                f"The override of check {name} has no reason",
                remedy="Pass --why REASON, or fill in the field `why` in the UI",
            )
    refuse_other_digest(mark, digest)
    if MARK_IS_RECENT in overrides and age <= timedelta(days=safety.max_mark_age_days):
        raise ApprovalError(
            f"Mark {mark.mark_id} of {mark.repository} is recent, so the override of {MARK_IS_RECENT} would never end",
            remedy="Approve the mark without this override. If it is too old when it is swept, approve it again then",
        )
    mark.refuse_no_part(only)
    refuse_failed_checks(
        mark.checks,
        overrides,
        repository=mark.repository,
        mark_id=mark.mark_id,
        age=age,
        safety=safety,
    )
    approval = Approval(mark.mark_id, mark.repository, digest, by, via, now, overrides, only)
    store.put(MarkPaths.of(mark.mark_id).approval_of(only), approval.to_json())
    return approval


def refuse_other_digest(mark: Mark, digest: str) -> None:
    """Raise ``ApprovalError`` unless the mark has this digest."""
    if digest != mark.digest:
        raise ApprovalError(
            f"Mark {mark.mark_id} of {mark.repository} has the digest {mark.digest}, not {digest}",
            remedy="Review the mark with `lakefs-gc show`, then approve the digest that it shows",
        )


def refuse_without_person(mark: Mark, age: timedelta, safety: SafetyParameters) -> None:
    """Raise ``ApprovalError`` unless the policy that is recorded in the mark permits a sweep at this ``age``.

    ``age`` is the least age of the mark (``age_of``). The sensor measures the delay by Dagster's records, with times of
    two machines, so a sweep may be early by the difference that two clocks may have. The policy in the settings does
    not count: they may be of another machine, or newer than the mark.
    """
    remedy = f"Review the mark, then run `lakefs-gc approve {mark.repository} --mark {mark.mark_id}`"
    if mark.sweep_policy == MANUAL:
        raise ApprovalError(
            f"Mark {mark.mark_id} of {mark.repository} has the sweep policy manual: only a person can approve it",
            remedy=remedy,
        )
    delay = timedelta(hours=mark.sweep_delay_hours)
    if age + safety.two_clocks_apart < delay:
        raise ApprovalError(
            f"The policy of mark {mark.mark_id} of {mark.repository} waits until the mark is "
            f"{human_duration(delay.total_seconds())} old, and it is {human_duration(age.total_seconds())} old on the "
            "store's clock",
            remedy=f"Wait. To sweep earlier: {remedy}",
        )


def refuse_part_approved(store: ObjectStore, mark: Mark) -> None:
    """Raise ``ApprovalError`` if a part of the mark was approved: then no policy sweeps the rest of it.

    A person who approves one part has reviewed the mark, and has omitted the other part.
    """
    paths = MarkPaths.of(mark.mark_id)
    approved = [only for only in PARTS if store.stat_many([paths.approval_of(only)])]
    if approved:
        [rest] = [only for only in PARTS if only != approved[0]]
        raise ApprovalError(
            f"Only a part of mark {mark.mark_id} of {mark.repository} was approved ({approved[0].value}), so the "
            "policy does not sweep the whole mark",
            remedy=f"Review the mark, then run `lakefs-gc approve {mark.repository} --mark {mark.mark_id}"
            f"{rest.option}`",
        )


def is_approved(store: ObjectStore, mark: Mark, only: Scope = Scope.all) -> bool:
    """Return whether the mark, or a part of it, has a valid approval. A second one would replace its overrides."""
    try:
        read_approval(store, mark, only)
    except (ApprovalError, CorruptFileError):
        return False
    return True


def read_approval(store: ObjectStore, mark: Mark, only: Scope = Scope.all) -> Approval:
    """Return the approval of a mark, or of a part of it: that of the part, or one of the whole mark.

    Raise ``ApprovalError`` if there is none, if it is for another digest or another part, if the mark was restored
    since, or if it is of a policy and a person approved a part.
    """
    paths = MarkPaths.of(mark.mark_id)
    scopes = list(dict.fromkeys((only, Scope.all)))
    stored = store.stat_many([paths.approval_of(scope) for scope in scopes])
    existing = [scope for scope in scopes if paths.approval_of(scope) in stored]
    if not existing:
        raise ApprovalError(
            f"The sweep of mark {mark.mark_id} of {mark.repository}{only.words} is not approved",
            remedy=f"Run `lakefs-gc approve {mark.repository} --mark {mark.mark_id}{only.option}`, or materialize "
            "sweep_approval",
        )
    for scope in existing[:-1]:
        try:
            return _checked_approval(store, mark, scope, stored[paths.approval_of(scope)])
        except (ApprovalError, CorruptFileError) as error:
            logger.info("mark %s: the approval of a part is not valid: %s", mark.mark_id, error.message)
    return _checked_approval(store, mark, existing[-1], stored[paths.approval_of(existing[-1])])


def _checked_approval(store: ObjectStore, mark: Mark, only: Scope, stored: ObjectInfo) -> Approval:
    key = MarkPaths.of(mark.mark_id).approval_of(only)
    approval = Approval.from_json(store.read(key), key)
    if (approval.digest, approval.mark_id, approval.repository) != (mark.digest, mark.mark_id, mark.repository):
        raise ApprovalError(
            f"The approval in {key} is for {approval.mark_id} of {approval.repository} with digest {approval.digest}, "
            f"but the mark is {mark.mark_id} of {mark.repository} with digest {mark.digest}",
            remedy="Review the mark, then approve it again",
        )
    if approval.only != only:
        raise ApprovalError(
            f"The approval in {key} is of {approval.only.value} objects, not of {only.value} ones",
            remedy="Review the mark, then approve it again",
        )
    if approval.approved_via.startswith(POLICY):
        # A person may have approved a part since, for example after the sweep of the policy had failed.
        refuse_part_approved(store, mark)
    older = notes_before(store, mark.mark_id, approval.approved_at, stored.last_modified)
    refuse_restored(store, mark.mark_id, older)
    return approval
