"""What the history says of a mark that was restored more than once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_history import state_of
from lakefs_gc.engine.records.restore_log import notes
from lakefs_gc.engine.undo import restore as stage
from lakefs_gc.engine.undo.restore import restore
from lakefs_gc.engine.undo.restore_source import RestoreSource
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.pruning import KEYS, backed_up


class Restored:
    """A mark that was swept and restored."""

    def __init__(self, spark: SparkSession, repository: LakeRepository, place: Backups) -> None:
        self.repository, self.place = repository, place
        self.collector, self.mark = backed_up(spark, repository, place)
        self.collector.approve(self.mark)
        self.collector.sweep(self.mark, live=[])
        self.restore(self.collector)

    def restore(self, collector: Collector, prefix: str = "") -> None:
        source = RestoreSource(self.place.manifest_of(self.mark), self.place.location, self.repository.location)
        restore(collector.context, source, prefix=prefix).raise_if_incomplete()

    def state(self, mark: Mark) -> str:
        state: str = state_of(self.repository.store, mark)["state"]
        return state


@pytest.fixture
def restored(spark: SparkSession, repository: LakeRepository, place: Backups) -> Restored:
    return Restored(spark, repository, place)


def test_what_a_sweep_of_another_mark_deleted_is_not_restored(spark: SparkSession, restored: Restored) -> None:
    """The ordinary course: they come back, nothing refers to them, and the next run marks them."""
    assert restored.state(restored.mark) == "restored"
    other = Collector(spark, restored.repository)
    later = other.mark_objects(*KEYS)
    other.approve(later)
    other.sweep(later, live=[])
    assert not {*KEYS} & restored.repository.objects()
    restored.restore(Collector(spark, restored.repository), KEYS[0])
    assert restored.state(restored.mark) == f"partly restored (1 of {len(KEYS)})"


def test_the_clock_of_another_machine_is_behind(
    spark: SparkSession, restored: Restored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its restore, which was killed, is not shown as the one that ended before."""
    collector, mark, repository = restored.collector, restored.mark, restored.repository
    collector.approve(mark)
    repository.store.delete_many(KEYS)
    known = frozenset(notes(repository.store, mark.mark_id))
    Collector(spark, repository).sweep(mark, live=[], known_restores=known)
    behind = Collector(spark, repository, clock=lambda: utc_now() - timedelta(minutes=30))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stage, "write_witness", killed)
    with pytest.raises(KeyboardInterrupt):
        restored.restore(behind)
    assert restored.state(mark) == "restored, number of objects unknown"
