"""A backup and a restore of another store than that of the lakeFS server: of a mirror that ``mounts`` lead to."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import BackupSettings
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.restore_log import notes
from lakefs_gc.engine.undo.backup import backup
from lakefs_gc.engine.undo.copy_object import Planned, copy_one
from lakefs_gc.engine.undo.restore import RestoreResult, restore
from lakefs_gc.engine.undo.restore_source import RestoreSource
from lakefs_gc.errors import LakeFSGCError, SafetyError, ServerUnavailableError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.client_marks import UNIFIED, write_client_mark
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.lakefs_proxy import Answered, LakeFSProxy

KEY = "data/s/one"


class Undo:
    """A backed-up and swept object, and a mirror of the namespace in which it never was."""

    def __init__(self, spark: SparkSession, repository: LakeRepository, place: Backups, folder: Path) -> None:
        repository.put_stray(KEY, b"only here")
        self.repository, self.place, self.folder = repository, place, folder
        self.collector = Collector(spark, repository)
        self.mark: Mark = self.collector.mark_objects(KEY)
        shutil.copytree(repository.folder, folder)
        self.mirror = StoreLocation(folder.as_uri())
        (folder / KEY).unlink()

    def back_up(self, store: StoreLocation, server: LakeFSClient | None = None) -> None:
        collector = Collector(self.collector.spark, self.repository, server=server)
        context = collector.context_with(backup=BackupSettings(url=self.place.location.url))
        backup(context, store, self.mark, self.place.location, run_key=collector.run_key)

    def restore(self, store: StoreLocation, server: LakeFSClient | None = None) -> RestoreResult:
        collector = Collector(self.collector.spark, self.repository, server=server)
        return restore(collector.context, RestoreSource(self.place.manifest_of(self.mark), self.place.location, store))


@pytest.fixture
def undo(spark: SparkSession, repository: LakeRepository, place: Backups, tmp_path: Path) -> Undo:
    return Undo(spark, repository, place, tmp_path / "mirror")


def test_nothing_is_gone_because_a_mirror_lacks_it(undo: Undo) -> None:
    with pytest.raises(SafetyError, match="is another one than"):
        undo.back_up(undo.mirror)
    assert not undo.place.store.list_level("lake/")[0]
    undo.back_up(undo.repository.location)
    assert undo.place.copies(undo.mark) == {KEY: b"only here"}


def test_nothing_is_restored_to_a_mirror(undo: Undo) -> None:
    undo.back_up(undo.repository.location)
    undo.collector.sweep(undo.mark, live=[])
    with pytest.raises(SafetyError, match="is another one than"):
        undo.restore(undo.mirror)
    assert not (undo.folder / KEY).exists()
    assert not notes(open_store(undo.mirror), undo.mark.mark_id), "no sweep was stopped"
    undo.restore(undo.repository.location).raise_if_incomplete()
    assert undo.repository.store.read(KEY) == b"only here"


def spoiled(proxy: LakeFSProxy, repository: LakeRepository, status: int, body: bytes) -> LakeFSClient:
    """A server that answers so to the call for a file of lakeFS."""
    proxy.spoil.append(lambda asked, _: Answered(status, body) if "/metadata/object/" in asked.path else None)
    credentials = repository.lake.credentials.model_copy(update={"endpoint_url": proxy.url})
    return LakeFSClient(credentials, sleep=lambda _: None)


@pytest.mark.parametrize("status", [404, 500])
def test_an_older_server_shows_its_store_by_the_list_that_it_writes(
    undo: Undo, proxy: LakeFSProxy, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Before lakeFS 1.25, it has no call for files. Without retention rules, it writes no list."""
    monkeypatch.setattr(LakeFSClient, "version", lambda _: "1.24.0")
    undo.repository.put("committed")
    undo.repository.commit()
    server = spoiled(proxy, undo.repository, status, b'{"message":"invalid API endpoint"}')
    with pytest.raises(SafetyError, match="may be another one") as refused:
        undo.back_up(undo.repository.location, server)
    assert "set a retention rule" in refused.value.remedy
    undo.repository.keep_days(10_000)
    with pytest.raises(SafetyError, match="may be another one"):
        undo.back_up(undo.mirror, server)
    undo.mark = Collector(undo.collector.spark, undo.repository, server=server).mark_objects(KEY)
    undo.back_up(undo.repository.location, server)
    assert undo.place.copies(undo.mark) == {KEY: b"only here"}


