"""The note of a backup that is being made, and its manifest, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lakefs_gc.engine.records.backups.location import read_backup
from lakefs_gc.engine.records.backups.manifest import BackupStart, noted_start
from lakefs_gc.engine.records.backups.renewal import Renewal
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import BackupError, StoreUnavailableError
from lakefs_gc.storage.base import ObjectInfo, ObjectStore
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


class Unanswered(LocalStore):
    """Answers no question once a manifest was written."""

    written = False

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        self.written |= key.endswith("/backup.json")
        return super().put(key, data, if_absent=if_absent)

    def stat_many(self, keys: Sequence[str], *, concurrency: int = 16) -> dict[str, ObjectInfo]:
        if self.written:
            raise StoreUnavailableError("503", remedy="later")
        return super().stat_many(keys, concurrency=concurrency)


def test_a_question_without_an_answer_leaves_the_earlier_manifest(place: ObjectStore) -> None:
    """Nothing shows that copies were removed. Perhaps the mark is gone, and nobody can make the manifest again."""
    earlier = write_complete_backup(place, "lake")
    later = replace(earlier, version="1").sealed()
    renewal = Renewal(Unanswered(place.location), note(30))
    renewal.last()
    with pytest.raises(StoreUnavailableError):
        renewal.complete(later)
    assert read_backup(place, earlier.paths) == earlier

    # A first backup is not complete: whether its copies are there is unknown.
    place.delete_many([earlier.paths.manifest])
    renewal = Renewal(Unanswered(place.location), note(30))
    renewal.last()
    with pytest.raises(StoreUnavailableError):
        renewal.complete(later)
    with pytest.raises(BackupError, match="no complete backup"):
        read_backup(place, earlier.paths)
