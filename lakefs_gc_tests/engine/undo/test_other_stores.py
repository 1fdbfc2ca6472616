"""Workers of Spark that find another store than the process of the run, by a name that both use, or an empty one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from shutil import rmtree

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.spark.witness import write_witness
from lakefs_gc.engine.spark.workers import WorkerError
from lakefs_gc.engine.undo.backup import copy_objects
from lakefs_gc.engine.undo.restore import _restore_objects, restore
from lakefs_gc.engine.undo.restore_source import RestoreSource
from lakefs_gc.errors import BackupError, StorageError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.faulty_s3 import Answer, Request
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.other_server import Copy
from lakefs_gc_tests.support.stray_objects import KEYS, strays

pytestmark = pytest.mark.executors


def mounted(folder: Path) -> ObjectStore:
    folder.mkdir()
    return open_store(StoreLocation(folder.as_uri()))


def unmount(folder: Path) -> None:
    """Leave the mount point: a folder without files."""
    for name in folder.iterdir():
        rmtree(name)


@pytest.mark.long(20)
def test_a_backup_copies_nothing_there(spark: SparkSession, repository: LakeRepository, copy: Copy) -> None:
    collector, place = Collector(spark, repository), Backups(StoreLocation("s3://bucket/backups/"))
    mark = collector.mark_objects(*strays(repository, KEYS[:2]))
    copy.lead_workers_here()
    copy.state_that_both_are_one()
    with pytest.raises(StorageError, match="finds another store at s3://bucket/backups/"):
        place.back_up(spark, collector, mark)
    assert not copy.server.objects
    with pytest.raises(BackupError, match="no complete backup"):
        place.manifest_of(mark)
    # If they are one, the backup goes on.
    copy.server.objects = copy.store.server.objects
    assert set(place.back_up(spark, collector, mark).outcomes.values()) == {"copied"}


@pytest.mark.long(20)
def test_an_object_that_is_not_there_is_not_gone(
    spark: SparkSession, in_s3: LakeRepository, copy: Copy, place: Backups
) -> None:
    keys = strays(in_s3, KEYS[:2])
    collector = Collector(spark, in_s3)
    mark = collector.mark_objects(*keys)
    copy.lead_workers_here()
    copy.state_that_both_are_one()
    for key in keys:
        del copy.server.objects[copy.store.key(in_s3, key)]
    with pytest.raises(StorageError, match="finds another store at s3://bucket/lakes/"):
        place.back_up(spark, collector, mark)
    with pytest.raises(BackupError, match="no complete backup"):
        place.manifest_of(mark)


@pytest.mark.parametrize("gone", ["originals", "copies"])
def test_no_object_is_gone_once_a_disk_is_not_mounted_any_more(tmp_path: Path, gone: str) -> None:
    def plan(address: str) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"address": address, "size": 3, "recorded": None}])

    def records() -> int:
        return sum(batch.num_rows for batch in location.list(paths.records))

    namespace, location = mounted(tmp_path / "originals"), mounted(tmp_path / "copies")
    paths = BackupPaths("lake", "m1")
    originals, copies = write_witness(namespace, MarkPaths.of("m1").passes), write_witness(location, paths.workers)
    namespace.put("data/s/one", b"one")
    plans = iter([plan("data/s/one"), plan("data/s/two"), plan("data/s/three")])
    done = copy_objects(originals, copies, paths, 1)(plans)
    for number in (1, 2):
        next(done)
        assert records() == number, "the second object is gone indeed"
    unmount(tmp_path / gone)
    with pytest.raises(WorkerError, match=f"finds another store at {(tmp_path / gone).as_uri()}/"):
        next(done)
    assert records() == (2 if gone == "originals" else 0)


@pytest.mark.parametrize(("lost", "number"), [("/objects/", 2), ("/contents/", 1)])
def test_a_backup_is_complete_only_if_the_process_of_the_run_sees_it(
    spark: SparkSession, repository: LakeRepository, store_in_s3: StoreInS3, lost: str, number: int
) -> None:
    """What the workers wrote, compared and recorded is gone before the manifest is written."""
    collector, place = Collector(spark, repository), Backups(StoreLocation("s3://bucket/backups/"))
    mark = collector.mark_objects(*strays(repository, KEYS[:2]))
    server = store_in_s3.server

    def lose(request: Request) -> Answer | None:
        if request.operation != "PutObject" or "/contents/" not in request.keys[0]:
            return None
        answer = server.right_answer(request)
        for key in [key for key in server.objects if lost in key]:
            del server.objects[key]
        return answer

    server.faults.append(lose)
    with pytest.raises(BackupError, match=f"{number} files of the backup of mark .* were written, but") as error:
        place.back_up(spark, collector, mark)
    assert lost == "/contents/" or "e.g. data/" in error.value.message
    with pytest.raises(BackupError, match="no complete backup"):
        place.manifest_of(mark)
    server.faults.clear()
    assert set(place.back_up(spark, collector, mark).outcomes.values()) == {"copied"}
    assert place.manifest_of(mark).objects == 2


def swept(
    spark: SparkSession, in_s3: LakeRepository, copy: Copy, place: Backups
) -> tuple[list[str], Collector, RestoreSource]:
    """Objects that only a backup has, and workers that would restore them to another store."""
    keys = strays(in_s3, KEYS[:2])
    collector = Collector(spark, in_s3)
    mark = collector.mark_objects(*keys)
    place.back_up(spark, collector, mark)
    in_s3.store.delete_many([*keys])
    copy.lead_workers_here()
    copy.state_that_both_are_one()
    return [*keys], collector, RestoreSource(place.manifest_of(mark), place.location, in_s3.location)


@pytest.mark.long(30)
def test_a_restore_puts_nothing_there(spark: SparkSession, in_s3: LakeRepository, copy: Copy, place: Backups) -> None:
    keys, collector, source = swept(spark, in_s3, copy, place)
    there = set(copy.server.objects)
    with pytest.raises(StorageError, match="finds another store at s3://bucket/lakes/"):
        restore(collector.context, source)
    assert set(copy.server.objects) == there
    # If they are one, the next restore brings the objects back.
    copy.server.objects = copy.store.server.objects
    result = restore(collector.context, source)
    result.raise_if_incomplete()
    assert result.checksums_compared == 2
    assert set(keys) <= in_s3.objects()


@pytest.mark.long(20)
def test_nothing_is_restored_to_a_one_way_replica(
    spark: SparkSession, in_s3: LakeRepository, copy: Copy, place: Backups
) -> None:
    """It has the witness of the process, too. What no commit shows is proved at the store of the workers alone."""
    keys, collector, source = swept(spark, in_s3, copy, place)

    def replicate(_: Request) -> Answer | None:
        for key, value in copy.store.server.objects.items():
            copy.server.objects.setdefault(key, value)
        return None

    copy.server.faults.insert(0, replicate)
    with pytest.raises(StorageError, match="Spark's workers write to another store"):
        restore(collector.context, source)
    assert not any(key.endswith(tuple(keys)) for key in copy.server.objects)


def test_nothing_is_restored_to_a_disk_that_is_not_mounted_any_more(tmp_path: Path) -> None:
    namespace, location = mounted(tmp_path / "originals"), mounted(tmp_path / "copies")
    originals = write_witness(namespace, MarkPaths.of("m1").passes)

    def copied(address: str) -> pa.RecordBatch:
        location.put(f"objects/{address}", b"one")
        checksum = f"sha256:{hashlib.sha256(b'one').hexdigest()}"
        return pa.RecordBatch.from_pylist([{"address": address, "size": 3, "checksum": checksum}])

    copies = iter([copied("data/s/one"), copied("data/s/two")])
    done = _restore_objects(location.location, originals, "objects/")(copies)
    assert next(done)["outcome"].to_pylist() == ["restored"]
    unmount(tmp_path / "originals")
    with pytest.raises(WorkerError, match=f"finds another store at {(tmp_path / 'originals').as_uri()}/"):
        next(done)
