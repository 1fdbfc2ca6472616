"""How long a backup stays: the time counts from the end of its mark's sweep, so that the undo lasts as long as said.

A mark that is approved or whose sweep has begun, and has not ended, keeps its backup.  What became of a mark stands
beside it, in the namespace that the backup names: servers that share a place may use a repository's name for different
ones.  Where that cannot be read, the backup stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache

import pyarrow.compute as pc

from lakefs_gc.engine.records.backup import BackupPaths, Listed, list_backups
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.errors import BackupError, LakeFSGCError
from lakefs_gc.storage.base import ObjectStore

logger = logging.getLogger(__name__)

_DELETES_AT_ONCE = 1000


@dataclass(frozen=True)
class Pruned:
    """The backups that were removed, and those that are old and stay, each with why nobody can tell its time."""

    removed: list[Listed]
    kept: list[tuple[Listed, str]]


def kept_facts(listed: Listed, why: str) -> dict[str, str]:
    """An old backup that stays, as it is shown."""
    return {"repository": listed.repository, "mark_id": listed.mark_id, "why": why}


def prune_backups(
    store: ObjectStore, repository: str, keep_days: float, now: datetime, open_namespace: Callable[[str], ObjectStore]
) -> Pruned:
    """Remove the backups of a repository that are past their time.

    ``open_namespace`` opens the store of a namespace's URL.  Raises ``BackupError`` when one cannot be removed.
    """
    opened = cache(open_namespace)
    pruned = Pruned([], [])
    for listed in list_backups(store, repository):
        made_at = listed.created_at
        if made_at is None or made_at + timedelta(days=keep_days) > now:
            continue
        try:
            since = _kept_since(listed, made_at, opened)
        except LakeFSGCError as error:
            logger.warning("the old backup of mark %s of %s stays: %s", listed.mark_id, repository, error.message)
            pruned.kept.append((listed, error.message))
            continue
        if since is None or since + timedelta(days=keep_days) > now:
            continue
        _remove(store, listed.paths)
        logger.info("removed the backup of mark %s of %s", listed.mark_id, repository)
        pruned.removed.append(listed)
    return pruned


def _kept_since(listed: Listed, made_at: datetime, open_namespace: Callable[[str], ObjectStore]) -> datetime | None:
    """When the time of a backup began; None while it is needed.

    Raises ``BackupError`` when its mark is not where it says, and what opening and asking the namespace raises.
    """
    remedy = "if nobody needs it any more, delete its folder in the place of the backups"
    if not listed.namespace:
        raise BackupError("nothing says of which namespace it is", remedy=remedy)
    namespace, paths = open_namespace(listed.namespace), MarkPaths.of(listed.mark_id)
    if paths.summary not in namespace.stat_many([paths.summary]):
        raise BackupError(f"its mark is not in {listed.namespace}, so nobody can tell if it was swept", remedy=remedy)
    # All from listings: HEAD tells whole seconds, and what was written last is what counts.
    swept_at = _newest(namespace, paths.sweep_summary)
    approved_at, recorded_at = _newest(namespace, paths.approval), _newest(namespace, paths.ledger)
    if swept_at is None:
        return None if approved_at or recorded_at else made_at
    if recorded_at and recorded_at > swept_at:
        return None  # a later sweep has not ended
    return max(made_at, swept_at, approved_at or swept_at)


def _newest(store: ObjectStore, prefix: str) -> datetime | None:
    """When the last of the objects with a prefix was written; None when there are none."""
    times = [pc.max(batch["last_modified"]).as_py() for batch in store.list(prefix) if batch.num_rows]
    return max(times, default=None)


def _remove(store: ObjectStore, paths: BackupPaths) -> None:
    """The manifest first: what is half removed is no backup.  The note last: by it a rest is found, and removed."""
    _delete(store, [paths.manifest])
    batch_of_keys: list[str] = []
    for batch in store.list(paths.folder):
        batch_of_keys += (key for key in batch.column("address").to_pylist() if key != paths.began)
        while len(batch_of_keys) >= _DELETES_AT_ONCE:
            _delete(store, batch_of_keys[:_DELETES_AT_ONCE])
            batch_of_keys = batch_of_keys[_DELETES_AT_ONCE:]
    _delete(store, batch_of_keys)
    _delete(store, [paths.began])


def _delete(store: ObjectStore, keys: list[str]) -> None:
    failed = [deletion for deletion in store.delete_many(keys) if deletion.error]
    if failed:
        raise BackupError(
            f"{len(failed)} files of an old backup cannot be removed, e.g. {failed[0].key}: {failed[0].error}",
            remedy="allow deleting in the place of the backups, or raise backup.keep_days",
        )
