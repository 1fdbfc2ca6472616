"""A backup says for how long it is kept: another machine may prune, with other settings."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lakefs_gc.engine.records.backups.location import begin_backup, read_backup
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.former_records import former_backup
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.pruning import DAYS, KEYS, backed_up, prune, pruned

YEAR = 365


def test_a_backup_is_kept_for_as_long_as_it_recorded(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    """Pruning is by a machine whose settings say 30 days."""
    for key in KEYS:
        repository.put_stray(key)
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*KEYS)
    place.back_up(spark, collector, mark, keep_days=YEAR)
    collector.approve(mark)
    collector.sweep(mark, live=[])
    assert pruned(place, repository, YEAR - 1) == []
    assert set(place.copies(mark)) == set(KEYS)
    # Nor does it become less if that machine backs up the same mark again, also after the manifest is lost.
    for lost in ([], [BackupPaths("lake", mark.mark_id).manifest]):
        place.store.delete_many(lost)
        place.back_up(spark, collector, mark, keep_days=DAYS)
        assert place.manifest_of(mark).keep_days == YEAR
    assert pruned(place, repository, YEAR - 1) == []
    assert pruned(place, repository, YEAR + 1) == [mark.mark_id]


def test_fewer_recorded_days_than_in_the_settings_do_not_count(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    repository.put_stray(KEYS[0])
    collector = Collector(spark, repository)
    mark = collector.mark_objects(KEYS[0])
    place.back_up(spark, collector, mark, keep_days=1)
    assert pruned(place, repository, DAYS - 1) == []
    assert pruned(place, repository, DAYS + 1) == [mark.mark_id]


def test_a_backup_that_was_begun_again_is_kept_for_its_days(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    """Its manifest has those of before."""
    _, mark = backed_up(spark, repository, place)
    begin_backup(place.store, mark, dict(mark.run["server"]), utc_now, YEAR)
    assert place.manifest_of(mark).keep_days == DAYS
    # That one was killed. The next one continues it, also by a machine whose settings say 30 days.
    note, _ = begin_backup(place.store, mark, dict(mark.run["server"]), utc_now, DAYS)
    assert note.keep_days == YEAR
    assert pruned(place, repository, YEAR - 1) == []
    assert pruned(place, repository, YEAR + 1) == [mark.mark_id]


def test_a_manifest_says_it_beside_a_lost_note(spark: SparkSession, repository: LakeRepository, place: Backups) -> None:
    repository.put_stray(KEYS[0])
    collector = Collector(spark, repository)
    mark = collector.mark_objects(KEYS[0])
    place.back_up(spark, collector, mark, keep_days=YEAR)
    place.store.delete_many([BackupPaths("lake", mark.mark_id).began])
    assert pruned(place, repository, YEAR - 1) == []
    assert pruned(place, repository, YEAR + 1) == [mark.mark_id]


def test_an_unfinished_backup_is_kept_for_its_days(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    repository.put_stray(KEYS[0])
    mark = Collector(spark, repository).mark_objects(KEYS[0])
    begin_backup(place.store, mark, dict(mark.run["server"]), utc_now, YEAR)
    assert pruned(place, repository, YEAR - 1) == []
    assert pruned(place, repository, YEAR + 1) == [mark.mark_id]


def test_for_how_long_is_unknown_if_the_note_is_damaged(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    _, mark = backed_up(spark, repository, place)
    place.store.put(BackupPaths("lake", mark.mark_id).began, b"{}")
    [(_, why)] = prune(place, repository, YEAR).kept
    assert "began.json: not the note of a backup" in why
    assert set(place.copies(mark)) == set(KEYS)


def test_an_earlier_version_recorded_no_days(spark: SparkSession, repository: LakeRepository, place: Backups) -> None:
    """Then those of the settings count."""
    _, mark = backed_up(spark, repository, place)
    paths = BackupPaths("lake", mark.mark_id)
    for file in (paths.manifest, paths.began):
        place.store.put(file, former_backup(place.store.read(file)))
    assert read_backup(place.store, paths).keep_days is None
    assert pruned(place, repository, DAYS - 1) == []
    assert pruned(place, repository, DAYS + 1) == [mark.mark_id]
