"""Expired backups stay of which this server cannot know whether they were swept: those of others, and moved ones."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.backups.location import list_backups, read_backup
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.undo.pruning import prune_backups
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import AccessDeniedError
from lakefs_gc.storage.base import SubPrefixes
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.complete_backup import write_complete_backup, write_unswept_mark
from lakefs_gc_tests.support.killed_copy import leave_unfinished
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.pruning import DAYS, KEYS, ages, backed_up, prune, pruned

RUN_ID = "ggenq03bneu0bh484i0g"
"""As lakeFS generates them. By such an id alone, what a killed backup left would be removed."""


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
        ends = prune_backups(place.store, "lake", DAYS, later, lambda url: open_store(no_mounts.reach(url)))
        assert "no mount leads to it" in ends.kept[0][1]
        assert len(list(list_backups(place.store))) == 1
        reads_it = prune_backups(place.store, "lake", DAYS, later, lambda _: repository.store)
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
        found = prune_backups(place, "", DAYS, later, lambda _: namespace)
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
    [(_, why)] = prune_backups(place, "lake", DAYS, later, lambda _: namespace).kept
    assert "which does not name the repository" in why
    place.put(backup.paths.manifest, manifest)
    assert len(prune_backups(place, "lake", DAYS, later, lambda _: namespace).removed) == 1


@pytest.mark.parametrize(("link", "mark_id"), [("lake/latest", ""), ("lake/m1/backup.json", "m1")])
def test_a_symbolic_link_among_backups_keeps_no_other_from_being_pruned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, link: str, mark_id: str
) -> None:
    (tmp_path / "backups").mkdir()
    place, namespace = (open_store(StoreLocation((tmp_path / name).as_uri())) for name in ("backups", ""))
    for repository in ("lake", "other"):
        write_complete_backup(place, repository)
    write_complete_backup(place, "lake", "m2")
    for marked in ("m1", "m2"):
        write_unswept_mark(namespace, marked)
    target = tmp_path / "backups" / link
    if target.exists():
        target.rename(tmp_path / "elsewhere")
    target.symlink_to(tmp_path / "elsewhere")
    later = utc_now() + timedelta(days=31)
    found = prune_backups(place, "", DAYS, later, lambda _: namespace)
    removed = [("lake", "m2"), ("other", "m1")] if mark_id else [("other", "m1")]
    assert [(listed.repository, listed.mark_id) for listed in found.removed] == removed
    [(listed, why)] = found.kept
    assert (listed.repository, listed.mark_id) == ("lake", mark_id)
    assert "symbolic link" in why
    assert "of repository lake is kept: not readable" in caplog.text
    assert place.read("lake/m1/objects/data/s/one") == b"one"
    assert next(list_backups(place)).problem == why


@pytest.mark.parametrize("denied", ["lake/", f"lake/{RUN_ID}/"])
def test_what_cannot_be_read_is_no_unfinished_backup(tmp_path: Path, denied: str) -> None:
    """Nothing of it goes: neither its copies, nor what a killed backup left, which would be old enough."""

    class Denying(LocalStore):
        def list_level(self, prefix: str = "") -> tuple[SubPrefixes, pa.RecordBatch]:
            if prefix == denied:
                raise AccessDeniedError("told by the test")
            return super().list_level(prefix)

        def read(self, key: str) -> bytes:
            if key == f"{denied}backup.json":
                raise AccessDeniedError("told by the test")
            return super().read(key)

    (tmp_path / "backups").mkdir()
    namespace = LocalStore(StoreLocation(tmp_path.as_uri()))
    write_unswept_mark(namespace, RUN_ID)
    place = Denying(StoreLocation((tmp_path / "backups").as_uri()))
    write_complete_backup(place, "lake", RUN_ID)
    leave_unfinished(place, f"lake/{RUN_ID}/objects/data/s/a")
    before = {file for file in (tmp_path / "backups").rglob("*") if file.is_file()}
    later = utc_now() + timedelta(days=31)
    found = prune_backups(place, "lake", DAYS, later, lambda _: namespace)
    assert found.removed == []
    assert [why for _, why in found.kept] == ["not readable: told by the test"]
    assert {file for file in before if file.exists()} == before
