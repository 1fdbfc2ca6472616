"""How long a backup stays."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.engine.records.approval import VIA_COMMAND_LINE, Approval
from lakefs_gc.engine.records.backups.claim import claim_backup
from lakefs_gc.engine.records.backups.location import list_backups, read_backup
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.ledger import sequence_of
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.restore_log import begin_restore, notes
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.undo.pruning import prune_backups
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import StoreUnavailableError
from lakefs_gc.storage.base import ObjectInfo, ObjectStore
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.complete_backup import write_complete_backup, write_unswept_mark
from lakefs_gc_tests.support.faulty_s3 import Answer, FaultyS3, Request, deleted
from lakefs_gc_tests.support.faulty_store import LevelledS3
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.pruning import (
    DAYS,
    KEYS,
    ages,
    backed_up,
    ends,
    prune,
    pruned,
    write_sweep_summary,
)


def test_retention_counts_from_the_sweep(spark: SparkSession, repository: LakeRepository, place: Backups) -> None:
    collector, mark = backed_up(spark, repository, place)
    other = Collector(spark, repository).mark_objects(KEYS[0])
    place.back_up(spark, collector, other)
    assert pruned(place, repository, 29) == []
    collector.approve(mark)
    assert pruned(place, repository, 31) == [other.mark_id], "a mark that is approved keeps its backup"
    assert list(place.store.list(f"lake/{other.mark_id}/")) == []
    assert set(place.copies(mark)) == set(KEYS)

    collector.sweep(mark, live=[])
    ages(repository, MarkPaths.of(mark.mark_id).sweep_summary, 20)
    assert pruned(place, repository, 49) == []
    # A restore reads the copies.
    begin_restore(repository.store, mark.mark_id, "", utc_now(), time.sleep)
    [note] = notes(repository.store, mark.mark_id)
    ages(repository, note, 21)
    ends(repository, note, 22)
    assert pruned(place, repository, 51) == []
    assert pruned(place, repository, 53) == [mark.mark_id]
    assert place.copies(mark) == {}


def test_an_unfinished_backup_goes_in_time_and_a_sweep_under_way_keeps_its_own(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    _, mark = backed_up(spark, repository, place)
    place.store.delete_many([BackupPaths("lake", mark.mark_id).manifest])
    ledger = MarkPaths.of(mark.mark_id).ledger + "x-intent.parquet"
    repository.store.put(ledger, b"")
    assert pruned(place, repository, 31) == []
    repository.store.delete_many([ledger])
    assert pruned(place, repository, 0) == []
    (gone,) = prune(place, repository, 31).removed
    assert gone.problem == "not complete"
    assert list(place.store.list("lake/")) == []


def test_a_later_sweep_that_has_not_ended_keeps_the_backup(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    """What was spared, locked or failed the first time is deleted by a second sweep, which is killed midway."""
    collector, mark = backed_up(spark, repository, place)
    collector.approve(mark)
    collector.sweep(mark, live=KEYS[:5])
    paths = MarkPaths.of(mark.mark_id)
    for batch in repository.store.list(paths.ledger):
        for key in batch["address"].to_pylist():
            ages(repository, key, -40)
    for key in (paths.sweep_summary, paths.approval):
        ages(repository, key, -40)
    manifest = BackupPaths("lake", mark.mark_id).manifest
    made = read_backup(place.store, BackupPaths("lake", mark.mark_id))
    place.store.put(manifest, replace(made, created_at=made.created_at - timedelta(days=41)).sealed().to_json())

    looks = iter([collector._frame([])])

    def dies(_: DataFrame) -> DataFrame:
        try:
            return next(looks)
        except StopIteration:
            raise KeyboardInterrupt from None

    second = Collector(spark, repository)
    with pytest.raises(KeyboardInterrupt):
        second.sweep(mark, look=dies, objects_per_look=2)
    assert 0 < len(repository.objects() & set(KEYS)) < 5
    assert pruned(place, repository, 0) == []
    assert pruned(place, repository, 31) == [], "half swept"
    Collector(spark, repository).sweep(mark, live=[])
    assert pruned(place, repository, 29) == []
    assert pruned(place, repository, 31) == [mark.mark_id]


@pytest.mark.parametrize("part", [Scope.all, Scope.expired])
def test_a_sweep_whose_deletes_failed_keeps_the_backup(
    spark: SparkSession, repository: LakeRepository, place: Backups, part: Scope
) -> None:
    """It is to be repeated, then the permission may be there. Neither an earlier sweep nor that of a part ends it."""
    _, mark = backed_up(spark, repository, place)
    paths, store = MarkPaths.of(mark.mark_id), repository.store
    for only in Scope:
        write_sweep_summary(store, mark.mark_id, only, deleted=3)
        ages(repository, paths.sweep_summary_of(only), -2)
    write_sweep_summary(store, mark.mark_id, part, deleted=2, failed=1)
    ages(repository, paths.sweep_summary_of(part), -1)
    assert pruned(place, repository, 31) == []
    store.put(paths.approval_of(part), b"{}")
    assert pruned(place, repository, 31) == []
    write_sweep_summary(store, mark.mark_id, part, deleted=3)
    assert pruned(place, repository, 31) == [mark.mark_id]


def test_the_sweep_of_an_earlier_mark_with_the_same_id_ends_no_approval(tmp_path: Path) -> None:
    """Marks of lakeFS's client may have one id. An approval of the earlier one keeps no backup of the later one."""
    (tmp_path / "backups").mkdir()
    place, namespace = (open_store(StoreLocation((tmp_path / name).as_uri())) for name in ("backups", ""))
    write_unswept_mark(namespace)
    backup = write_complete_backup(place, "lake")
    later = utc_now() + timedelta(days=DAYS + 1)
    write_sweep_summary(namespace, "m1", digest="sha256:1", deleted=1)

    def approve(digest: str) -> None:
        approval = Approval("m1", "lake", digest, "ann", VIA_COMMAND_LINE, utc_now())
        namespace.put(MarkPaths.of("m1").approval, approval.to_json())

    for approved in (backup.mark_digest, ""):
        approve(approved)
        found = prune_backups(place, "lake", DAYS, later, lambda _: namespace)
        assert (found.removed, found.kept) == ([], [])
    approve("sha256:1")
    assert len(prune_backups(place, "lake", DAYS, later, lambda _: namespace).removed) == 1


