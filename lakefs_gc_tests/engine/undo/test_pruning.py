"""How long a backup stays."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.engine.records.backups.claim import claim_backup
from lakefs_gc.engine.records.backups.location import list_backups, read_backup
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.ledger import sequence_of
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.restore_log import begin_restore, notes
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.undo.pruning import Pruned, prune_backups
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
from lakefs_gc_tests.support.lake import Lake, LakeRepository

_DAYS = 30
KEYS = [f"data/s/{number}" for number in range(6)]


@pytest.fixture
def place(tmp_path: Path) -> Backups:
    folder = tmp_path / "backups"
    folder.mkdir()
    return Backups(StoreLocation(folder.as_uri()))


def prune(place: Backups, repository: LakeRepository, days: float) -> Pruned:
    """As a server does that has this repository's lake, so many days from now."""
    reach = repository.lake.settings.reach
    later = utc_now() + timedelta(days=days)
    url = repository.lake.credentials.endpoint_url
    return prune_backups(place.store, "lake", _DAYS, later, lambda namespace: open_store(reach(namespace)), url)


def pruned(place: Backups, repository: LakeRepository, days: float) -> list[str]:
    found = prune(place, repository, days)
    assert found.kept == []
    return [listed.mark_id for listed in found.removed]


def backed_up(spark: SparkSession, repository: LakeRepository, place: Backups) -> tuple[Collector, Mark]:
    for key in KEYS:
        repository.put_stray(key)
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*KEYS)
    place.back_up(spark, collector, mark)
    return collector, mark


def ages(repository: LakeRepository, key: str, days: float) -> None:
    """Make a file look as if it was written so many days from now."""
    at = utc_now().timestamp() + days * 86400
    os.utime(repository.folder / key, (at, at))


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
    ages(repository, note, 22)
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
        found = prune_backups(Meanwhile(place.location), "lake", _DAYS, later, lambda _: namespace, url)
        assert (found.removed, [why for _, why in found.kept]) == ([], kept)
        assert place.store.read(BackupPaths("lake", mark.mark_id).manifest) == manifest
        assert set(place.copies(mark)) == set(KEYS)
        assert list(place.store.list(BackupPaths("lake", mark.mark_id).removals)) == []
        unreadable = False


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
            repository.put_stray(KEYS[0])
    assert pruned(place, repository, 112) == [mark.mark_id]
    assert list(place.store.list("lake/")) == []
    repository.put_stray(KEYS[0])
    place.back_up(spark, collector, mark)
    place.store.put(f"{paths.objects}data/s/.DS_Store", b"the Finder's")
    ages(repository, note, 0)
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
    swept = MarkPaths.of(mark.mark_id).sweep_summary_of(Scope.expired)
    repository.store.put(swept, b"{}")
    ages(repository, swept, 0)
    repository.store.delete_many(KEYS)
    assert prune(place, repository, 31).removed == []
    assert set(place.copies(mark)) == set(KEYS)


