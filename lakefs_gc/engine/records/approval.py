"""The approval of a sweep: durable, beside the mark, and bound to the mark's digest (rule 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Annotated, Self

from pydantic import AfterValidator

from lakefs_gc.config import MANUAL, SafetyParameters
from lakefs_gc.engine.records.check import CHECKS, SWEEP_CHECKS, current_name, refuse_failed_checks
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.restore_log import notes, refuse_restored
from lakefs_gc.errors import ApprovalError, CorruptFileError
from lakefs_gc.formats.durable_record import DurableRecord, Time, record
from lakefs_gc.storage.base import ObjectStore

VIA_DAGSTER = "dagster"
VIA_COMMAND_LINE = "command line"
VIA_SWEEP_COMMAND = "sweep command"
"""Given on the way, by the command that then sweeps: no sensor is to start another sweep for it."""
POLICY = "policy "
"""With it begins how an approval says that a policy gave it."""


def _refuse_blank(reason: str) -> str:
    if not reason.strip():
        raise ValueError("a check is overridden without a reason")
    return reason


_Reason = Annotated[str, AfterValidator(_refuse_blank)]


@record
class Approval(DurableRecord):
    """Who approved which digest of which mark, when (UTC) and how.

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
    """Name of each check that is overridden, and why."""

    kind = "an approval"
    version_keys = MappingProxyType({1: None})
    remedy = "Approve the mark again"
    sorted_fields = False

    @classmethod
    def from_json(cls, data: bytes, file: str) -> Self:
        """Read an approval, with the current names of checks.  Raises ``CorruptFileError`` for what is no approval."""
        approval = super().from_json(data, file)
        return replace(approval, overrides=with_current_names(approval.overrides, f"the approval {file}"))


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
) -> Approval:
    """Record that ``digest`` may be swept, and which failed checks do not block; ``age`` is as of ``mark.age_of``.

    Raises ``ApprovalError`` when nobody is named, when the mark has another digest, or when an override names no check
    or has no reason; and ``SafetyError`` while a failed check blocks that is not overridden.  A mark of lakeFS's
    own client has no checks yet: they are evaluated when it is swept.
    """
    if not by.strip():
        raise ApprovalError(
            f"nobody is named who approves mark {mark.mark_id} of {mark.repository}",
            remedy="say who looked at it: --by NAME, or the field `approved_by` in the UI",
        )
    if not digest:
        raise ApprovalError(
            f"no digest is named: mark {mark.mark_id} of {mark.repository} may have changed since you looked at it",
            remedy="look at the mark, and name the digest that it shows: --digest, or the field `digest` in the UI",
        )
    overrides = with_current_names(overrides or {}, "an override")
    for name, why in overrides.items():
        if name not in CHECKS and name not in SWEEP_CHECKS:
            raise ApprovalError(
                f"unknown check {name!r}", remedy=f"known checks are: {', '.join([*CHECKS, *SWEEP_CHECKS])}"
            )
        if not why.strip():
            raise ApprovalError(
                f"check {name} is not overridden without a reason",
                remedy="say why: --why ..., or the field `why` in the UI",
            )
    if digest != mark.digest:
        raise ApprovalError(
            f"mark {mark.mark_id} of {mark.repository} has the digest {mark.digest}, not {digest}",
            remedy="look at the mark as it is now (`lakefs-gc show`), and approve that digest",
        )
    refuse_failed_checks(
        mark.checks,
        overrides,
        repository=mark.repository,
        mark_id=mark.mark_id,
        age=age,
        safety=safety,
    )
    approval = Approval(mark.mark_id, mark.repository, digest, by, via, now, overrides)
    store.put(MarkPaths.of(mark.mark_id).approval, approval.to_json())
    return approval


def refuse_without_person(mark: Mark, age: timedelta, safety: SafetyParameters) -> None:
    """Raise ``ApprovalError`` unless the settings that made the mark let a policy sweep it at this ``age``.

    ``age`` is how old the mark is at least (``marks.age_of``).  The sensor counts the delay by Dagster's records, whose
    times may be of two machines: a sweep that is early by no more than their clocks may be apart is not refused.
    What the settings say today of policies does not count: they may be another machine's, or newer than the mark.
    """
    remedy = f"look at the mark, and `lakefs-gc approve {mark.repository} --mark {mark.mark_id}`"
    if mark.sweep_policy == MANUAL:
        raise ApprovalError(
            f"mark {mark.mark_id} of {mark.repository} was made under the sweep policy manual: only a person approves "
            "it",
            remedy=remedy,
        )
    delay = timedelta(hours=mark.sweep_delay_hours)
    if age + safety.two_clocks_apart < delay:
        raise ApprovalError(
            f"the policy of mark {mark.mark_id} of {mark.repository} waits until the mark is "
            f"{mark.sweep_delay_hours:g} h old, and it is {age / timedelta(hours=1):.1f} h old by the store's clock",
            remedy=f"wait, or {remedy}",
        )


def is_approved(store: ObjectStore, mark: Mark) -> bool:
    """Whether an approval stands: it may have overrides, which a second one would take back."""
    try:
        read_approval(store, mark)
    except (ApprovalError, CorruptFileError):
        return False
    return True


def read_approval(store: ObjectStore, mark: Mark) -> Approval:
    """The approval of a mark.

    Raises ``ApprovalError`` when there is none, it is for another digest, or the mark was restored since.
    """
    key = MarkPaths.of(mark.mark_id).approval
    stored = store.stat_many([key]).get(key)
    if stored is None:
        raise ApprovalError(
            f"the sweep of mark {mark.mark_id} of {mark.repository} is not approved",
            remedy=f"`lakefs-gc approve {mark.repository} --mark {mark.mark_id}`, or materialize sweep_approval",
        )
    approval = Approval.from_json(store.read(key), key)
    if (approval.digest, approval.mark_id, approval.repository) != (mark.digest, mark.mark_id, mark.repository):
        raise ApprovalError(
            f"the approval in {key} is for {approval.mark_id} of {approval.repository} with digest {approval.digest}, "
            f"but the mark is {mark.mark_id} of {mark.repository} with digest {mark.digest}",
            remedy="look at the mark as it is now, and approve it again",
        )
    # Both by the store's clock; a HEAD tells whole seconds.
    older = frozenset(key for key, at in notes(store, mark.mark_id).items() if at < stored.last_modified)
    refuse_restored(store, mark.mark_id, older)
    return approval
