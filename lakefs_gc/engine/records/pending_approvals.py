"""Approvals that stand in a namespace, and that no sweep has followed: whoever wrote them, and wherever."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from lakefs_gc.engine.records.approval import VIA_COMMAND_LINE, VIA_DAGSTER, Approval
from lakefs_gc.engine.records.ledger import SEQUENCE_FORMAT
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.restore_log import notes
from lakefs_gc.engine.records.stored_marks import mark_folders, run_key_of
from lakefs_gc.errors import CorruptFileError, MarkError
from lakefs_gc.storage.base import ObjectInfo, ObjectStore

logger = logging.getLogger(__name__)

_BY_A_PERSON = (VIA_COMMAND_LINE, VIA_DAGSTER)


@dataclass(frozen=True)
class StandingApproval:
    """A person's approval whose mark is still to be swept.  ``run_key`` is the partition of the mark."""

    run_key: str
    approval: Approval


def standing_approvals(store: ObjectStore, repository: str) -> list[StandingApproval]:
    """The approvals of a namespace that a sensor is to act on.

    Left out are those that a policy gave, or a command that sweeps itself; and those that a sweep or a restore of the
    mark has followed, however it ended.  One that cannot be read approves nothing, and is logged.  A level is listed,
    and a HEAD made for each mark; five more requests for each approval that was not followed.
    """
    keys = {MarkPaths.of(mark_id).approval: mark_id for mark_id in mark_folders(store)}
    found = []
    for key, info in sorted(store.stat_many(list(keys)).items()):
        mark_id = keys[key]
        try:
            approval = Approval.from_json(store.read(key), key)
            if (approval.mark_id, approval.repository) != (mark_id, repository):
                raise CorruptFileError(key, f"it approves {approval.mark_id} of {approval.repository}")
            if approval.approved_via in _BY_A_PERSON and not _is_followed(store, approval, info):
                found.append(StandingApproval(run_key_of(store, repository, mark_id), approval))
        except (CorruptFileError, MarkError) as error:
            logger.warning("the approval of mark %s of %s counts for nothing: %s", mark_id, repository, error.message)
    return found


def _is_followed(store: ObjectStore, approval: Approval, written: ObjectInfo) -> bool:
    """Whether a sweep ended or began since, or a restore began."""
    paths = MarkPaths.of(approval.mark_id)
    ended = store.stat_many([paths.sweep_summary]).get(paths.sweep_summary)
    if ended and ended.last_modified >= written.last_modified:
        return True
    if any(at >= written.last_modified for at in notes(store, approval.mark_id).values()):
        return True
    # Names begin with the time of the sweep.  A ledger may have a million files: one page tells.
    later = store.list(paths.ledger, start_after=f"{paths.ledger}{approval.approved_at:{SEQUENCE_FORMAT}}")
    return any(batch.num_rows for batch in later)
