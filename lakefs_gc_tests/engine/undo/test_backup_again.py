"""A backup that is made again: what an earlier one copied still counts, and no manifest is replaced by a worse one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.backups.location import read_backup
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.undo.backup_contents import not_backed_up
from lakefs_gc.engine.undo.restore import RestoreResult, restore
from lakefs_gc.engine.undo.restore_source import find_restore_source
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import BackupError, RestoreIncompleteError
from lakefs_gc.formats.durable_record import as_written, digest_of
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.client_marks import UNIFIED, write_client_mark
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake, LakeRepository

CONTENTS = {f"data/s/{number}": f"content {number}".encode() for number in range(4)}


def backed_up(spark: SparkSession, repository: LakeRepository, place: Backups) -> tuple[Collector, Mark]:
    for key, content in CONTENTS.items():
        repository.put_stray(key, content)
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*CONTENTS)
    place.back_up(spark, collector, mark)
    return collector, mark


def restored(place: Backups, collector: Collector, mark: Mark) -> RestoreResult:
    settings = place.settings(collector)
    source = find_restore_source(settings, collector.server, mark.mark_id, mark.repository, "")
    return restore(collector.context_with(backup=settings.backup), source)


def lose(place: Backups, mark: Mark, *names: str) -> None:
    """Delete files of a backup, and all below folders."""
    folder = BackupPaths(mark.repository, mark.mark_id).folder
    keys = [key for batch in place.store.list(folder) for key in batch["address"].to_pylist()]
    place.store.delete_many([key for key in keys if key.removeprefix(folder).startswith(names)])


@pytest.mark.parametrize("lost", [("records/",), ("records/", "contents/", "backup.json")])
def test_copies_count_after_the_sweep_if_their_records_are_lost(
    spark: SparkSession, repository: LakeRepository, place: Backups, lost: tuple[str, ...]
) -> None:
    """Deleted, not copied to another location, or not written by a backup that was killed."""
    collector, mark = backed_up(spark, repository, place)
    collector.sweep(mark, live=[])
    lose(place, mark, *lost)
    again = place.back_up(spark, collector, mark)
    again.result.raise_if_incomplete()
    assert again.outcomes == dict.fromkeys(CONTENTS, "copied")
    assert again.proofs == {"size only"}
    assert again.rows["data/s/1"]["checksum"] == f"sha256:{hashlib.sha256(CONTENTS['data/s/1']).hexdigest()}"
    result = restored(place, collector, mark)
    result.raise_if_incomplete()
    assert {key: repository.store.read(key) for key in CONTENTS} == CONTENTS


def test_a_copy_that_was_compared_only_by_its_size_is_compared_once_its_object_exists(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    """Until then, a sweep that needs a backup keeps the object."""
    collector, mark = backed_up(spark, repository, place)
    repository.store.delete_many(["data/s/1"])
    lose(place, mark, "records/")
    place.store.put(f"{BackupPaths('lake', mark.mark_id).objects}data/s/1", b"changed 1")
    assert place.back_up(spark, collector, mark).rows["data/s/1"]["proof"] == "size only"
    context = collector.context_with(backup=place.settings(collector).backup)

    def unproved() -> list[str]:
        kept = not_backed_up(context, read_backup(place.store, BackupPaths("lake", mark.mark_id)))
        return [row["address"] for row in kept.collect()] if kept else []

    assert unproved() == ["data/s/1"]
    repository.put_stray("data/s/1", CONTENTS["data/s/1"])
    assert place.back_up(spark, collector, mark).proofs == {"sha256 by reading"}
    assert unproved() == []
    assert place.copies(mark) == CONTENTS


def test_a_copy_of_another_size_than_its_lost_object_fails(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    collector, mark = backed_up(spark, repository, place)
    collector.sweep(mark, live=[])
    lose(place, mark, "records/")
    place.store.put(f"{BackupPaths('lake', mark.mark_id).objects}data/s/1", b"longer than it was")
    again = place.back_up(spark, collector, mark)
    assert again.outcomes == dict.fromkeys(CONTENTS, "copied") | {"data/s/1": "failed"}
    assert again.rows["data/s/1"]["error"] == "the original does not exist, and its copy has 18 bytes instead of 9"


def test_a_manifest_is_not_replaced_by_one_with_fewer_copies(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    collector, mark = backed_up(spark, repository, place)
    paths = BackupPaths("lake", mark.mark_id)
    good = place.store.read(paths.manifest)
    collector.sweep(mark, live=[])
    lose(place, mark, "records/", "objects/data/s/1")
    with pytest.raises(BackupError, match="has 4 copies by its manifest, but only 3 exist now") as refused:
        place.back_up(spark, collector, mark)
    assert f"delete {place.store.location.folder_url}{paths.manifest} and back up again" in refused.value.remedy
    assert place.store.read(paths.manifest) == good
    place.store.delete_many([paths.manifest])
    assert place.back_up(spark, collector, mark).outcomes["data/s/1"] == "already_gone"


@pytest.mark.parametrize("namespace", ["", "local://copy-of-lake"])
def test_two_servers_with_marks_of_one_id_do_not_share_a_backup(
    spark: SparkSession, tmp_path: Path, place: Backups, namespace: str
) -> None:
    """Of lakeFS's own client. Copies and records of the one must not count for the other, nor be overwritten."""
    with Lake(tmp_path / "a") as of_a, Lake(tmp_path / "b") as of_b:
        a, b = of_a.repository(), of_b.repository("lake", namespace) if namespace else of_b.repository()
        collectors = []
        for repository, content in ((a, b"AAAA"), (b, b"BBBB")):
            repository.put_stray("data/s/same", content)
            write_client_mark(repository.store, UNIFIED, ["data/s/same"], cutoff=utc_now())
            collectors.append(Collector(spark, repository))
        first, second = (collector.read_mark("m1") for collector in collectors)
        place.back_up(spark, collectors[0], first)
        paths = BackupPaths("lake", "m1")
        recorded = [place.store.read(file) for file in (paths.manifest, paths.began)]
        for file in ([], [paths.manifest]):
            place.store.delete_many(file)
            with pytest.raises(
                BackupError, match="has a backup of another mark with this id: its digest is"
            ) as refused:
                place.back_up(spark, collectors[1], second)
            assert ("its namespace is" in refused.value.message) == bool(namespace)
            assert "its server is" in refused.value.message
        assert place.store.read(paths.began) == recorded[1]
        place.store.put(paths.manifest, recorded[0])
        assert place.copies(first) == {"data/s/same": b"AAAA"}
        assert place.back_up(spark, collectors[0], first).outcomes == {"data/s/same": "copied"}