def test_an_approval_after_the_sweep_keeps_it_longer(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    collector, mark = backed_up(spark, repository, place)
    collector.sweep(mark, live=KEYS[:1])
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
    store.put(paths.sweep_summary_of(Scope.never_committed), b"{}")
    assert pruned(place, repository, 31) == []
    store.put(paths.sweep_summary_of(Scope.expired), b"{}")
    store.put(paths.approval, b"{}")
    assert pruned(place, repository, 29) == []
    assert pruned(place, repository, 31) == [mark.mark_id], "both parts were swept, so the mark was"


def test_the_sweep_of_one_part_does_not_end_that_of_the_other(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    """Also where the store gives all files the same time."""
    _, mark = backed_up(spark, repository, place)
    paths, same_second = MarkPaths.of(mark.mark_id), int(utc_now().timestamp())

    def write(key: str, content: bytes) -> None:
        repository.store.put(key, content)
        os.utime(repository.folder / key, (same_second, same_second))

    def begin(only: Scope) -> None:
        write(f"{paths.ledger}{sequence_of(utc_now(), 1, only)}-00000-intent.parquet", b"")

    def end(only: Scope) -> None:
        # The clock of the machine that swept may be ahead of the store's, by which sweeps begin.
        ended_at = utc_now() + timedelta(minutes=1)
        times = {"began_at": utc_now().isoformat(), "ended_at": ended_at.isoformat()}
        write(paths.sweep_summary_of(only), json.dumps(times).encode())

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


def as_one_server(place: Backups, mark: Mark) -> None:
    """Let a backup be one of a version that did not record the server."""
    paths = BackupPaths("lake", mark.mark_id)
    place.store.put(paths.manifest, replace(read_backup(place.store, paths), server=None).sealed().to_json())


def test_a_server_with_another_repository_of_that_name_prunes_nothing(
    spark: SparkSession, repository: LakeRepository, place: Backups, tmp_path: Path
) -> None:
    """Each for a reason: the namespace can be read and says so; is another of that name; or cannot be opened."""
    collector, mark = backed_up(spark, repository, place)
    collector.approve(mark)
    collector.sweep(mark, live=[])
    ages(repository, MarkPaths.of(mark.mark_id).sweep_summary, 29)
    as_one_server(place, mark)
    with Lake(tmp_path / "staging") as staging:
        other = staging.repository("lake")
        assert prune(place, other, 29).kept == []
        here = prune(place, other, 31)
        assert here.removed == []
        ((listed, why),) = here.kept
        assert (listed.mark_id, why) == (
            mark.mark_id,
            "The mark is not in local://lake/, so whether it was swept is unknown",
        )
        no_mounts = staging.settings.model_copy(update={"mounts": {}})
        later = utc_now() + timedelta(days=31)
        ends = prune_backups(place.store, "lake", _DAYS, later, lambda url: open_store(no_mounts.reach(url)))
        assert "no mount leads to it" in ends.kept[0][1]
        assert len(list(list_backups(place.store))) == 1
        reads_it = prune_backups(place.store, "lake", _DAYS, later, lambda _: repository.store)
        assert (reads_it.removed, reads_it.kept) == ([], []), "two days after its sweep"


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_copy_of_an_installation_prunes_no_backup_of_the_original(
    spark: SparkSession, repository: LakeRepository, place: Backups, tmp_path: Path, is_complete: bool
) -> None:
    """It has the same namespace and mark, but not the approval that the mark got after it was copied."""
    collector, mark = backed_up(spark, repository, place)
    if not is_complete:
        place.store.delete_many([BackupPaths("lake", mark.mark_id).manifest])
    with Lake(tmp_path / "staging") as staging:
        copy = staging.repository("lake")
        shutil.copytree(repository.folder, copy.folder, dirs_exist_ok=True)
        collector.approve(mark)
        assert pruned(place, repository, 31) == [], "approved and not swept"
        found = prune(place, copy, 31)
        assert found.removed == []
        [(_, why)] = found.kept
        urls = [each.credentials.endpoint_url for each in (repository.lake, staging)]
        assert why == f"The backup was made with the lakeFS server {urls[0]}, but this is {urls[1]}"
        assert set(place.copies(mark)) == set(KEYS)


def test_a_backup_that_does_not_say_its_namespace_stays(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    _, mark = backed_up(spark, repository, place)
    paths = BackupPaths("lake", mark.mark_id)
    place.store.delete_many([paths.manifest])
    for note in (b'{"mark_id": "m"}', b"not a note"):
        place.store.put(paths.began, note)
        found = prune(place, repository, 31)
        assert found.removed == []
        assert [why for _, why in found.kept] == [
            "The backup does not record its namespace, so whether it was swept is unknown"
        ]


@pytest.mark.parametrize("folder", ["lake-legal-hold", "lake/m1-legal-hold", "Legal Hold (do not delete)"])
@pytest.mark.parametrize("is_complete", [True, False])
def test_folders_of_backups_that_were_moved_or_copied_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, folder: str, is_complete: bool
) -> None:
    """Somebody did that to keep them. Pruning names them, and those that only the log can name."""
    (tmp_path / "backups").mkdir()
    place, namespace = (open_store(StoreLocation((tmp_path / name).as_uri())) for name in ("backups", ""))
    for mark_id in ("m1", "m1-legal-hold"):
        write_unswept_mark(namespace, mark_id)
    backup = write_complete_backup(place, "lake")
    if not is_complete:
        place.delete_many([backup.paths.manifest])
    source = tmp_path / "backups" / ("lake/m1" if "/" in folder else "lake")
    shutil.copytree(source, tmp_path / "backups" / folder)
    before = {file for file in (tmp_path / "backups" / folder).rglob("*") if file.is_file()}
    later = utc_now() + timedelta(days=31)
    with caplog.at_level("INFO"):
        found = prune_backups(place, "", _DAYS, later, lambda _: namespace)
    assert [(listed.repository, listed.mark_id) for listed in found.removed] == [("lake", "m1")]
    assert {file for file in before if file.exists()} == before
    assert not source.exists()
    if folder.startswith("lake"):
        [(_, why)] = found.kept
        assert "moved or copied" in why
        assert "of the backup of mark m1 of lake" in why
    else:
        assert "because no repository has these names: Legal Hold (do not delete)" in caplog.text


def test_an_unfinished_backup_that_names_no_repository_stays(tmp_path: Path) -> None:
    """An earlier version began it. Its manifest, which has always named the repository, suffices."""
    place, namespace = (LocalStore(StoreLocation(tmp_path.as_uri() + name)) for name in ("/backups", ""))
    (tmp_path / "backups").mkdir()
    write_unswept_mark(namespace)
    backup = write_complete_backup(place, "lake")
    note = {"mark_id": "m1", "namespace": "local://lake/", "mark_digest": "sha256:0"}
    place.put(backup.paths.began, json.dumps({**note, "began_at": "2026-01-01T00:00:00+00:00"}, indent=2).encode())
    manifest = place.read(backup.paths.manifest)
    place.delete_many([backup.paths.manifest])
    later = utc_now() + timedelta(days=31)
    [(_, why)] = prune_backups(place, "lake", _DAYS, later, lambda _: namespace).kept
    assert "which does not name the repository" in why
    place.put(backup.paths.manifest, manifest)
    assert len(prune_backups(place, "lake", _DAYS, later, lambda _: namespace).removed) == 1


def test_an_old_backup_that_cannot_be_removed_is_said_to_be_there(levelled_s3: LevelledS3, tmp_path: Path) -> None:
    server = levelled_s3
    store = open_store(StoreLocation("s3://bucket/backups"))
    backup = write_complete_backup(store, "lake")
    later = utc_now() + timedelta(days=_DAYS + 1)
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
    found = prune_backups(store, "lake", _DAYS, later, open_namespace)
    [(_, why)] = found.kept
    assert found.removed == []
    assert "cannot be removed, e.g. lake/m1/objects/data/s/one: AccessDenied" in why
    (left,) = list_backups(store)
    assert left.problem == "not complete", "without its manifest it is no backup"
    server.faults.clear()
    assert [listed.mark_id for listed in prune_backups(store, "lake", _DAYS, later, open_namespace).removed] == ["m1"]
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
    later = utc_now() + timedelta(days=_DAYS + 1)
    for removed in (["m1"], []):
        found = prune_backups(place, "lake", _DAYS, later, lambda _: namespace)
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
    later = utc_now() + timedelta(days=_DAYS + 1)
    found = prune_backups(place, "lake", _DAYS, later, lambda _: namespace)
    assert found.removed == []
    folder = f"s3://bucket/lake/{paths.report.folder}"
    assert [why for _, why in found.kept] == [
        f"The listing of {folder} lacks {lacking}, which exists: whether the mark was swept is unknown"
    ]
    assert place.read(f"{backup.paths.objects}data/s/one") == b"one"
