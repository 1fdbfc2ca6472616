"""A backup that is made again: what an earlier one copied still counts, and no manifest is replaced by a worse one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.backup_location import read_backup
from lakefs_gc.engine.records.backup_manifest import BackupPaths
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.undo.backup_contents import not_backed_up
from lakefs_gc.engine.undo.restore import RestoreResult, restore
from lakefs_gc.engine.undo.restore_source import find_restore_source
from lakefs_gc.errors import BackupError, RestoreIncompleteError
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository

CONTENTS = {f"data/s/{number}": f"content {number}".encode() for number in range(4)}


@pytest.fixture
def place(tmp_path: Path) -> Backups:
    (tmp_path / "backups").mkdir()
    return Backups(StoreLocation((tmp_path / "backups").as_uri()))


def backed_up(spark: SparkSession, repository: LakeRepository, place: Backups) -> tuple[Collector, Mark]:
    for key, content in CONTENTS.items():
        repository.put_stray(key, content)
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*CONTENTS)
    place.back_up(spark, collector, mark)
    return collector, mark


def restored(place: Backups, collector: Collector, mark: Mark) -> RestoreResult:
    settings = place.settings(collector)
    source = find_restore_source(settings, collector.server, mark.mark_id, mark.repository, "")
    return restore(collector.context_with(backup=settings.backup), source)


def lose(place: Backups, mark: Mark, *names: str) -> None:
    """Delete files of a backup, and all below folders."""
    folder = BackupPaths(mark.repository, mark.mark_id).folder
    keys = [key for batch in place.store.list(folder) for key in batch["address"].to_pylist()]
    place.store.delete_many([key for key in keys if key.removeprefix(folder).startswith(names)])


@pytest.mark.parametrize("lost", [("records/",), ("records/", "contents/", "backup.json")])
def test_copies_count_after_the_sweep_if_their_records_are_lost(
    spark: SparkSession, repository: LakeRepository, place: Backups, lost: tuple[str, ...]
) -> None:
    """Deleted, not copied to another location, or not written by a backup that was killed."""
    collector, mark = backed_up(spark, repository, place)
    collector.sweep(mark, live=[])
    lose(place, mark, *lost)
    again = place.back_up(spark, collector, mark)
    again.result.raise_if_incomplete()
    assert again.outcomes == dict.fromkeys(CONTENTS, "copied")
    assert again.proofs == {"size only"}
    assert again.rows["data/s/1"]["checksum"] == f"sha256:{hashlib.sha256(CONTENTS['data/s/1']).hexdigest()}"
    result = restored(place, collector, mark)
    result.raise_if_incomplete()
    assert {key: repository.store.read(key) for key in CONTENTS} == CONTENTS


def test_a_copy_that_was_compared_only_by_its_size_is_compared_once_its_object_exists(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    """Until then, a sweep that needs a backup keeps the object."""
    collector, mark = backed_up(spark, repository, place)
    repository.store.delete_many(["data/s/1"])
    lose(place, mark, "records/")
    place.store.put(f"{BackupPaths('lake', mark.mark_id).objects}data/s/1", b"changed 1")
    assert place.back_up(spark, collector, mark).rows["data/s/1"]["proof"] == "size only"
    context = collector.context_with(backup=place.settings(collector).backup)

    def unproved() -> list[str]:
        kept = not_backed_up(context, read_backup(place.store, BackupPaths("lake", mark.mark_id)))
        return [row["address"] for row in kept.collect()] if kept else []

    assert unproved() == ["data/s/1"]
    repository.put_stray("data/s/1", CONTENTS["data/s/1"])
    assert place.back_up(spark, collector, mark).proofs == {"sha256 by reading"}
    assert unproved() == []
    assert place.copies(mark) == CONTENTS


def test_a_copy_of_another_size_than_its_lost_object_fails(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    collector, mark = backed_up(spark, repository, place)
    collector.sweep(mark, live=[])
    lose(place, mark, "records/")
    place.store.put(f"{BackupPaths('lake', mark.mark_id).objects}data/s/1", b"longer than it was")
    again = place.back_up(spark, collector, mark)
    assert again.outcomes == dict.fromkeys(CONTENTS, "copied") | {"data/s/1": "failed"}
    assert again.rows["data/s/1"]["error"] == "the original does not exist, and its copy has 18 bytes instead of 9"


def test_a_manifest_is_not_replaced_by_one_with_fewer_copies(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    collector, mark = backed_up(spark, repository, place)
    paths = BackupPaths("lake", mark.mark_id)
    good = place.store.read(paths.manifest)
    collector.sweep(mark, live=[])
    lose(place, mark, "records/", "objects/data/s/1")
    with pytest.raises(BackupError, match="has 4 copies by its manifest, but only 3 exist now") as refused:
        place.back_up(spark, collector, mark)
    assert f"delete {place.store.location.folder_url}{paths.manifest} and back up again" in refused.value.remedy
    assert place.store.read(paths.manifest) == good
    place.store.delete_many([paths.manifest])
    assert place.back_up(spark, collector, mark).outcomes["data/s/1"] == "already_gone"


def test_a_restore_of_a_backup_without_any_copy_fails(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    repository.put_stray("data/s/1", b"1")
    collector = Collector(spark, repository)
    mark = collector.mark_objects("data/s/1")
    repository.store.delete_many(["data/s/1"])
    place.back_up(spark, collector, mark).result.raise_if_incomplete()
    with pytest.raises(RestoreIncompleteError, match="has no copy of its 1 objects"):
        restored(place, collector, mark).raise_if_incomplete()
    nothing = collector.mark_objects()
    place.back_up(spark, collector, nothing)
    restored(place, collector, nothing).raise_if_incomplete()
