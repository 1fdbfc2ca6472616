"""Copies in backups that the present settings no longer lead to: in a former location, or removed."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import BackupSettings
from lakefs_gc.engine.explain.erasure import Verdict
from lakefs_gc.engine.records.backups.marker import write_marker
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.mark_facts import facts_key
from lakefs_gc.engine.undo.pruning import prune_backups
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository, keys_below
from lakefs_gc_tests.support.mark_facts import write_facts_of, write_few_facts
from lakefs_gc_tests.support.proving import prover, verdicts

PATH = "people/anna.csv"


def new_folder(parent: Path, name: str) -> BackupSettings:
    (parent / name).mkdir()
    return BackupSettings(url=(parent / name).as_uri())


def used_folder(parent: Path, name: str) -> BackupSettings:
    """A location whose backups were all removed."""
    backup = new_folder(parent, name)
    write_marker(open_store(StoreLocation(backup.url)))
    return backup


def expired(repository: LakeRepository) -> str:
    """The address of an object at ``PATH`` whose only commit is expired."""
    key = repository.put(PATH, "Anna")
    repository.commit(age_days=30)
    repository.delete(PATH)
    repository.put("live")
    repository.commit(age_days=20)
    repository.keep_days(10)
    return key


@pytest.mark.long(40)
def test_a_backup_in_a_location_that_a_mark_recorded(
    spark: SparkSession, small: LakeRepository, tmp_path: Path
) -> None:
    """The setting was changed after the backup."""
    old, new = new_folder(tmp_path, "old"), used_folder(tmp_path, "new")
    prove = prover(small, small.lake.settings)
    expired(small)
    collector = Collector(spark, small)
    mark = collector.collect_and_mark()
    collector.settings = collector.settings.model_copy(update={"backup": old})
    assert write_facts_of(collector, mark).backup_url == old.url
    Backups(StoreLocation(old.url)).back_up(spark, collector, mark)
    collector.sweep(mark, live=[])
    for changes in ({"backup": new}, {"backup": new, "no_backups": True}, {"no_backups": True}):
        proof = prove(PATH, **changes)
        assert proof.verdict is Verdict.REMAINS
        assert proof.objects[0].remains == (f"backup of mark {mark.mark_id} in {old.url}",)
    # Another spelling of the same location is not read twice.
    proof = prove(PATH, backup=BackupSettings(url=f"{old.url}/"))
    assert len(proof.objects[0].remains) == 1

    # A location that cannot be read is unknown, unless the user states that it has no backup.
    shutil.move(tmp_path / "old", tmp_path / "not-mounted")
    unknown = prove(PATH, backup=new)
    assert unknown.verdict is Verdict.UNKNOWN
    [unread] = unknown.not_looked_at
    assert unread.startswith(f"backups in a former location, {old.url}: ")
    assert unread.endswith("pass --no-backups")
    stated = prove(PATH, backup=new, no_backups=True)
    assert (stated.verdict, stated.not_looked_at) == (Verdict.ERASED, ())
    assert old.url in stated.stated[1]

    # So is an empty one: it may be the folder where its disk is mounted at other times.
    (tmp_path / "old").mkdir()
    for changes in ({"backup": new}, {"backup": old}, {"backup": old, "no_backups": True}):
        empty = prove(PATH, **changes)
        assert empty.verdict is Verdict.UNKNOWN
        [unread] = empty.not_looked_at
        assert f"{old.url}: it has neither a backup nor the file lakefs-gc-backups.txt" in unread
        assert unread.endswith("pass --no-backups")
    for changes in ({"backup": new}, {}):
        assert prove(PATH, no_backups=True, **changes).verdict is Verdict.ERASED
    (tmp_path / "old").rmdir()

    # A backup shows its location as the marker does, which earlier versions did not write.
    shutil.move(tmp_path / "not-mounted", tmp_path / "old")
    (tmp_path / "old" / "lakefs-gc-backups.txt").unlink()

    # What is in it stays unknown, whatever the user states.
    shutil.rmtree(tmp_path / "old" / "lake" / mark.mark_id / "objects")
    assert prove(PATH, backup=new).verdict is Verdict.ERASED
    damaged_backup = tmp_path / "old" / "lake-before" / mark.mark_id
    damaged_backup.mkdir(parents=True)
    (damaged_backup / "began.json").write_text("{}")
    assert prove(PATH, backup=new, no_backups=True).verdict is Verdict.UNKNOWN

    # A mark whose facts are damaged may have recorded another location.
    shutil.rmtree(damaged_backup)
    key = facts_key(mark.mark_id)
    facts = small.store.read(key)
    for changed in (facts[:-9], facts.replace(mark.mark_id.encode(), mark.mark_id[::-1].encode())):
        small.store.put(key, changed)
        damaged = prove(PATH, backup=new, no_backups=True)
        assert damaged.verdict is Verdict.UNKNOWN
        assert "and its backup location" in damaged.not_looked_at[0]

    # So may one whose facts do not exist: its run was killed before they were written, or somebody removed them.
    small.store.delete_many([key])
    without = prove(PATH, backup=new)
    assert without.verdict is Verdict.UNKNOWN
    [unread] = without.not_looked_at
    assert unread.startswith(f"backups in a former location, if one was configured when mark {mark.mark_id} was made")
    assert prove(PATH, backup=new, no_backups=True).verdict is Verdict.ERASED


@pytest.mark.long(40)
def test_a_backup_whose_location_was_set_after_the_mark(
    spark: SparkSession, small: LakeRepository, tmp_path: Path
) -> None:
    """Or on another machine. The backup notes it beside the mark, if the facts of the mark do not name it."""
    prove = prover(small, small.lake.settings)
    at_mark, at_backup = new_folder(tmp_path, "at-mark"), new_folder(tmp_path, "at-backup")
    expired(small)
    collector = Collector(spark, small)
    mark = collector.collect_and_mark()
    collector.settings = collector.settings.model_copy(update={"backup": at_mark})
    write_facts_of(collector, mark)
    notes = f"{MarkPaths.of(mark.mark_id).folder}backups/"
    Backups(StoreLocation(at_mark.url)).back_up(spark, collector, mark)
    assert list(keys_below(small.store, notes)) == []
    shutil.rmtree(tmp_path / "at-mark" / "lake")
    Backups(StoreLocation(at_backup.url)).back_up(spark, collector, mark)
    collector.sweep(mark, live=[])
    proof = prove(PATH, backup=at_mark)
    assert proof.verdict is Verdict.REMAINS
    assert proof.objects[0].remains == (f"backup of mark {mark.mark_id} in {at_backup.url}",)

    shutil.rmtree(tmp_path / "at-backup" / "lake")
    assert prove(PATH, backup=at_mark).verdict is Verdict.ERASED
    [note] = keys_below(small.store, notes)
    small.store.put(note, small.store.read(note)[:-9])
    damaged = prove(PATH, backup=at_mark)
    assert damaged.verdict is Verdict.UNKNOWN
    assert damaged.not_looked_at[0].startswith(f"where mark {mark.mark_id} was backed up: ")


def swept_and_pruned(spark: SparkSession, repository: LakeRepository, key: str, backups: Backups) -> str:
    """The id of a mark that named an object, which was backed up and swept, and whose backup was removed."""
    collector = Collector(spark, repository)
    mark = collector.mark_objects(key)
    write_few_facts(repository.store, mark)
    backups.back_up(spark, collector, mark)
    collector.sweep(mark, live=[])

    def open_namespace(_: str) -> ObjectStore:
        return repository.store

    later = repository.store.now() + timedelta(days=31)
    url = repository.lake.credentials.endpoint_url
    [removed] = prune_backups(backups.store, "lake", 30, later, open_namespace, url).removed
    assert removed.mark_id == mark.mark_id
    return mark.mark_id


def removed_object(repository: LakeRepository) -> str:
    key = repository.put(PATH, "Anna")
    repository.commit()
    repository.delete(PATH)
    repository.put("live")
    repository.commit()
    return key


@pytest.mark.long(40)
def test_versions_of_a_removed_backup(
    spark: SparkSession, small: LakeRepository, versioned: StoreLocation, s3_server: SeaweedFS
) -> None:
    """A listing of the bucket shows nothing of it, because only versions behind delete markers are left."""
    prove, backup = prover(small, small.lake.settings), BackupSettings(url=versioned.url)
    key = removed_object(small)
    mark_id = swept_and_pruned(spark, small, key, Backups(versioned))
    bucket, _, root = versioned.folder_url.removeprefix("s3://").partition("/")
    client = s3_server.client()
    assert "Contents" not in client.list_objects_v2(Bucket=bucket)
    proof = prove(PATH, backup=backup)
    assert proof.verdict is Verdict.REMAINS
    assert proof.objects[0].remains == (f"1 version in {versioned.url} (removed backup of mark {mark_id})",)

    copy = f"{root}lake/{mark_id}/objects/{key}"
    [version] = client.list_object_versions(Bucket=bucket, Prefix=copy)["Versions"]
    client.delete_object(Bucket=bucket, Key=copy, VersionId=version["VersionId"])
    assert prove(PATH, backup=backup).verdict is Verdict.ERASED


@pytest.mark.long(40)
def test_what_a_store_keeps_of_a_removed_backup_and_does_not_list(
    spark: SparkSession, small: LakeRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Azure and Google. No mark named the other object, so it was in no backup."""
    prove, backup = prover(small, small.lake.settings), new_folder(tmp_path, "backups")
    backups = Backups(StoreLocation(backup.url))
    small.put("live")
    other = small.put("other")
    key = removed_object(small)
    small.delete("other")
    small.commit()
    small.store.delete_many([other])
    small.put("live")
    swept_and_pruned(spark, small, key, backups)
    kind, namespace = type(backups.store), small.store.location.folder_url

    def keeps_blobs(store: ObjectStore) -> str:
        return "" if store.location.folder_url == namespace else "soft delete keeps blobs for 7 days"

    monkeypatch.setattr(kind, "deletes_versions", False)
    monkeypatch.setattr(kind, "space_not_freed", keeps_blobs)
    proof = prove(PATH, backup=backup)
    assert (proof.verdict, verdicts(proof)) == (Verdict.UNKNOWN, {key: Verdict.ERASED})
    [unread] = proof.not_looked_at
    assert unread.startswith(f"deleted copies in {backup.url}, which cannot all be listed: soft delete")
    assert prove("other", backup=backup).verdict is Verdict.ERASED
