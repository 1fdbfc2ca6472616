"""A backup that takes longer than backups are kept, and prunings while it is made."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.backups import renewal
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.undo import backup as stage
from lakefs_gc.engine.undo.pruning import prune_backups
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import BackupError
from lakefs_gc.storage.base import Deletions
from lakefs_gc.storage.delete_window import DeleteWindow
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository, keys_below
from lakefs_gc_tests.support.pruning import DAYS, KEYS, prune


class Slow:
    """A backup, at a step of which other things happen first, or last. ``written`` counts its manifests."""

    def __init__(
        self, spark: SparkSession, repository: LakeRepository, place: Backups, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for key in KEYS:
            repository.put_stray(key)
        self.spark, self.repository, self.place, self._patch = spark, repository, place, monkeypatch
        self.collector = Collector(spark, repository)
        self.mark: Mark = self.collector.mark_objects(*KEYS)
        self.paths = BackupPaths("lake", self.mark.mark_id)
        self.written = 0
        put = LocalStore.put

        def counted(store: LocalStore, key: str, data: bytes, *, if_absent: bool = False) -> bool:
            self.written += key == self.paths.manifest
            return put(store, key, data, if_absent=if_absent)

        monkeypatch.setattr(LocalStore, "put", counted)

    def back_up(self) -> None:
        self.place.back_up(self.spark, self.collector, self.mark).result.raise_if_incomplete()

    def at(self, step: str, happens: Callable[[], object]) -> None:
        """Let something happen once, after this function of the backup."""
        real, happening = getattr(stage, step), [happens]

        def then(*args: object) -> object:
            result = real(*args)
            if happening:
                happening.pop()()
            return result

        self._patch.setattr(stage, step, then)

    @property
    def began(self) -> Path:
        return Path(self.place.location.url.removeprefix("file://")) / self.paths.began

    def expire(self) -> None:
        """Let the backup have taken so long."""
        at = utc_now().timestamp() - (DAYS + 1) * 86400
        os.utime(self.began, (at, at))

    def prune(self, store: LocalStore | None = None) -> list[str]:
        """As another process does now, after the backup has taken so long."""
        self.expire()
        lake = self.repository.lake
        found = prune_backups(
            store or self.place.store,
            "lake",
            DAYS,
            utc_now(),
            lambda url: open_store(lake.settings.reach(url)),
            lake.credentials.endpoint_url,
        )
        return [listed.mark_id for listed in found.removed]

    def prune_and_die(self) -> None:
        """As one that is killed when it has deleted the copies, and nothing that comes later in a listing of S3."""
        with pytest.raises(KeyboardInterrupt):
            self.prune(Killed(self.place.location))

    def notes(self) -> list[str]:
        return list(keys_below(self.place.store, self.paths.removals))

    def is_complete(self) -> bool:
        return bool(self.place.store.stat_many([self.paths.manifest]))


class Killed(LocalStore):
    def delete_many(self, keys: Sequence[str], window: DeleteWindow | None = None) -> Deletions:
        now = [key for key in keys if "/records/" not in key and "/workers/" not in key]
        answer = super().delete_many(now, window)
        if any("/objects/" in key for key in now):
            raise KeyboardInterrupt
        return answer


@pytest.fixture
def slow(spark: SparkSession, repository: LakeRepository, place: Backups, monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(spark, repository, place, monkeypatch)


def test_a_backup_that_is_being_made_does_not_expire(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    def removed() -> None:
        slow.expire()
        deadline = time.monotonic() + 10
        while slow.began.stat().st_mtime < time.time() - 86400 and time.monotonic() < deadline:
            time.sleep(0.01)
        found = prune(slow.place, slow.repository, 0)
        assert (found.removed, found.kept) == ([], [])
        happened.append(True)

    happened: list[bool] = []
    monkeypatch.setattr(renewal, "_MOST_SECONDS", 0.05)
    slow.at("_write_contents", removed)
    slow.back_up()
    assert happened
    assert set(slow.place.copies(slow.mark)) == set(KEYS)


def test_a_note_that_could_not_be_written_is_written_before_the_copies_are_looked_for(slow: Slow) -> None:
    slow.at("_refuse_fewer_copies", slow.expire)
    slow.back_up()
    assert slow.is_complete()


@pytest.mark.parametrize(
    ("step", "removes"),
    [
        ("_refuse_fewer_copies", "prune_and_die"),
        ("_refuse_fewer_copies", "prune"),
        ("_refuse_unseen_copies", "prune_and_die"),
        ("_refuse_unseen_copies", "prune"),
        ("_refuse_unseen_copies", "expire"),
    ],
)
def test_what_was_removed_at_the_end_is_no_backup(slow: Slow, step: str, removes: str) -> None:
    slow.at(step, getattr(slow, removes))
    with pytest.raises(BackupError, match=r"may have been removed|is being removed|does not show them") as refused:
        slow.back_up()
    assert f"`{slow.paths.command}`" in refused.value.remedy
    assert slow.written == 0
    slow.place.store.delete_many(slow.notes() if removes == "prune_and_die" else [])
    slow.back_up()
    assert set(slow.place.copies(slow.mark)) == set(KEYS)


@pytest.mark.parametrize("removes", ["prune_and_die", "prune", "expire"])
def test_what_was_removed_while_the_manifest_was_written_is_no_backup(
    slow: Slow, monkeypatch: pytest.MonkeyPatch, removes: str
) -> None:
    put, happening = LocalStore.put, [getattr(slow, removes)]

    def then(store: LocalStore, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        if key == slow.paths.manifest and happening:
            happening.pop()()
        return put(store, key, data, if_absent=if_absent)

    monkeypatch.setattr(LocalStore, "put", then)
    with pytest.raises(BackupError, match="may have been removed before it was complete"):
        slow.back_up()
    assert (slow.written, slow.is_complete()) == (1, False)
    slow.place.store.delete_many(slow.notes() if removes == "prune_and_die" else [])
    slow.back_up()
    assert set(slow.place.copies(slow.mark)) == set(KEYS)


def test_a_pruning_with_fewer_days_is_noticed_by_its_note(slow: Slow) -> None:
    """As one of an earlier version, which does not read the days of the backup."""
    slow.at("_refuse_unseen_copies", lambda: slow.place.store.put(f"{slow.paths.removals}other.json", b"{}"))
    with pytest.raises(BackupError, match="a pruning takes it for expired"):
        slow.back_up()
    assert slow.written == 0
