"""Finding, reading and removing backups: what a place holds, without a Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakefs_gc.engine.records.backup import COPIED, Backup, BackupPaths, find_backup, read_backup
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import BackupError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store


def complete(store: ObjectStore, repository: str, mark_id: str = "m1") -> Backup:
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
    note = {"mark_id": mark_id, "namespace": backup.namespace, "began_at": backup.created_at.isoformat()}
    store.put(backup.paths.began, json.dumps(note).encode())
    store.put(backup.paths.manifest, backup.to_json())
    store.put(f"{backup.paths.objects}data/s/one", b"one")
    return backup


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreLocation(tmp_path.as_uri()))


def test_a_backup_is_found_by_its_mark_alone(store: ObjectStore) -> None:
    with pytest.raises(BackupError, match="no repository has a complete backup of mark m1"):
        find_backup(store, "m1")
    mine = complete(store, "lake")
    complete(store, "lake", "m2")
    assert find_backup(store, "m1") == mine == find_backup(store, "m1", "lake")
    other = complete(store, "other")
    with pytest.raises(BackupError, match="2 repositories have a complete backup of mark m1"):
        find_backup(store, "m1")
    assert find_backup(store, "m1", "other") == other


def test_a_backup_that_was_moved_is_not_taken_for_another(store: ObjectStore) -> None:
    backup = complete(store, "lake")
    for paths in (BackupPaths("other", "m1"), BackupPaths("lake", "m2")):
        store.put(paths.manifest, backup.to_json())
        with pytest.raises(BackupError, match="is the backup of mark m1 of lake"):
            read_backup(store, paths)