@pytest.mark.parametrize("content", [b"{}", b'{"outcomes": {"deleted": {"objects": 1}}}', b"not JSON"])
def test_a_damaged_summary_of_a_sweep_keeps_the_backup(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "backups").mkdir()
    place, namespace = (open_store(StoreLocation((tmp_path / name).as_uri())) for name in ("backups", ""))
    backup = write_complete_backup(place, "lake")
    write_unswept_mark(namespace)
    namespace.put(MarkPaths.of("m1").sweep_summary, content)
    later = utc_now() + timedelta(days=DAYS + 1)
    found = prune_backups(place, "lake", DAYS, later, lambda _: namespace)
    assert found.removed == []
    [(_, why)] = found.kept
    assert "not the summary of a sweep" in why
    assert read_backup(place, backup.paths) == backup


def test_a_sweep_that_has_not_looked_yet_keeps_the_backup(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    """Also the second one of a mark, which is approved and swept. It may wait for hours until its first intent."""
    collector, mark = backed_up(spark, repository, place)
    collector.approve(mark)
    collector.sweep(mark, live=KEYS[:1])
    for only in (Scope.all, Scope.expired):
        claim_backup(repository.store, mark.mark_id, only)
        assert pruned(place, repository, 31) == []
        collector.sweep(mark, live=[])
    assert pruned(place, repository, 31) == [mark.mark_id]


def test_a_sweep_that_begins_while_its_backup_is_pruned_keeps_it(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    """Between the look at the mark's records and the note of the pruning. It stays if they are unknown then, too."""
    _, mark = backed_up(spark, repository, place)
    unreadable = False

    class Namespace(LocalStore):
        def stat_many(self, keys: Sequence[str], *, concurrency: int = 16) -> dict[str, ObjectInfo]:
            if unreadable:
                raise StoreUnavailableError("told by the test", remedy="")
            return super().stat_many(keys, concurrency=concurrency)

    class Meanwhile(LocalStore):
        def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
            if key.startswith(BackupPaths("lake", mark.mark_id).removals):
                happens()
            return super().put(key, data, if_absent=if_absent)

    def claim() -> None:
        claim_backup(repository.store, mark.mark_id, Scope.all)

    def fail() -> None:
        nonlocal unreadable
        unreadable = True

    later = utc_now() + timedelta(days=31)
    manifest = place.store.read(BackupPaths("lake", mark.mark_id).manifest)
    namespace, url = Namespace(repository.location), repository.lake.credentials.endpoint_url
    for meanwhile, kept in ((fail, ["told by the test"]), (claim, [])):
        happens = meanwhile
        found = prune_backups(Meanwhile(place.location), "lake", DAYS, later, lambda _: namespace, url)
        assert (found.removed, [why for _, why in found.kept]) == ([], kept)
        assert place.store.read(BackupPaths("lake", mark.mark_id).manifest) == manifest
        assert set(place.copies(mark)) == set(KEYS)
        assert list(place.store.list(BackupPaths("lake", mark.mark_id).removals)) == []
        unreadable = False


def test_an_approval_after_the_sweep_keeps_it_longer(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    collector, mark = backed_up(spark, repository, place)
    collector.sweep(mark, live=[])
    collector.approve(mark)
    ages(repository, MarkPaths.of(mark.mark_id).approval, 10)
    assert pruned(place, repository, 31) == []
    assert pruned(place, repository, 41) == [mark.mark_id]


def test_the_backup_of_an_approved_part_stays_until_this_part_is_swept(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    _, mark = backed_up(spark, repository, place)
    paths, store = MarkPaths.of(mark.mark_id), repository.store
    store.put(paths.approval_of(Scope.expired), b"{}")
    write_sweep_summary(store, mark.mark_id, Scope.never_committed)
    assert pruned(place, repository, 31) == []
    write_sweep_summary(store, mark.mark_id, Scope.expired)
    store.put(paths.approval, b"{}")
    assert pruned(place, repository, 29) == []
    assert pruned(place, repository, 31) == [mark.mark_id], "both parts were swept, so the mark was"


def test_the_sweep_of_one_part_does_not_end_that_of_the_other(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    """Also where the store gives all files the same time."""
    _, mark = backed_up(spark, repository, place)
    paths, same_second = MarkPaths.of(mark.mark_id), int(utc_now().timestamp())

    def written(key: str) -> None:
        os.utime(repository.folder / key, (same_second, same_second))

    def begin(only: Scope) -> None:
        intent = f"{paths.ledger}{sequence_of(utc_now(), 1, only)}-00000-intent.parquet"
        repository.store.put(intent, b"")
        written(intent)

    def end(only: Scope) -> None:
        write_sweep_summary(repository.store, mark.mark_id, only, began_at=utc_now())
        written(paths.sweep_summary_of(only))

    end(Scope.expired)
    begin(Scope.expired)  # swept again, and killed
    begin(Scope.never_committed)
    end(Scope.never_committed)
    assert pruned(place, repository, 31) == []
    end(Scope.expired)
    begin(Scope.all)
    end(Scope.expired)
    assert pruned(place, repository, 31) == []
    end(Scope.never_committed)
    assert pruned(place, repository, 31) == [mark.mark_id]


def test_an_old_backup_that_cannot_be_removed_is_said_to_be_there(levelled_s3: LevelledS3, tmp_path: Path) -> None:
    server = levelled_s3
    store = open_store(StoreLocation("s3://bucket/backups"))
    backup = write_complete_backup(store, "lake")
    later = utc_now() + timedelta(days=DAYS + 1)
    kept = f"backups/{backup.paths.objects}data/s/one"
    namespace = open_store(StoreLocation(tmp_path.as_uri()))
    write_unswept_mark(namespace)
    opened: list[str] = []

    def open_namespace(url: str) -> ObjectStore:
        opened.append(url)
        return namespace

    def refuse(request: Request) -> Answer | None:
        if kept not in request.keys:
            return None
        for key in set(request.keys) - {kept}:
            server.objects.pop(key, None)
        return deleted(request.keys, {kept: ("AccessDenied", "told by the test")})

    server.faults.append(refuse)
    found = prune_backups(store, "lake", DAYS, later, open_namespace)
    [(_, why)] = found.kept
    assert found.removed == []
    assert "cannot be removed, e.g. lake/m1/objects/data/s/one: AccessDenied" in why
    (left,) = list_backups(store)
    assert left.problem == "not complete", "without its manifest it is no backup"
    server.faults.clear()
    assert [listed.mark_id for listed in prune_backups(store, "lake", DAYS, later, open_namespace).removed] == ["m1"]
    assert server.objects == {}
    assert opened == ["local://lake/"] * 2


def test_a_backup_that_cannot_be_listed_stays_whole_and_hinders_no_other(tmp_path: Path) -> None:
    """Its copies lie behind a symbolic link, for example because its disk was full."""
    (tmp_path / "backups").mkdir()
    place, namespace = (open_store(StoreLocation((tmp_path / name).as_uri())) for name in ("backups", ""))
    backups = [write_complete_backup(place, "lake", mark_id) for mark_id in ("m1", "m2")]
    for backup in backups:
        write_unswept_mark(namespace, backup.mark_id)
    copies = tmp_path / "backups" / backups[1].paths.objects  # listed first: the newest mark is
    copies.rename(tmp_path / "bigger disk")
    copies.symlink_to(tmp_path / "bigger disk")
    later = utc_now() + timedelta(days=DAYS + 1)
    for removed in (["m1"], []):
        found = prune_backups(place, "lake", DAYS, later, lambda _: namespace)
        assert [listed.mark_id for listed in found.removed] == removed
        [(kept, why)] = found.kept
        assert kept.mark_id == "m2"
        assert "symbolic link" in why
        assert read_backup(place, backups[1].paths) == backups[1]
        assert (tmp_path / "bigger disk" / "data/s/one").exists()


@pytest.mark.parametrize(("lost", "lacking"), [("", "summary.json"), ("lakefs-gc/", "lakefs-gc/approval.json")])
def test_a_listing_without_what_the_store_shows_removes_no_backup(
    plain_s3: FaultyS3, tmp_path: Path, lost: str, lacking: str
) -> None:
    """A proxy returns an empty listing, or one from its cache that is older than the approval."""
    namespace, place = open_store(StoreLocation("s3://bucket/lake")), open_store(StoreLocation(tmp_path.as_uri()))
    paths = MarkPaths.of("m1")
    intent = f"{paths.ledger}{sequence_of(utc_now(), 1, Scope.all)}-00000-intent.parquet"
    for key in (paths.summary, intent) + ((paths.approval,) if lost else ()):
        namespace.put(key, b"{}")
    backup = write_complete_backup(place, "lake")

    def lists_less(request: Request) -> Answer | None:
        if request.operation != "ListObjectsV2":
            return None
        every = plain_s3.objects
        try:
            plain_s3.objects = {key: every[key] for key in every if f"/m1/{lost}" not in key}
            return plain_s3.right_answer(request)
        finally:
            plain_s3.objects = every

    plain_s3.faults = [lists_less]
    later = utc_now() + timedelta(days=DAYS + 1)
    found = prune_backups(place, "lake", DAYS, later, lambda _: namespace)
    assert found.removed == []
    folder = f"s3://bucket/lake/{paths.report.folder}"
    assert [why for _, why in found.kept] == [
        f"The listing of {folder} lacks {lacking}, which exists: whether the mark was swept is unknown"
    ]
    assert place.read(f"{backup.paths.objects}data/s/one") == b"one"
