"""The approval of a sweep: durable, beside the mark, and bound to the mark's digest (rule 9)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime

from lakefs_gc.engine.brakes import BRAKES, MARK_AGE
from lakefs_gc.engine.marks import Mark, MarkPaths
from lakefs_gc.errors import ApprovalError, CorruptFileError
from lakefs_gc.storage.base import ObjectStore


@dataclass(frozen=True)
class Approval:
    """Who approved which digest of which mark, when (UTC) and how (``ui``, ``cli``, or the policy's name)."""

    mark_id: str
    repository: str
    digest: str
    approved_by: str
    approved_via: str
    approved_at: datetime
    overrides: dict[str, str] = field(default_factory=dict)
    """Name of each brake that is overridden, and why."""


def approve(
    store: ObjectStore,
    mark: Mark,
    digest: str,
    *,
    by: str,
    via: str,
    now: datetime,
    overrides: Mapping[str, str] | None = None,
) -> Approval:
    """Record that ``digest`` may be swept, and which brakes of it do not count.

    Raises ``ApprovalError`` when the mark has another digest, or an override names no brake or has no reason.
    """
    for name, why in (overrides or {}).items():
        if name not in BRAKES and name != MARK_AGE:
            raise ApprovalError(f"{name!r} is no brake", remedy=f"the brakes are {', '.join([*BRAKES, MARK_AGE])}")
        if not why.strip():
            raise ApprovalError(f"brake {name} is not overridden without a reason", remedy="say why: --why ...")
    if digest != mark.digest:
        raise ApprovalError(
            f"mark {mark.mark_id} of {mark.repository} has the digest {mark.digest}, not {digest}",
            remedy="look at the mark as it is now (`lakefs-gc show`), and approve that digest",
        )
    approval = Approval(mark.mark_id, mark.repository, digest, by, via, now, dict(overrides or {}))
    store.put(
        MarkPaths.of(mark.mark_id).approval,
        json.dumps(asdict(approval) | {"approved_at": now.isoformat()}, indent=2).encode(),
    )
    return approval


def read_approval(store: ObjectStore, mark: Mark) -> Approval:
    """The approval of a mark.  Raises ``ApprovalError`` when there is none, or it is for another digest."""
    key = MarkPaths.of(mark.mark_id).approval
    if not store.stat_many([key]):
        raise ApprovalError(
            f"the sweep of mark {mark.mark_id} of {mark.repository} is not approved",
            remedy=f"`lakefs-gc approve {mark.repository} --mark {mark.mark_id}`, or materialize sweep_approval",
        )
    try:
        content = json.loads(store.read(key))
        approval = Approval(**content | {"approved_at": datetime.fromisoformat(content["approved_at"])})
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(key, f"not an approval: {error}", remedy="approve the mark again") from None
    if (approval.digest, approval.mark_id, approval.repository) != (mark.digest, mark.mark_id, mark.repository):
        raise ApprovalError(
            f"the approval in {key} is for {approval.mark_id} of {approval.repository} with digest {approval.digest}, "
            f"but the mark is {mark.mark_id} of {mark.repository} with digest {mark.digest}",
            remedy="look at the mark as it is now, and approve it again",
        )
    return approval
