"""Backups of marks that another tool may have swept stay, from when that was noticed."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.restore_log import begin_restore, notes
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.undo.pruning import prune_backups
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.complete_backup import write_complete_backup, write_unswept_mark
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.pruning import DAYS, KEYS, ages, backed_up, ends, prune, pruned, write_sweep_summary


def test_a_mark_that_lakefs_s_own_client_swept_keeps_its_backup_from_when_that_was_noticed(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    """The client leaves no record. Each sweep of it counts: the second one is of objects that were restored."""
    collector, mark = backed_up(spark, repository, place)
    paths, now = BackupPaths("lake", mark.mark_id), utc_now()
    place.store.put(f"{paths.objects}data/s/.DS_Store", b"the Finder's")
    for days in (30, 80):
        repository.store.delete_many(KEYS[:1])
        for later in (1, 30):
            found = prune(place, repository, days + later)
            assert found.removed == []
            [(_, why)] = found.kept
            assert why.startswith("Objects of this mark do not exist any more, and no complete sweep by lakefs-gc")
            assert f"count from {now + timedelta(days=days + 1):%Y-%m-%d}" in why
            assert set(KEYS) < set(place.copies(mark))
        if days == 30:
            begin_restore(repository.store, mark.mark_id, "", utc_now(), time.sleep)
            [note] = notes(repository.store, mark.mark_id)
            ages(repository, note, 40)
            ends(repository, note, 40)
            repository.put_stray(KEYS[0])
    assert pruned(place, repository, 112) == [mark.mark_id]
    assert list(place.store.list("lake/")) == []
    repository.put_stray(KEYS[0])
    place.back_up(spark, collector, mark)
    place.store.put(f"{paths.objects}data/s/.DS_Store", b"the Finder's")
    ages(repository, note, 0)
    ends(repository, note, 0)
    assert pruned(place, repository, 31) == [mark.mark_id], "never swept by anybody"


def test_an_object_that_was_gone_before_hides_no_sweep_by_another_tool(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    _, mark = backed_up(spark, repository, place)
    repository.store.delete_many(KEYS[:1])
    assert prune(place, repository, 31).removed == []
    repository.store.delete_many(KEYS)  # on day 60
    assert prune(place, repository, 62).removed == []
    assert set(place.copies(mark)) == set(KEYS)
    assert prune(place, repository, 91).removed == []
    assert pruned(place, repository, 93) == [mark.mark_id]


def test_the_sweep_of_a_part_hides_no_sweep_by_another_tool(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    _, mark = backed_up(spark, repository, place)
    write_sweep_summary(repository.store, mark.mark_id, Scope.expired)
    repository.store.delete_many(KEYS)
    assert prune(place, repository, 31).removed == []
    assert set(place.copies(mark)) == set(KEYS)


def test_a_sweep_that_kept_objects_hides_no_sweep_by_another_tool(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    """A branch showed them at its look. Its objects that are gone may be those that it kept."""
    collector, mark = backed_up(spark, repository, place)
    collector.approve(mark)
    collector.sweep(mark, live=KEYS)
    repository.store.delete_many(KEYS)  # on day 29
    [(_, why)] = prune(place, repository, 31).kept
    assert "or one that kept some of them" in why
    assert set(place.copies(mark)) == set(KEYS)
    assert prune(place, repository, 60).removed == []
    assert pruned(place, repository, 62) == [mark.mark_id]


@pytest.mark.parametrize("digest", ["", "sha256:1"])
def test_the_sweep_of_an_earlier_mark_with_the_same_id_hides_no_sweep_by_another_tool(
    tmp_path: Path, digest: str
) -> None:
    """lakeFS's client marked again with the id. It left the records of the former mark, which had another digest."""
    (tmp_path / "backups").mkdir()
    place, namespace = (open_store(StoreLocation((tmp_path / name).as_uri())) for name in ("backups", ""))
    began_at = utc_now() - timedelta(days=7)
    write_sweep_summary(namespace, "m1", digest=digest, began_at=began_at, deleted=1)
    write_unswept_mark(namespace)
    backup = write_complete_backup(place, "lake")
    later = utc_now() + timedelta(days=31)
    namespace.delete_many(["data/s/one"])
    found = prune_backups(place, "lake", DAYS, later, lambda _: namespace)
    assert found.removed == []
    assert "no complete sweep by lakefs-gc explains that" in found.kept[0][1]
    write_sweep_summary(namespace, "m1", digest=backup.mark_digest, began_at=began_at, deleted=1)
    assert len(prune_backups(place, "lake", DAYS, later, lambda _: namespace).removed) == 1
