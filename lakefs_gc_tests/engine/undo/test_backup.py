"""Backups: every object copied and proved, or said why not; resumed; complete only when all is accounted for."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.backups.location import find_backup, list_backups, require_backup
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.mark import MarkPart
from lakefs_gc.engine.undo.backup_contents import RECORD, read_contents
from lakefs_gc.engine.undo.same_content import same_content
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import (
    BackupError,
    BackupIncompleteError,
    CorruptFileError,
    LakeFSGCError,
    MarkError,
    StoreUnavailableError,
)
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.client_marks import UNIFIED, write_client_mark
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.faulty_s3 import Answer, Request, error
from lakefs_gc_tests.support.faulty_store import LevelledS3, StoreInS3
from lakefs_gc_tests.support.killing import kill_session
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.stray_objects import KEYS, strays


def test_every_object_is_copied_and_proved(spark: SparkSession, repository: LakeRepository, place: Backups) -> None:
    contents = strays(repository)
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*contents)
    repository.store.delete_many(["data/s/two"])
    done = place.back_up(spark, collector, mark)
    there = {key: content for key, content in contents.items() if key != "data/s/two"}
    assert place.copies(mark) == there
    assert done.outcomes == dict.fromkeys(there, "copied") | {"data/s/two": "already_gone"}
    assert done.rows["data/s/one"]["checksum"] == f"sha256:{hashlib.sha256(contents['data/s/one']).hexdigest()}"
    assert done.proofs == {"sha256 by reading"}
    done.result.raise_if_incomplete()

    made = place.manifest_of(mark)
    assert made == done.result.backup
    assert (made.mark_digest, made.namespace) == (mark.digest, repository.namespace)
    assert made.outcomes == {"copied": 4, "already_gone": 1, "failed": 0}
    assert made.copied_bytes == sum(map(len, there.values()))
    assert made.proofs == {"sha256 by reading": 4}
    assert find_backup(place.store, mark.mark_id) == made
    (listed,) = list_backups(place.store)
    assert (listed.repository, listed.objects, listed.problem) == ("lake", 4, "")

    # The sweep takes the originals; the backup, made again, still stands.
    collector.sweep(mark, live=[])
    again = place.back_up(spark, collector, mark)
    assert again.outcomes == done.outcomes
    assert place.copies(mark) == there


def test_an_empty_mark_has_a_backup(spark: SparkSession, repository: LakeRepository, place: Backups) -> None:
    collector = Collector(spark, repository)
    mark = collector.mark_objects()
    assert place.back_up(spark, collector, mark).result.objects == {"copied": 0, "already_gone": 0, "failed": 0}
    assert place.manifest_of(mark).objects == 0
    require_backup(place.settings(collector, required_before_sweep=True), mark, collector.server.endpoint_url)


def test_a_mark_of_lakefs_own_client(spark: SparkSession, repository: LakeRepository, place: Backups) -> None:
    """It says no sizes: those are of what was copied."""
    contents = strays(repository, KEYS[:3])
    write_client_mark(repository.store, UNIFIED, [*contents][:2], [*contents][2:], cutoff=utc_now())
    collector = Collector(spark, repository)
    mark = collector.read_mark("m1")
    for _ in range(2):
        assert place.back_up(spark, collector, mark).outcomes == dict.fromkeys(contents, "copied")
    assert place.manifest_of(mark).copied_bytes == sum(map(len, contents.values()))
    require_backup(place.settings(collector, required_before_sweep=True), mark, collector.server.endpoint_url)


@pytest.mark.parametrize("kind", ["s3 to s3", "s3 to local", "local to s3"])
def test_across_stores(
    kind: str, spark: SparkSession, s3_namespace: StoreLocation, tmp_path: Path, place: Backups
) -> None:
    """By the store itself within S3, and then the ETags prove it; else streamed, and one side is read."""
    in_s3 = Backups(StoreLocation(s3_namespace.url + "-backups"))
    with Lake(tmp_path / "lake-of-this", s3_namespace if kind.startswith("s3") else None) as lake:
        repository = lake.repository()
        contents = strays(repository, KEYS[:3])
        if kind == "local to s3":
            contents["data/big"] = os.urandom(20 * 1024 * 1024)  # in parts: the ETag is no MD5
            repository.put_stray("data/big", contents["data/big"])
        collector = Collector(spark, repository)
        mark = collector.mark_objects(*contents)
        target = place if kind == "s3 to local" else in_s3
        done = target.back_up(spark, collector, mark)
        assert target.copies(mark) == contents
        assert set(done.outcomes.values()) == {"copied"}
        expected = {
            "s3 to s3": {"md5 by stores"},
            "s3 to local": {"md5 by reading"},
            "local to s3": {"md5 by reading", "sha256 by reading"},
        }
        assert done.proofs == expected[kind]


def test_failures_are_kept_listed_and_mended(
    spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path, place: Backups
) -> None:
    with Lake(tmp_path / "lake-in-s3", store_in_s3.location) as lake:
        repository = lake.repository()
        contents = strays(repository, KEYS[:3])
        collector = Collector(spark, repository)
        mark = collector.mark_objects(*contents)
        refused = store_in_s3.key(repository, "data/s/one")
        damaged = store_in_s3.key(repository, "data/s/two")
        copied: list[Request] = []

        def spoil(request: Request) -> Answer | None:
            if request.operation == "GetObject" and request.keys == (refused,):
                return error(403, "AccessDenied")
            if request.operation == "GetObject" and request.keys == (damaged,) and not copied:
                copied.append(request)
                return Answer(200, b"x" * len(contents["data/s/two"]))  # of the right size
            return None

        store_in_s3.server.faults.append(spoil)
        done = place.back_up(spark, collector, mark)
        assert done.outcomes == {"data/s/one": "failed", "data/s/two": "failed", "data/t/id,signature": "copied"}
        assert "AccessDenied" in done.rows["data/s/one"]["error"]
        assert done.rows["data/s/two"]["error"] == "the copy differs from the original"
        assert done.result.backup is None
        with pytest.raises(BackupIncompleteError, match=r"2 of 3 objects of mark .* could not be backed up"):
            done.result.raise_if_incomplete()
        with pytest.raises(BackupError, match="no complete backup"):
            place.manifest_of(mark)
        (listed,) = list_backups(place.store)
        assert listed.problem == "not complete"

        store_in_s3.server.faults.clear()
        before = store_in_s3.server.count("GetObject")
        assert set(place.back_up(spark, collector, mark).outcomes.values()) == {"copied"}
        assert place.copies(mark) == contents
        reads = [r.keys[0] for r in store_in_s3.server.requests if r.operation == "GetObject"][before:]
        third = store_in_s3.key(repository, "data/t/id,signature")
        assert third not in reads, "what was copied and proved is not read again"
        assert place.manifest_of(mark).objects == 3


def test_a_store_that_is_down_ends_the_backup(
    spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path, place: Backups
) -> None:
    """A million objects are not asked for one by one, each until the retries end."""
    with Lake(tmp_path / "lake-in-s3", store_in_s3.location) as lake:
        repository = lake.repository()
        collector = Collector(spark, repository)
        mark = collector.mark_objects(*strays(repository, KEYS[:2]))

        def down(request: Request) -> Answer | None:
            return error(503, "ServiceUnavailable") if any("/data/" in key for key in request.keys) else None

        store_in_s3.server.faults.append(down)
        with pytest.raises(StoreUnavailableError):
            place.back_up(spark, collector, mark)
        store_in_s3.server.faults.clear()
        assert set(place.back_up(spark, collector, mark).outcomes.values()) == {"copied"}


def test_records_that_a_listing_leaves_out_make_no_backup(
    spark: SparkSession, repository: LakeRepository, store_in_s3: StoreInS3
) -> None:
    """The first listing is that of the plan, and the second one that of the outcomes."""
    collector, place = Collector(spark, repository), Backups(StoreLocation("s3://bucket/backups"))
    mark = collector.mark_objects(*strays(repository, KEYS[:2]))
    listings: list[Request] = []

    def forget(request: Request) -> Answer | None:
        if request.operation != "ListObjectsV2" or "/records/" not in request.query["prefix"]:
            return None
        listings.append(request)
        return Answer(body=LevelledS3().page({"prefix": "nothing"}).encode()) if len(listings) == 2 else None

    store_in_s3.server.faults.append(forget)
    with pytest.raises(BackupIncompleteError, match="account for 0 of 2"):
        place.back_up(spark, collector, mark)
    with pytest.raises(BackupError, match="no complete backup"):
        place.manifest_of(mark)
    assert set(place.back_up(spark, collector, mark).outcomes.values()) == {"copied"}
    assert place.manifest_of(mark).objects == 2


@pytest.mark.of_ci
def test_what_a_killed_backup_left_is_compared_and_not_copied_again(
    spark: SparkSession, repository: LakeRepository, place: Backups, tmp_path: Path, spark_config: dict[str, str]
) -> None:
    contents = {f"data/s{number % 4}/{number:04}": b"x" * 100 for number in range(1500)}
    for key, content in contents.items():
        repository.put_stray(key, content)
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*contents)
    task = {
        "store": repository.location.url,
        "repository": repository.name,
        "namespace": repository.namespace,
        "mark_id": mark.mark_id,
        "place": place.location.url,
        "work_url": f"file://{tmp_path}/work-of-the-other",
        "run_key": collector.run_key,
        "spark": spark_config,
        "server": repository.lake.credentials.model_dump(),
    }
    (tmp_path / "task.json").write_text(json.dumps(task))
    command = [sys.executable, "-m", "lakefs_gc_tests.support.backup_process", str(tmp_path / "task.json")]
    folder = Path(place.location.url.removeprefix("file://")) / "lake" / mark.mark_id
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while not any((folder / "records").glob("*.parquet")):
            assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        kill_session(process)
    assert process.returncode == -signal.SIGKILL
    before = {file: file.stat().st_ino for file in (folder / "objects").rglob("*") if file.is_file()}
    done = {f for f in before if not f.name.endswith(".tmp")}
    assert 0 < len(done) < len(contents), "killed in the middle"
    assert not (folder / "backup.json").exists()
    with pytest.raises(BackupError, match="no complete backup"):
        require_backup(place.settings(collector, required_before_sweep=True), mark, collector.server.endpoint_url)

    # As if it had been killed between the copies and their record: the worst that can be.
    for record in (folder / "records").iterdir():
        record.unlink()
    assert set(place.back_up(spark, collector, mark).outcomes.values()) == {"copied"}
    assert place.copies(mark) == contents
    assert {file: file.stat().st_ino for file in done} == {file: before[file] for file in done}, "not copied again"
    assert place.manifest_of(mark).objects == len(contents)


# -- the policy


def test_a_policy_can_require_a_backup(spark: SparkSession, repository: LakeRepository, place: Backups) -> None:
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*strays(repository))
    require_backup(collector.settings, mark, collector.server.endpoint_url)
    required = place.settings(collector, required_before_sweep=True)
    with pytest.raises(BackupError, match="no complete backup") as caught:
        require_backup(required, mark, collector.server.endpoint_url)
    assert caught.value.exit_code == 3
    assert f"lakefs-gc backup lake --mark {mark.mark_id}" in caught.value.remedy
    place.back_up(spark, collector, mark)
    require_backup(required, mark, collector.server.endpoint_url)

    with pytest.raises(BackupError, match="but this is http://staging: the other server may remove it"):
        require_backup(required, mark, "http://staging")

    changed = replace(mark, candidates=mark.candidates - 1)
    with pytest.raises(BackupError, match="but the mark has"):
        require_backup(required, changed.sealed(), collector.server.endpoint_url)
    paths = BackupPaths("lake", mark.mark_id)
    manifest = place.store.read(paths.manifest)
    place.store.put(paths.manifest, manifest.replace(b'"copied": 5', b'"copied": 4'))
    with pytest.raises(BackupError, match="was changed after it was written"):
        require_backup(required, mark, collector.server.endpoint_url)
    place.store.put(paths.manifest, b"{}")
    with pytest.raises(CorruptFileError):
        require_backup(required, mark, collector.server.endpoint_url)


def test_a_mark_that_was_changed_is_not_backed_up(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*strays(repository))
    with pytest.raises(MarkError):
        place.back_up(spark, collector, replace(mark, candidates=4))
    part = mark.parts[0].key
    repository.store.put(part, repository.store.read(part) + b"x")
    with pytest.raises(LakeFSGCError, match="was changed"):
        place.back_up(spark, collector, mark)
    assert place.copies(mark) == {}


# -- contents


def test_what_proves_that_contents_are_the_same(s3_namespace: StoreLocation, tmp_path: Path) -> None:
    s3, folder = open_store(s3_namespace), open_store(StoreLocation(tmp_path.as_uri()))
    for store in (s3, folder):
        store.put("a", b"abc")
        store.put("same", b"abc")
        store.put("other", b"abd")
        store.put("longer", b"abcd")
    cases = ((s3, s3, "md5 by stores"), (s3, folder, "md5 by reading"), (folder, folder, "sha256 by reading"))
    for left, right, expected in cases:
        proof, here, there = same_content(left, "a", right, "same")
        assert str(proof) == expected
        assert here is not None
        assert here == there or left is not right
        for different in ("other", "longer", "none"):
            assert same_content(left, "a", right, different)[0] is None


def test_contents_that_were_changed_are_refused(tmp_path: Path) -> None:
    """However well they parse: a restore would bring back something else."""
    store = open_store(StoreLocation(tmp_path.as_uri()))

    def write(size: int) -> bytes:
        row = dict.fromkeys(RECORD.names, "") | {"address": "data/x/y", "size": size}
        content = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist([row], schema=RECORD), content)
        store.put("part", content.getvalue().to_pybytes())
        return store.read("part")

    part = MarkPart("part", 1, 7, hashlib.sha256(write(7)).hexdigest())
    assert read_contents(store, part).column("size").to_pylist() == [7]
    write(8)
    with pytest.raises(CorruptFileError, match="changed"):
        read_contents(store, part)
