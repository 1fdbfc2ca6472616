"""A complete backup of one object, and what pruning reads of its mark, written without Spark."""

from __future__ import annotations

from lakefs_gc.engine.records.backups.manifest import COPIED, Backup, BackupStart
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.storage.base import ObjectStore

_OBJECT = "data/s/one"


def write_complete_backup(store: ObjectStore, repository: str, mark_id: str = "m1") -> Backup:
    """Write a backup of one object, with its manifest, without Spark."""
    backup = Backup(
        mark_id=mark_id,
        repository=repository,
        namespace=f"local://{repository}/",
        mark_digest="sha256:0",
        created_at=utc_now(),
        parts=(),
        outcomes={COPIED: 1},
        copied_bytes=3,
        proofs={},
        version="0",
    ).sealed()
    note = BackupStart(mark_id, backup.namespace, backup.mark_digest, backup.created_at, repository)
    store.put(backup.paths.began, note.to_json())
    store.put(backup.paths.manifest, backup.to_json())
    store.put(f"{backup.paths.objects}{_OBJECT}", b"one")
    return backup


def write_unswept_mark(namespace: ObjectStore, mark_id: str = "m1") -> None:
    """Write the summary of the mark of such a backup, which nobody has swept, and its object."""
    namespace.put(MarkPaths.of(mark_id).summary, b"{}")
    namespace.put(_OBJECT, b"one")
