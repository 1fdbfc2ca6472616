"""The note of a backup that is being made, and its manifest, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefs_gc.engine.records.backups.manifest import BackupStart, noted_start
from lakefs_gc.engine.records.backups.renewal import Renewal
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.complete_backup import write_complete_backup


@pytest.fixture
def place(tmp_path: Path) -> ObjectStore:
    return LocalStore(StoreLocation(tmp_path.as_uri()))


def note(days: float) -> BackupStart:
    return BackupStart("m1", "local://lake/", "sha256:0", utc_now(), "lake", None, days)


def test_two_backups_at_once_keep_the_most_days(place: ObjectStore) -> None:
    """The one with fewer days writes the note again, and both have the same one."""
    paths = write_complete_backup(place, "lake").paths
    shorter, longer = Renewal(place, note(30)), Renewal(place, note(90))
    longer.last()
    shorter.last()
    noted = noted_start(place, paths)
    assert noted is not None
    assert noted.keep_days == 90
