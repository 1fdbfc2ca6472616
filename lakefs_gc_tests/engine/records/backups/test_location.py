"""Finding, reading and removing backups: what a place holds, without a Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefs_gc.engine.records.backups.location import find_backup, read_backup
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.errors import BackupError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.complete_backup import write_complete_backup


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreLocation(tmp_path.as_uri()))


def test_a_backup_is_found_by_its_mark_alone(store: ObjectStore) -> None:
    with pytest.raises(BackupError, match="No repository has a complete backup of mark m1"):
        find_backup(store, "m1")
    mine = write_complete_backup(store, "lake")
    write_complete_backup(store, "lake", "m2")
    assert find_backup(store, "m1") == mine == find_backup(store, "m1", "lake")
    other = write_complete_backup(store, "other")
    with pytest.raises(BackupError, match="2 repositories have a complete backup of mark m1"):
        find_backup(store, "m1")
    assert find_backup(store, "m1", "other") == other


def test_a_backup_that_was_moved_is_not_taken_for_another(store: ObjectStore) -> None:
    backup = write_complete_backup(store, "lake")
    for paths in (BackupPaths("other", "m1"), BackupPaths("lake", "m2")):
        store.put(paths.manifest, backup.to_json())
        with pytest.raises(BackupError, match="is of the backup of mark m1 of lake"):
            read_backup(store, paths)
