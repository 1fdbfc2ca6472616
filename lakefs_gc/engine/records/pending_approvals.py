"""The pending approvals of a namespace: no sweep has followed them yet. Any process may have written them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from lakefs_gc.engine.records.approval import VIA_COMMAND_LINE, VIA_DAGSTER, Approval
from lakefs_gc.engine.records.ledger import SEQUENCE_FORMAT, scope_of
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.restore_log import notes, notes_before
from lakefs_gc.engine.records.stored_marks import mark_folders, mark_with_manifest
from lakefs_gc.engine.scope import Scope
from lakefs_gc.errors import CorruptFileError, MarkError, OldListError
from lakefs_gc.storage.base import ObjectInfo, ObjectStore

logger = logging.getLogger(__name__)

_FROM_A_PERSON = (VIA_COMMAND_LINE, VIA_DAGSTER)


@dataclass(frozen=True)
class PendingApproval:
    """A person's approval of a mark that is not swept yet.

    ``run_key`` is the partition of the mark. ``mark`` is None for a mark without a manifest, of lakeFS's own client.
    """

    run_key: str
    approval: Approval
    mark: Mark | None = None


def pending_approvals(store: ObjectStore, repository: str) -> list[PendingApproval]:
    """Return the approvals of a namespace for which a sensor must start a sweep.

    Approvals by a policy, or by a command that sweeps itself, are not pending. Neither is an approval after which a
    sweep or a restore of the mark began or ended, with any result. An approval that cannot be read approves nothing,
    nor does one of a mark whose restores a list may hide; a warning is logged. Takes one listing of a folder, three
    HEADs for each mark, and eight more requests for each pending approval, with one for each restore of its mark.
    """
    keys = {
        MarkPaths.of(mark_id).approval_of(only): (mark_id, only) for mark_id in mark_folders(store) for only in Scope
    }
    pending = []
    for key, info in sorted(store.stat_many(list(keys)).items()):
        mark_id, only = keys[key]
        try:
            approval = Approval.from_json(store.read(key), key)
            if (approval.mark_id, approval.repository) != (mark_id, repository):
                raise CorruptFileError(key, f"this is an approval of mark {approval.mark_id} of {approval.repository}")
            if approval.only != only:
                raise CorruptFileError(key, f"this is an approval of {approval.only.value} objects")
            if approval.approved_via in _FROM_A_PERSON and not _is_followed(store, approval, info):
                mark = mark_with_manifest(store, mark_id)
                pending.append(PendingApproval(mark.run_key if mark else f"{repository}/{mark_id}", approval, mark))
        except (CorruptFileError, MarkError, OldListError) as error:
            logger.warning("ignoring the approval of mark %s of %s: %s", mark_id, repository, error.message)
    return pending


def _is_followed(store: ObjectStore, approval: Approval, written: ObjectInfo) -> bool:
    """Return whether a sweep of what was approved began or ended, or a restore began, after the approval was written.

    A sweep of another part does not count, and neither does a sweep of one part for an approval of the whole mark.
    """
    paths = MarkPaths.of(approval.mark_id)
    covering = [only for only in Scope if only.covers(approval.only)]
    ended = store.stat_many([paths.sweep_summary_of(only) for only in covering])
    if any(info.last_modified >= written.last_modified for info in ended.values()):
        return True
    older = notes_before(store, approval.mark_id, approval.approved_at, written.last_modified)
    if notes(store, approval.mark_id).keys() - older:
        return True
    # Names begin with the time of the sweep. A ledger may have a million files. One page suffices, unless sweeps of
    # another part wrote it.
    later = store.list(paths.ledger, start_after=f"{paths.ledger}{approval.approved_at:{SEQUENCE_FORMAT}}")
    return any(scope_of(key) in covering for batch in later for key in batch.column("address").to_pylist())
