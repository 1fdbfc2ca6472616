"""A restore says that all is there only if nothing deleted it while the restore ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.newest import NEWEST
from lakefs_gc.engine.records.restore_log import notes, record_restored
from lakefs_gc.engine.undo.restore import restore
from lakefs_gc.engine.undo.restore_source import RestoreSource
from lakefs_gc.errors import OldListError, RestoreIncompleteError
from lakefs_gc.storage.local import LocalStore
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.pruning import KEYS, backed_up

LEFT = KEYS[3:]
"""What the sweep before the restore keeps, because it is referenced again."""


class Restored:
    """A restore of a mark that a sweep has deleted a part of. In the middle of the restore, something happens."""

    def __init__(self, spark: SparkSession, repository: LakeRepository, place: Backups) -> None:
        self.repository, self.place = repository, place
        self.collector, self.mark = backed_up(spark, repository, place)
        self.collector.approve(self.mark)
        self.collector.sweep(self.mark, live=LEFT)
        self.other = Collector(spark, repository)

    def run(self, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
        todo = [happens]

        def then(*arguments: object) -> None:
            while todo:
                todo.pop()()
            record_restored(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr("lakefs_gc.engine.undo.restore.record_restored", then)
        source = RestoreSource(self.place.manifest_of(self.mark), self.place.location, self.repository.location)
        restore(self.collector.context, source).raise_if_incomplete()

    def left(self) -> set[str]:
        return {*LEFT} & self.repository.objects()


@pytest.fixture
def restored(spark: SparkSession, repository: LakeRepository, place: Backups) -> Restored:
    return Restored(spark, repository, place)


def test_a_mark_that_is_approved_again_and_swept_meanwhile(restored: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    def sweep_again() -> None:
        restored.other.approve(restored.mark)
        known = frozenset(notes(restored.repository.store, restored.mark.mark_id))
        restored.other.sweep(restored.mark, live=[], known_restores=known)
        assert not restored.left()

    with pytest.raises(RestoreIncompleteError, match="has deleted objects during this restore"):
        restored.run(monkeypatch, sweep_again)


def test_a_sweep_with_an_old_list_of_the_restores(restored: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    real, folder = LocalStore.list, MarkPaths.of(restored.mark.mark_id).restores

    def before_the_note(store: LocalStore, prefix: str = "", *, start_after: str = "") -> Iterator[pa.RecordBatch]:
        return iter(()) if prefix == folder else real(store, prefix, start_after=start_after)

    def sweep() -> None:
        restored.repository.store.delete_many([folder + NEWEST])  # an earlier version does not write it
        with monkeypatch.context() as patched:
            patched.setattr(LocalStore, "list", before_the_note)
            restored.other.sweep(restored.mark, live=[], small=True)
        assert not restored.left()

    with pytest.raises(RestoreIncompleteError, match="has deleted objects during this restore"):
        restored.run(monkeypatch, sweep)


def test_a_sweep_that_cannot_look_for_restores_has_begun_no_delete(
    restored: Restored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers get an old list, after it has looked itself. It sends no delete, so the restore is whole."""
    real, folder = LocalStore.list, MarkPaths.of(restored.mark.mark_id).restores

    def before_the_note(store: LocalStore, prefix: str = "", *, start_after: str = "") -> Iterator[pa.RecordBatch]:
        return iter(()) if prefix == folder else real(store, prefix, start_after=start_after)

    def sweep() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(LocalStore, "list", before_the_note)
            patched.setattr("lakefs_gc.engine.sweep.sweep.refuse_restored", lambda *_: None)
            with pytest.raises(OldListError):
                restored.other.sweep(restored.mark, live=[], small=True)

    restored.run(monkeypatch, sweep)
    assert restored.left() == {*LEFT}


def test_a_sweep_of_another_mark_of_its_objects(restored: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    def nightly_run() -> None:
        new = restored.other.mark_objects(*LEFT)
        restored.other.approve(new)
        restored.other.sweep(new, live=[])
        assert not restored.left()

    with pytest.raises(RestoreIncompleteError, match=r"3 objects .* are gone again, for example data/s/3"):
        restored.run(monkeypatch, nightly_run)
