"""What killed copies left of an object is no proof of its erasure: temporary files, and parts of uploads."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from lakefs_gc.config import BackupSettings
from lakefs_gc.engine.explain.copies.unfinished import find_of_unknown_paths, find_unfinished, has_parts
from lakefs_gc.engine.explain.erasure import Verdict
from lakefs_gc.engine.explain.sources import open_sources
from lakefs_gc.engine.records.backups.manifest import BackupPaths, BackupStart
from lakefs_gc.engine.records.backups.marker import write_marker
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.errors import AccessDeniedError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.base import UnfinishedWrite
from lakefs_gc.storage.gcs.store import GCSStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.s3.store import S3Store
from lakefs_gc.units import EPOCH
from lakefs_gc_tests.support.faulty_s3 import Answer, FaultyS3, Request, error
from lakefs_gc_tests.support.killed_copy import leave_unfinished
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.proving import prover

PATH = "people/anna.csv"
MARK = "g6pq3k8v9s5c72oa1l0g"


def deleted_object(repository: LakeRepository) -> str:
    """The address of an object that was at ``PATH``, and is neither in the store nor in a mark."""
    repository.put("live")
    key = repository.put(PATH, "Anna")
    repository.commit()
    repository.delete(PATH)
    repository.commit()
    repository.store.delete_many([key])
    return key


def test_what_a_killed_restore_left_in_the_namespace(small: LakeRepository) -> None:
    """The folder of the object tells that it may be of it. One in another folder is of another object."""
    prove, key = prover(small, small.lake.settings), deleted_object(small)
    leave_unfinished(small.store, "data/elsewhere/x")
    assert prove(PATH, no_backups=True).verdict is Verdict.ERASED
    leave_unfinished(small.store, key)
    proof = prove(PATH, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    [unread] = proof.not_looked_at
    assert unread.startswith(f"{small.location.folder_url}{key.rpartition('/')[0]}/.lakefs-gc-")
    assert "(50,331,648 B, last changed on" in unread
    subprocess.run(unread.rpartition("remove it: ")[2], shell=True, check=True)
    assert prove(PATH, no_backups=True).verdict is Verdict.ERASED


def test_what_a_killed_backup_left_in_a_folder(small: LakeRepository, tmp_path: Path) -> None:
    """The backup was removed, and no mark names it: its folder is there as long as the file is."""
    prove, key = prover(small, small.lake.settings), deleted_object(small)
    (tmp_path / "backups").mkdir()
    backup = BackupSettings(url=(tmp_path / "backups").as_uri())
    store = open_store(StoreLocation(backup.url))
    write_marker(store)
    leave_unfinished(store, BackupPaths("lake", MARK).objects + key)
    for changes in ({}, {"no_backups": True}):
        proof = prove(PATH, backup=backup, **changes)
        assert proof.verdict is Verdict.UNKNOWN
        assert f"{backup.url}/lake/{MARK}/objects/data/" in proof.not_looked_at[0]
    store.discard(list(store.unfinished_below()))
    assert prove(PATH, backup=backup).verdict is Verdict.ERASED


def test_what_a_killed_backup_left_in_s3(
    small: LakeRepository, s3_namespace: StoreLocation, s3_server: SeaweedFS
) -> None:
    """An upload has the key of its object, so it is certain. Uploads of other objects are none of this one."""
    prove, key, backup = prover(small, small.lake.settings), deleted_object(small), BackupSettings(url=s3_namespace.url)
    store = open_store(s3_namespace)
    other = BackupPaths("other", MARK)
    namespace = small.lake.repository("other").namespace
    store.put(other.began, BackupStart(MARK, namespace, "sha256:0", EPOCH).to_json())
    bucket, _, root = s3_namespace.folder_url.removeprefix("s3://").partition("/")
    for others in (BackupPaths("lake", MARK).objects + key + "2", other.objects + key):
        s3_server.client().create_multipart_upload(Bucket=bucket, Key=root + others)
    assert prove(PATH, backup=backup).verdict is Verdict.ERASED

    copy = BackupPaths("lake", MARK).objects + key
    for there in (
        [],
        [BackupPaths("lake", MARK).manifest],
    ):  # a backup that a listing shows, and one that nothing shows
        for each in there:
            store.put(each, BackupStart(MARK, small.location.url, "sha256:0", EPOCH).to_json())
        leave_unfinished(store, copy)
        proof = prove(PATH, backup=backup)
        assert proof.verdict is Verdict.REMAINS
        [remains] = proof.objects[0].remains
        assert remains.startswith(f"upload of {s3_namespace.folder_url}{copy} that began on ")
        assert f"--key {root}{copy} --upload-id" in remains
        store.discard(store.unfinished_of([copy])[copy])
        assert prove(PATH, backup=backup).verdict is Verdict.ERASED


def test_uploads_that_cannot_be_listed_are_unknown(small: LakeRepository, plain_s3: FaultyS3) -> None:
    prove = prover(small, small.lake.settings)
    deleted_object(small)
    denied = True

    def answer(request: Request) -> Answer | None:
        if "versioning" in request.query:
            return Answer(body=b"<VersioningConfiguration/>")
        return error(403, "AccessDenied") if denied and "uploads" in request.query else None

    plain_s3.faults = [answer]
    backup = BackupSettings(url="s3://backups/b")
    proof = prove(PATH, backup=backup)
    assert proof.verdict is Verdict.UNKNOWN
    [unread] = proof.not_looked_at
    assert unread.startswith("copies in s3://backups/b that did not end: ")
    assert "s3:ListBucketMultipartUploads" in unread
    store = open_store(StoreLocation(backup.url))
    assert "s3:ListBucketMultipartUploads" in find_unfinished(store, {"data/s/a": "data/s/a"}).unread[0]
    denied = False
    assert prove(PATH, backup=backup).verdict is Verdict.ERASED


def test_parts_of_an_upload_that_lakefs_left_in_google(gcs_namespace: StoreLocation, tmp_path: Path) -> None:
    """lakeFS composes an object from its parts, and only logs that it could not delete them. They are objects."""
    with Lake(tmp_path / "lake", gcs_namespace) as lake:
        repository = lake.repository()
        prove, key = prover(repository, lake.settings), deleted_object(repository)
        store = repository.store
        for other in (f"{key}2.part_00001", f"{key}.multipart"):  # of another object, and without content
            store.put(other, b"1")
        assert prove(PATH, no_backups=True).verdict is Verdict.ERASED

        parts = [f"{key}.part_00001_1", f"{key}.part_00033"]
        for part in parts:
            store.put(part, b"Anna")
        proof = prove(PATH, no_backups=True)
        assert proof.verdict is Verdict.REMAINS
        url = f"{store.location.folder_url}{parts[0]}"
        assert proof.objects[0].remains == (f"part of an upload, which may have its content: {url} and 1 more",)

        # A sweep deletes such a part as it deletes other garbage, and its backup has it below its own key.
        (tmp_path / "backups").mkdir()
        backup = BackupSettings(url=(tmp_path / "backups").as_uri())
        backups = open_store(StoreLocation(backup.url))
        write_marker(backups)
        copy = BackupPaths("lake", MARK).objects + parts[0]
        store.copy_to(parts[0], backups, copy)
        store.delete_many(parts)
        proof = prove(PATH, backup=backup)
        assert proof.verdict is Verdict.REMAINS
        [remains] = proof.objects[0].remains
        assert remains.endswith(f": {backup.url}/{copy}")
        backups.delete_many([copy])
        assert prove(PATH, backup=backup).verdict is Verdict.ERASED


def test_parts_that_cannot_be_listed_are_unknown(
    gcs_namespace: StoreLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Lake(tmp_path / "lake", gcs_namespace) as lake:
        repository = lake.repository()
        prove, key = prover(repository, lake.settings), deleted_object(repository)
        listed = GCSStore.list

        def refuse(store: GCSStore, prefix: str = "", *, start_after: str = "") -> Iterator[pa.RecordBatch]:
            if ".part_" in prefix:
                raise AccessDeniedError("access denied for storage.objects.list")
            return listed(store, prefix, start_after=start_after)

        monkeypatch.setattr(GCSStore, "list", refuse)
        proof = prove(PATH, no_backups=True)
        assert proof.verdict is Verdict.UNKNOWN
        [unread] = proof.not_looked_at
        assert unread.startswith(f"parts of uploads of {repository.store.location.folder_url}{key}: access denied")


@pytest.mark.parametrize("url", ["gs://bucket/lake/", "GS://bucket/lake/", "s3://bucket/lake/", "local://lake/"])
def test_only_in_google_parts_are_named_after_their_object(url: str) -> None:
    assert has_parts("file:///mounted/", url) is url.lower().startswith("gs://")


@pytest.fixture
def in_s3(s3_namespace: StoreLocation, tmp_path: Path) -> Iterator[LakeRepository]:
    with Lake(tmp_path / "lake", s3_namespace) as lake:
        yield lake.repository()


def begin_upload(repository: LakeRepository, server: SeaweedFS, key: str) -> None:
    """Begin an upload in parts, as lakeFS does for a client of its S3 gateway, and send one part."""
    bucket, _, name = f"{repository.store.location.folder_url}{key}".removeprefix("s3://").partition("/")
    client = server.client()
    upload = client.create_multipart_upload(Bucket=bucket, Key=name)["UploadId"]
    client.upload_part(Bucket=bucket, Key=name, UploadId=upload, PartNumber=1, Body=b"Anna again! ")


def test_an_upload_that_did_not_end_may_be_to_any_path(in_s3: LakeRepository, s3_server: SeaweedFS) -> None:
    """lakeFS names its object when it begins. Uploads of what is no object of lakeFS are none to a path."""
    prove = prover(in_s3, in_s3.lake.settings)
    deleted_object(in_s3)
    begin_upload(in_s3, s3_server, "_lakefs/retention/gc/x")
    assert prove(PATH, no_backups=True).verdict is Verdict.ERASED
    for number in range(2):
        begin_upload(in_s3, s3_server, f"data/g6pq3k8v9s5c72oa1l0g/d9k2n{number}")
    proof = prove(PATH, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    [unread] = proof.not_looked_at
    assert unread.startswith(f"2 uploads in {in_s3.store.location.url} that did not end: the oldest began on ")
    assert "aws s3api abort-multipart-upload --bucket" in unread
    in_s3.store.discard(list(in_s3.store.unfinished_below("data/")))
    assert prove(PATH, no_backups=True).verdict is Verdict.ERASED


def test_what_is_uploaded_after_an_erasure_is_not_what_was_erased(in_s3: LakeRepository, s3_server: SeaweedFS) -> None:
    """A busy repository always has uploads in progress. After a day, one was probably left."""
    live = in_s3.put("live")
    in_s3.commit()
    begin_upload(in_s3, s3_server, "data/g6pq3k8v9s5c72oa1l0g/d9k2n")
    begin_upload(in_s3, s3_server, live)  # a commit names its path
    [began_at, _] = (write.since for write in in_s3.store.unfinished_below("data/"))
    settings = in_s3.lake.settings
    server = LakeFSClient(in_s3.lake.credentials)
    sources = open_sources("lake", server, settings, Workspace(settings.resolved_work_url()))
    minute = timedelta(minutes=1)
    [unread] = find_of_unknown_paths(sources, (), None)
    assert unread.startswith("an upload in ")
    assert find_of_unknown_paths(sources, (), began_at + minute) == [unread]
    assert find_of_unknown_paths(sources, (), began_at - minute) == []
    assert find_of_unknown_paths(sources, ["data/g6pq3k8v9s5c72oa1l0g/d9k2n"], None) == []
    sources = replace(sources, now=began_at + timedelta(days=1) + minute)
    assert find_of_unknown_paths(sources, (), began_at - minute) == [unread]


def test_uploads_to_any_path_that_cannot_be_listed_are_unknown(
    in_s3: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    prove = prover(in_s3, in_s3.lake.settings)
    deleted_object(in_s3)

    def refuse(store: S3Store, prefix: str = "") -> Iterator[UnfinishedWrite]:
        raise AccessDeniedError("access denied for s3:ListBucketMultipartUploads")

    monkeypatch.setattr(S3Store, "unfinished_below", refuse)
    proof = prove(PATH, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    [unread] = proof.not_looked_at
    assert "to any path: access denied" in unread
