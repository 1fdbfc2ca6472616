"""A restore that has begun and not ended keeps the backup that it reads."""

from __future__ import annotations

import time

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.restore_log import begin_restore, notes
from lakefs_gc.engine.undo.requested import paths_of_copies
from lakefs_gc.engine.undo.restore import restore
from lakefs_gc.engine.undo.restore_source import RestoreSource
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.pruning import DAYS, KEYS, ages, backed_up, ends, prune, pruned


def test_a_restore_keeps_its_backup_however_long_it_takes(
    spark: SparkSession, repository: LakeRepository, place: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, mark = backed_up(spark, repository, place)
    collector.approve(mark)
    collector.sweep(mark, live=[])
    assert not set(KEYS) & repository.objects()
    why = list[str]()

    def take_long(*arguments: object) -> object:
        found = prune(place, repository, DAYS + 1)
        assert found.removed == []
        why.extend(reason for _, reason in found.kept)
        return paths_of_copies(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("lakefs_gc.engine.undo.restore.paths_of_copies", take_long)
    source = RestoreSource(place.manifest_of(mark), place.location, repository.location)
    restore(collector.context, source).raise_if_incomplete()
    assert set(KEYS) <= repository.objects()
    assert why == [
        f"A restore that began on {utc_now():%Y-%m-%d} has not ended: it may be reading the copies, or was killed. The "
        "backup stays until another such restore has ended, or one without a prefix"
    ]
    assert pruned(place, repository, DAYS - 1) == []
    assert pruned(place, repository, DAYS + 1) == [mark.mark_id]


def test_a_restore_that_was_killed_keeps_it_until_another_one_restored_what_it_would_have(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    _, mark = backed_up(spark, repository, place)

    def begin(prefix: str, days: float) -> str:
        before = notes(repository.store, mark.mark_id).keys()
        begin_restore(repository.store, mark.mark_id, prefix, utc_now(), time.sleep)
        [note] = notes(repository.store, mark.mark_id).keys() - before
        ages(repository, note, days)
        return note

    def why() -> str:
        found = prune(place, repository, DAYS + 10)
        assert found.removed == []
        [(_, reason)] = found.kept
        return reason

    begin("data/s/1", 2)
    assert "A restore with the prefix data/s/1 that began on" in why()
    ends(repository, begin("", 1), 1)
    ends(repository, begin("data/s/2", 3), 3)
    later = begin("data/", 4)
    assert "with the prefix data/s/1" in why(), "one began before, one was of other objects, and one has not ended"
    ends(repository, later, 5)
    assert pruned(place, repository, DAYS + 4) == []
    assert pruned(place, repository, DAYS + 6) == [mark.mark_id]