def test_an_id_of_a_mark_that_is_used_again_gets_no_backup(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    """Until the backup of the first mark is moved away."""
    for key in ("data/s/monday", "data/s/tuesday"):
        repository.put_stray(key, key.encode())
    collector = Collector(spark, repository)
    for key in ("data/s/monday", "data/s/tuesday"):
        write_client_mark(repository.store, UNIFIED, [key], cutoff=utc_now())
        mark = collector.read_mark("m1")
        if key == "data/s/tuesday":
            with pytest.raises(BackupError, match="of another mark") as refused:
                place.back_up(spark, collector, mark)
            assert "Move that folder" in refused.value.remedy
            root = Path(place.location.url.removeprefix("file://"))
            (root / "lake").rename(root / "monday")
        assert place.back_up(spark, collector, mark).outcomes == {key: "copied"}
        assert set(place.copies(mark)) == {key}


def test_a_damaged_record_is_replaced_only_if_another_one_names_the_mark(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    collector, mark = backed_up(spark, repository, place)
    paths = BackupPaths("lake", mark.mark_id)
    place.store.put(paths.manifest, b"{}")
    assert set(place.back_up(spark, collector, mark).outcomes.values()) == {"copied"}
    assert read_backup(place.store, paths).objects == len(CONTENTS)
    place.store.put(paths.began, b"{}")
    assert set(place.back_up(spark, collector, mark).outcomes.values()) == {"copied"}
    for lost in (paths.manifest, paths.began):
        place.store.put(lost, b"{}")
    with pytest.raises(BackupError, match=r"Which mark the backup in .* is of is unknown"):
        place.back_up(spark, collector, mark)
    assert place.store.read(paths.began) == b"{}"


def test_a_backup_of_an_earlier_version_names_no_server_and_continues(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    collector, mark = backed_up(spark, repository, place)
    paths = BackupPaths("lake", mark.mark_id)
    content = read_backup(place.store, paths).content()
    assert (content.pop("server"), content.pop("keep_days")) == (mark.run["server"], 30)
    del content["schema_version"]
    content = content | {"format_version": 1, "digest": ""}
    earlier = as_written(content | {"digest": digest_of(content)}, sort_keys=True)
    place.store.put(paths.manifest, earlier)
    assert (read_backup(place.store, paths).server, read_backup(place.store, paths).keep_days) == (None, None)
    place.back_up(spark, collector, mark)
    assert read_backup(place.store, paths).server == mark.run["server"]


def test_two_objects_that_would_have_one_copy_are_not_backed_up(
    spark: SparkSession, repository: LakeRepository, s3_namespace: StoreLocation, place: Backups
) -> None:
    """SeaweedFS converts backslashes, and a folder does not. The second attempt must not count one copy for both."""
    contents = {r"data/s/a\b": b"one", "data/s/a/b": b"two", r"data/s\c": b"ccc"}
    for key, content in contents.items():
        repository.put_stray(key, content)
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*contents)
    in_s3 = Backups(StoreLocation(f"{s3_namespace.url}-backups"))
    for _ in range(2):
        with pytest.raises(BackupError, match="differ only in backslashes: data/s/a/b and data/s/a") as refused:
            in_s3.back_up(spark, collector, mark)
        assert "Set backup.url to a local folder" in refused.value.remedy
    assert in_s3.copies(mark) == {}
    assert set(place.back_up(spark, collector, mark).outcomes.values()) == {"copied"}
    assert place.copies(mark) == contents
    alone = collector.mark_objects(r"data/s/a\b", r"data/s\c")
    assert set(in_s3.back_up(spark, collector, alone).outcomes.values()) == {"copied"}


def test_a_restore_of_a_backup_without_any_copy_fails(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    repository.put_stray("data/s/1", b"1")
    collector = Collector(spark, repository)
    mark = collector.mark_objects("data/s/1")
    repository.store.delete_many(["data/s/1"])
    place.back_up(spark, collector, mark).result.raise_if_incomplete()
    with pytest.raises(RestoreIncompleteError, match="has no copy of its 1 objects"):
        restored(place, collector, mark).raise_if_incomplete()
    nothing = collector.mark_objects()
    place.back_up(spark, collector, nothing)
    restored(place, collector, nothing).raise_if_incomplete()