@pytest.mark.parametrize("status", [403, 404])
def test_a_server_that_refuses_the_call_does_not_show_its_store_by_a_list(
    undo: Undo, proxy: LakeFSProxy, status: int
) -> None:
    """Replication takes the list to a mirror, so it is proof only where there is nothing better."""
    undo.repository.put("committed")
    undo.repository.commit()
    undo.repository.keep_days(10_000)
    undo.back_up(undo.repository.location)
    server = spoiled(proxy, undo.repository, status, b'{"message":"not permitted"}')
    for begin in (undo.back_up, undo.restore):
        with pytest.raises(SafetyError, match="is unknown, because the server refuses to read a file") as refused:
            begin(undo.repository.location, server)
        assert refused.value.remedy.startswith("Grant the user fs:ReadRepository and fs:ListObjects")
    assert not notes(undo.repository.store, undo.mark.mark_id)


@pytest.mark.parametrize("begin", ["back_up", "restore"])
def test_without_the_server_nothing_begins(undo: Undo, proxy: LakeFSProxy, begin: str) -> None:
    undo.back_up(undo.repository.location)
    server = spoiled(proxy, undo.repository, 503, b'{"message":"try again"}')
    does: Callable[..., object] = getattr(undo, begin)
    with pytest.raises(ServerUnavailableError, match=r"whether .* is its store is unknown") as refused:
        does(undo.repository.location, server)
    assert refused.value.remedy.endswith("again: nothing was copied")
    assert not notes(undo.repository.store, undo.mark.mark_id)


def test_an_object_of_another_size_than_in_the_mark_is_not_backed_up(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    repository.put_stray(KEY, b"right")
    collector = Collector(spark, repository)
    mark = collector.mark_objects(KEY)
    repository.put_stray(KEY, b"longer than it was")
    for _ in range(2):
        done = place.back_up(spark, collector, mark)
        assert done.outcomes == {KEY: "failed"}
        assert done.rows[KEY]["error"] == "the object has 18 bytes, but 5 in the mark: make a new mark"
        assert place.copies(mark) == {}
    repository.put_stray(KEY, b"right")
    place.back_up(spark, collector, mark).result.raise_if_incomplete()
    assert place.copies(mark) == {KEY: b"right"}


def test_a_copy_of_another_size_that_was_recorded_does_not_count(tmp_path: Path) -> None:
    """As an earlier version recorded it: the records beside the copy have its size, and the mark another one."""
    namespace, target = (open_store(StoreLocation((tmp_path / name).as_uri())) for name in ("lake", "backups"))
    paths = BackupPaths("lake", "m1")
    namespace.put(KEY, b"other")
    target.put(paths.objects + KEY, b"other")
    found: list[tuple[str, LakeFSGCError | None]] = []
    for size in (5, 6):
        record, error = copy_one(namespace, target, paths, Planned(KEY, size, "copied"))
        found.append((record.outcome if record else "as recorded", error))
    assert found == [("as recorded", None), ("failed", None)]


def test_a_mark_without_sizes_has_those_of_the_copies(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    """It is of lakeFS's own client. An object that was overwritten since does not replace the copy."""
    repository.put_stray(KEY, b"right")
    write_client_mark(repository.store, UNIFIED, [KEY], cutoff=Collector(spark, repository).clock())
    collector = Collector(spark, repository)
    mark = collector.read_mark("m1")
    for _ in range(2):
        assert place.back_up(spark, collector, mark).outcomes == {KEY: "copied"}
        repository.put_stray(KEY, b"longer than it was")
    assert place.copies(mark) == {KEY: b"right"}
