"""A proof is about the store of lakeFS. What another store shows, and what was not looked at there, proves nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.collect.references.store_of_server import WITNESSES
from lakefs_gc.engine.explain.erasure import Verdict
from lakefs_gc.engine.workspace.range_cache import METADATA_FOLDER
from lakefs_gc.errors import AccessDeniedError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.faulty_store import LevelledS3, StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository, keys_below
from lakefs_gc_tests.support.lakefs_proxy import Answered, LakeFSProxy
from lakefs_gc_tests.support.proving import prover

PATH = "people/anna.csv"


def copy_of(store: ObjectStore, there: StoreLocation) -> None:
    """Copy what a store shows now to another one, as a mount of a bucket shows it, or as a mirror has it."""
    copied = open_store(there)
    for batch in store.list():
        for key, content in store.read_many(batch["address"].to_pylist()):
            copied.put(key, content)


def of_deleted_branch(repository: LakeRepository) -> tuple[str, str]:
    """The address of an object at ``PATH``, which only metadata of a deleted branch has, and its commit."""
    repository.put("live")
    repository.commit()
    repository.branch("dev")
    key = repository.put(PATH, "Anna", branch="dev")
    commit = repository.commit(branch="dev")
    repository.delete_branch("dev")
    return key, commit


@pytest.mark.parametrize("mounted_as", ["a folder", "a mirror"])
def test_a_bucket_behind_a_mount_is_not_looked_at(s3_namespace: StoreLocation, tmp_path: Path, mounted_as: str) -> None:
    """A folder may be a mount of the bucket itself: then lakeFS reads what is written to it."""
    there = StoreLocation((tmp_path / "mount").as_uri() if mounted_as == "a folder" else f"{s3_namespace.url}-mirror")
    with Lake(tmp_path / "lake", s3_namespace) as lake:
        repository = lake.repository()
        key, _ = of_deleted_branch(repository)
        repository.store.delete_many([key])
        prove = prover(repository, lake.settings)
        copy_of(repository.store, there)
        direct = prove(PATH, no_backups=True)
        assert (direct.verdict, direct.not_looked_at) == (Verdict.ERASED, ())
        same = prove(PATH, no_backups=True, mounts={s3_namespace.folder_url: s3_namespace.folder_url})
        assert not [each for each in same.not_looked_at if "records of sweeps" in each]
        proof = prove(PATH, no_backups=True, mounts={repository.namespace: there.folder_url})
        assert proof.verdict is Verdict.UNKNOWN
        unread = proof.not_looked_at[-1]
        assert unread.startswith("versions, uploads that did not end, and records of sweeps in ")
        assert unread.endswith(
            f"`mounts` leads from {repository.namespace} to {there.folder_url}. Ask again without this mount"
        )


def test_an_endpoint_of_a_replica(
    in_s3: LakeRepository, store_in_s3: StoreInS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, commit = of_deleted_branch(in_s3)
    prove = prover(in_s3, in_s3.lake.settings)
    with LevelledS3() as replica:
        replica.objects.update(store_in_s3.server.objects)
        replica.written_at.update(store_in_s3.server.written_at)
        del replica.objects[store_in_s3.key(in_s3, key)]
        before = set(replica.objects)
        with monkeypatch.context() as patched:
            patched.setenv("AWS_ENDPOINT_URL_S3", replica.endpoint)
            proof = prove(PATH, no_backups=True)
        assert set(replica.objects) == before
    assert proof.verdict is Verdict.UNKNOWN
    [unread] = proof.not_looked_at
    assert unread.startswith(f"the store of lakeFS at {in_s3.lake.credentials.endpoint_url}: s3://")
    assert "is another store, and lakeFS did not read the file that was written to it" in unread
    in_s3.branch("again", commit)
    assert in_s3.read(PATH, "again") == b"Anna"


@pytest.mark.long(15)
def test_a_mirror_with_an_old_record(spark: SparkSession, small: LakeRepository, tmp_path: Path) -> None:
    """The object came back after the last synchronization."""
    key, commit = of_deleted_branch(small)
    collector = Collector(spark, small)
    collector.sweep(collector.mark_objects(key), live=[])
    prove, mirror = prover(small, small.lake.settings), tmp_path / "mirror"
    shutil.copytree(small.folder.parent, mirror)
    assert prove(PATH, no_backups=True).verdict is Verdict.ERASED
    small.store.put(key, b"Anna")
    proof = prove(PATH, no_backups=True, mounts={"local://": f"{mirror.as_uri()}/"})
    assert "the store confirmed the delete" in proof.objects[0].deleted_by[0]
    assert proof.verdict is Verdict.UNKNOWN
    assert ["is another store" in each for each in proof.not_looked_at] == [True]
    small.branch("again", commit)
    assert small.read(PATH, "again") == b"Anna"


def test_credentials_that_may_only_read(small: LakeRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    key = small.put(PATH, "Anna")
    small.put("older")
    small.commit()
    small.delete(PATH)
    small.commit()
    small.store.delete_many([key])
    put = LocalStore.put

    def denied(store: LocalStore, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        if WITNESSES in key:
            raise AccessDeniedError("access denied for s3:PutObject")
        return put(store, key, data, if_absent=if_absent)

    monkeypatch.setattr(LocalStore, "put", denied)
    proof = prover(small, small.lake.settings)(PATH, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    unread = proof.not_looked_at[-1]
    assert f"whether {small.store.location.folder_url} is this store is unknown: access denied" in unread
    assert unread.endswith("Permit that, and ask again")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda real: Answered(404, b'{"message":"invalid API endpoint"}'), "is unknown"),
        (lambda real: Answered(503, b'{"message":"try again"}'), "is unknown"),
        (lambda real: Answered(200, b"0" * len(real.body), real.headers), "is another store"),
        (lambda real: real, ""),
    ],
)
def test_a_server_that_does_not_show_its_store(
    lake: Lake, repository: LakeRepository, proxy: LakeFSProxy, answer: Callable[[Answered], Answered], text: str
) -> None:
    """An older version does not have the call. The reason is said, and nothing is left in the store."""
    repository.put("older")
    key = repository.put(PATH, "Anna")
    repository.commit()
    repository.delete(PATH)
    repository.commit()
    repository.store.delete_many([key])
    proxy.spoil.append(lambda asked, real: answer(real()) if "/metadata/object/range/" in asked.path else None)
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}), sleep=lambda seconds: None)
    proof = prover(repository, lake.settings, server)(PATH, no_backups=True)
    of_store = [each for each in proof.not_looked_at if each.startswith("the store of lakeFS at")]
    assert [text in each for each in of_store] == [True] * bool(text)
    assert any("both have one store" in each for each in proof.looked_at) == (not text)
    assert list(keys_below(repository.store, METADATA_FOLDER + WITNESSES)) == []
