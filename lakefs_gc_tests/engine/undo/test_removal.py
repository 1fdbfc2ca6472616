"""A pruning that removes a backup, against a backup, sweep and restore of its mark: whatever stops, however long."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import BackupSettings
from lakefs_gc.engine.records.backups import removal
from lakefs_gc.engine.records.backups.claim import claim_backup
from lakefs_gc.engine.records.backups.location import begin_backup, read_backup
from lakefs_gc.engine.records.backups.manifest import Backup, BackupPaths
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.restore_log import begin_restore, notes
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.undo import pruning
from lakefs_gc.engine.undo.backup_contents import refuse_lost_backup
from lakefs_gc.engine.undo.pruning import Pruned, prune_backups
from lakefs_gc.engine.undo.restore import restore
from lakefs_gc.engine.undo.restore_source import RestoreSource, find_restore_source, refuse_pruning
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import BackupError
from lakefs_gc.storage.base import Deletions
from lakefs_gc.storage.delete_window import DEAD_AFTER_SECONDS, DeleteWindow
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository

_DAYS = 30
KEYS = [f"data/s/{number}" for number in range(6)]


class Scene:
    """An expired backup of a mark that was never swept, and prunings of it at which something happens."""

    def __init__(self, spark: SparkSession, repository: LakeRepository, place: Backups) -> None:
        for key in KEYS:
            repository.put_stray(key)
        self.spark, self.repository, self.place = spark, repository, place
        self.collector = Collector(spark, repository)
        self.mark: Mark = self.collector.mark_objects(*KEYS)
        self.paths = BackupPaths("lake", self.mark.mark_id)
        self.backup: Backup
        self.back_up()

    def back_up(self) -> None:
        backed_up = self.place.back_up(self.spark, Collector(self.spark, self.repository), self.mark)
        backed_up.result.raise_if_incomplete()
        self.backup = read_backup(self.place.store, self.paths)

    def begin_backup(self) -> None:
        """The first requests of a backup; pruning happens 31 days later."""
        begin_backup(self.place.store, self.mark, dict(self.mark.run["server"]), utc_now, _DAYS)
        self.written(self.paths.began, timedelta(days=_DAYS + 1))

    def begin_sweep(self) -> None:
        """What the asset ``sweep`` does between its preconditions and its wait."""
        claim_backup(self.repository.store, self.mark.mark_id, Scope.all)
        refuse_lost_backup(self.place.store, self.backup)

    def found(self) -> RestoreSource:
        """What a restore finds before it begins."""
        settings = self.repository.lake.settings.model_copy(
            update={"backup": BackupSettings(url=self.place.location.url)}
        )
        return find_restore_source(settings, self.collector.server, self.mark.mark_id, "lake", "")

    def restore(self) -> None:
        """As one that found the backup before the pruning wrote its note."""
        source = RestoreSource(self.backup, self.place.location, self.repository.location)
        restore(self.collector.context, source).raise_if_incomplete()

    def begin_restore(self) -> None:
        """The first requests of a restore; pruning happens 31 days later."""
        begin_restore(self.repository.store, self.mark.mark_id, "", utc_now(), time.sleep)
        [note] = notes(self.repository.store, self.mark.mark_id)
        at = (utc_now() + timedelta(days=_DAYS + 1)).timestamp()
        os.utime(self.repository.folder / note, (at, at))
        refuse_pruning(self.place.store, self.backup)

    def prune(self, store: LocalStore | None = None) -> Pruned:
        lake, later = self.repository.lake, utc_now() + timedelta(days=_DAYS + 1)

        def open_namespace(url: str) -> LocalStore:
            opened = open_store(lake.settings.reach(url))
            assert isinstance(opened, LocalStore)
            return opened

        url = lake.credentials.endpoint_url
        return prune_backups(store or self.place.store, "lake", _DAYS, later, open_namespace, url)

    def written(self, key: str, ago: timedelta) -> None:
        """Let a file of the backup location have been written so long ago, or in so long."""
        at = (utc_now() + ago).timestamp()
        os.utime(Path(self.place.location.url.removeprefix("file://")) / key, (at, at))

    def files(self) -> list[str]:
        return [key for batch in self.place.store.list("lake/") for key in batch["address"].to_pylist()]

    def notes(self) -> list[str]:
        return [key for key in self.files() if key.startswith(self.paths.removals) and key.endswith(".json")]


class Halted(LocalStore):
    """A backup location of a process that prunes: something happens once, just before the first request like ``at``."""

    def __init__(self, scene: Scene, at: str, happens: Callable[[], object]) -> None:
        super().__init__(scene.place.location)
        self._at, self._happens = at, [happens]

    def _reach(self, keys: Sequence[str]) -> None:
        if self._happens and any(key.startswith(self._at) for key in keys):
            self._happens.pop()()

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        self._reach([key])
        return super().put(key, data, if_absent=if_absent)

    def delete_many(self, keys: Sequence[str], window: DeleteWindow | None = None) -> Deletions:
        self._reach(keys)
        return super().delete_many(keys, window)


@pytest.fixture
def scene(spark: SparkSession, repository: LakeRepository, place: Backups) -> Scene:
    return Scene(spark, repository, place)


@pytest.mark.parametrize("stops_at", ["backup.json", "objects/"])
def test_nobody_relies_on_copies_while_a_pruning_hangs(scene: Scene, stops_at: str) -> None:
    """It hangs after its second look. What went on would leave neither an object nor its copy."""

    def refused() -> None:
        command = "run `lakefs-gc backup lake"
        for begin, then in ((scene.back_up, command), (scene.begin_sweep, command), (scene.restore, "restore again")):
            with pytest.raises(BackupError, match="is being removed") as error:
                begin()
            assert f"Wait {DEAD_AFTER_SECONDS} seconds, then {then}" in error.value.remedy
        hung.append(True)

    hung: list[bool] = []
    found = scene.prune(Halted(scene, scene.paths.folder + stops_at, refused))
    assert ([listed.mark_id for listed in found.removed], found.kept, hung) == ([scene.mark.mark_id], [], [True])
    assert scene.files() == []
    scene.back_up()
    scene.begin_sweep()
    assert set(scene.place.copies(scene.mark)) == set(KEYS)


def test_an_old_list_hides_no_pruning(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache answers that listed the notes of prunings a moment before. What went on would leave no copy."""
    list_level, hung = LocalStore.list_level, list[bool]()

    def level(store: LocalStore, prefix: str) -> tuple[list[str], pa.RecordBatch]:
        folders, files = list_level(store, prefix)
        return folders, files.slice(0, 0) if prefix == scene.paths.removals else files

    def refused() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(LocalStore, "list_level", level)
            for begin in (scene.back_up, scene.begin_sweep, scene.restore):
                with pytest.raises(BackupError, match="is being removed"):
                    begin()
        hung.append(True)

    assert len(scene.prune(Halted(scene, scene.paths.objects, refused)).removed) == 1
    assert (hung, scene.files()) == ([True], [])


def test_a_restore_that_is_refused_before_its_note_stops_nothing(scene: Scene) -> None:
    def refused() -> None:
        with pytest.raises(BackupError, match="is being removed"):
            scene.found()
        hung.append(True)

    hung: list[bool] = []
    scene.prune(Halted(scene, scene.paths.manifest, refused))
    assert (hung, notes(scene.repository.store, scene.mark.mark_id)) == ([True], {})


@pytest.mark.parametrize("begins", ["begin_backup", "begin_sweep", "begin_restore"])
def test_a_pruning_that_hangs_before_its_note_keeps_what_is_needed_meanwhile(scene: Scene, begins: str) -> None:
    before = scene.files()
    found = scene.prune(Halted(scene, scene.paths.removals, getattr(scene, begins)))
    assert (found.removed, found.kept) == ([], [])
    assert scene.files() == before
    refuse_lost_backup(scene.place.store, scene.backup)


def test_a_pruning_that_was_killed_hinders_nobody_for_long(scene: Scene) -> None:
    def die() -> None:
        raise KeyboardInterrupt

    def kill() -> str:
        with pytest.raises(KeyboardInterrupt):
            scene.prune(Halted(scene, scene.paths.objects, die))
        [note] = scene.notes()
        return note

    note = kill()
    with pytest.raises(BackupError, match="is being removed"):
        scene.back_up()
    scene.written(note, timedelta(seconds=-DEAD_AFTER_SECONDS + 20))
    with pytest.raises(BackupError, match="is being removed"):
        scene.back_up()
    scene.written(note, timedelta(seconds=-DEAD_AFTER_SECONDS - 1))
    scene.back_up()
    refuse_lost_backup(scene.place.store, scene.backup)

    # The next pruning ends what the killed one began. As long as that may live, a trace of the backup stays.
    scene.place.store.delete_many([note])
    note = kill()
    assert len(scene.prune().removed) == 1
    assert scene.files() == [scene.paths.began, note]
    scene.written(note, timedelta(seconds=-DEAD_AFTER_SECONDS - 1))
    assert len(scene.prune().removed) == 1
    assert scene.files() == []


@pytest.mark.parametrize(("is_needed", "may_delete_late"), [(False, False), (True, False), (True, True)])
def test_a_pruning_looks_again_whenever_its_time_for_deletes_is_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, is_needed: bool, may_delete_late: bool
) -> None:
    """Each time, it deletes two files here. ``may_delete_late``: the store did not answer one of the deletes."""
    opened, earlier_notes = count(1), list[int]()

    class Short(DeleteWindow):
        def __init__(self) -> None:
            super().__init__()
            self._tries = 4  # the manifest, two files, and one that is not tried
            self.unanswered = may_delete_late
            earlier_notes.append(len(scene.notes()))
            if next(opened) == 2 and is_needed:
                scene.written(scene.paths.began, timedelta(days=_DAYS + 1))

        @property
        def is_over(self) -> bool:
            self._tries -= 1
            return self._tries <= 0

    monkeypatch.setattr(pruning, "_DELETES_AT_ONCE", 1)
    monkeypatch.setattr(removal, "DeleteWindow", Short)
    before, found = scene.files(), scene.prune()
    if not is_needed:
        assert (len(found.removed), found.kept, scene.files()) == (1, [], [])
        # Another pruning may be about to delete the note of before, so each has a name of its own.
        assert earlier_notes[:4] == [0, 1, 2, 3]
        return
    [(_, why)] = found.kept
    assert why == "The backup was needed again while it was being removed, and a part of it is missing"
    assert sum(not key.startswith(scene.paths.removals) for key in scene.files()) == len(before) - 3
    if may_delete_late:
        assert len(scene.notes()) == 2
        with pytest.raises(BackupError, match="is being removed"):
            scene.back_up()
        return
    assert scene.notes() == []
    scene.back_up()
    assert set(scene.place.copies(scene.mark)) == set(KEYS)


def test_a_store_that_deletes_nothing_in_time_ends_the_pruning(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "DeleteWindow", lambda: DeleteWindow(0))
    [(_, why)] = scene.prune().kept
    assert "did not delete a part of the backup within" in why
    assert set(scene.place.copies(scene.mark)) == set(KEYS)
