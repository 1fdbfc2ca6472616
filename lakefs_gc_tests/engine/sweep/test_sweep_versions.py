"""A sweep of a bucket that keeps versions: they stay unless asked for, and what a lock holds is said to be locked."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.cli.doctor import _space_after_deletes
from lakefs_gc.config import Settings, SweepSettings
from lakefs_gc.engine.collect.listing.existence import existing_objects
from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.backups.location import require_backup
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.spark.witness import Witness
from lakefs_gc.engine.sweep import deletion
from lakefs_gc.engine.sweep.preconditions import refuse_unlisted_versions
from lakefs_gc.engine.sweep.store_clock import Deadline
from lakefs_gc.engine.undo.backup_contents import not_backed_up
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import ConfigurationError, StorageError
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.base import ObjectInfo, ObjectStore
from lakefs_gc.storage.freed_space import freed_space
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.s3.store import S3Store
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector, counts
from lakefs_gc_tests.support.lake import Lake, LakeRepository, keys_below
from lakefs_gc_tests.support.sample_mark import MARK


@pytest.fixture
def locking(s3_server: SeaweedFS, s3_namespace: StoreLocation, tmp_path: Path) -> Iterator[LakeRepository]:
    """A repository in a bucket with versions and object lock."""
    bucket = f"sweeps-{uuid.uuid4().hex[:12]}"
    s3_server.client().create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    with Lake(tmp_path / "lake-in-s3", StoreLocation(f"s3://{bucket}/lakes")) as lake:
        yield lake.repository()


def versions(server: SeaweedFS, repository: LakeRepository) -> dict[str, int]:
    """Key to how many versions and delete markers of it there are, of the data."""
    bucket, _, root = repository.location.folder_url.removeprefix("s3://").partition("/")
    page = server.client().list_object_versions(Bucket=bucket, Prefix=root + "data/")
    found: dict[str, int] = {}
    for entry in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
        key = entry["Key"].removeprefix(root)
        found[key] = found.get(key, 0) + 1
    return found


def test_versions_and_locks(spark: SparkSession, locking: LakeRepository, s3_server: SeaweedFS) -> None:
    keys = [f"data/s/{name}" for name in ("gone", "twice", "locked", "free")]
    for key in [*keys, "data/s/twice"]:
        locking.put_stray(key, b"123")
    bucket, _, root = locking.location.folder_url.removeprefix("s3://").partition("/")
    client = s3_server.client()
    until = datetime.now(UTC) + timedelta(days=1)
    client.put_object_retention(
        Bucket=bucket, Key=root + "data/s/locked", Retention={"Mode": "GOVERNANCE", "RetainUntilDate": until}
    )
    collector = Collector(spark, locking)
    mark = collector.mark_objects(*keys)
    locking.store.delete_many(["data/s/gone"])  # its version is still there, behind a delete marker

    assert freed_space(locking.store).state == "not freed"
    result = collector.sweep(mark, live=[], objects_per_request=2, delete_versions=True, retries=0)
    assert counts(result) == {"deleted": 2, "already_gone": 1, "locked": 1}
    assert versions(s3_server, locking) == {"data/s/locked": 1}
    assert collector.errors["data/s/locked"].startswith(f"locked until {until:%Y-%m-%d}")
    result.raise_if_incomplete()  # the lock was meant

    # When the lock has ended, the same sweep takes it.
    locked = client.list_object_versions(Bucket=bucket, Prefix=root + "data/s/locked")["Versions"][0]["VersionId"]
    client.delete_object(Bucket=bucket, Key=root + "data/s/locked", VersionId=locked, BypassGovernanceRetention=True)
    locking.put_stray("data/s/locked", b"123")
    again = collector.mark_objects("data/s/locked")
    assert counts(collector.sweep(again, live=[], delete_versions=True)) == {"deleted": 1}
    assert versions(s3_server, locking) == {}


def test_what_came_back_after_the_look_keeps_every_version(
    locking: LakeRepository, s3_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore or an upload, while the intent is written and versions are listed."""
    keys = [f"data/s/{name}" for name in ("gone", "there", "none")]
    store = locking.store
    for key in keys:
        store.put(key, b"old")
    there = store.stat_many(keys)
    store.delete_many([keys[0], keys[2]])

    def slowly(asked_store: ObjectStore, addresses: Sequence[str], *, concurrency: int) -> dict[str, ObjectInfo]:
        found = existing_objects(asked_store, addresses, concurrency=concurrency)
        for key in keys[:2]:
            store.put(key, b"brought back")
        return found

    monkeypatch.setattr(deletion, "existing_objects", slowly)
    columns = {
        "address": keys,
        "size": [3] * 3,
        "last_modified": [there[key].last_modified for key in keys],
        "verdict": [deletion.DELETE] * 3,
        "begun": [False] * 3,
    }
    plan = pa.RecordBatch.from_pydict(columns)
    store.put("_lakefs/mark", b"")
    task = deletion.DeleteTask(
        store=locking.location,
        mark_file="_lakefs/mark",
        ledger_folder="_lakefs/ledger/",
        sequence="1",
        objects_per_request=10,
        cutoff=datetime.now(UTC),
        delete_versions=True,
        deadline=Deadline(time.time(), time.time() + 3600),
        pacing=deletion.Pacing(1, 0.0),
        restores_folder="restores/",
        witness=Witness(locking.location, "_lakefs/mark", b""),
    )
    work = deletion.delete_objects(task)
    assert [batch["done"].to_pylist() for batch in work(iter([plan]))] == [[3]]
    assert versions(s3_server, locking) == {keys[0]: 3, keys[1]: 2}
    assert {store.read(key) for key in keys[:2]} == {b"brought back"}
    outcomes = {
        row["address"]: row["outcome"]
        for key in keys_below(store, "_lakefs/ledger/")
        if key.endswith("-outcome.parquet")
        for row in ledger.read_records(key, store.read(key)).to_pylist()
    }
    assert outcomes == {keys[0]: "resurrected", keys[1]: "resurrected", keys[2]: "already_gone"}


def test_versions_that_the_backup_does_not_hold_stay_where_one_is_demanded(
    spark: SparkSession, locking: LakeRepository, s3_server: SeaweedFS, tmp_path: Path
) -> None:
    (tmp_path / "backups").mkdir()
    place = Backups(StoreLocation((tmp_path / "backups").as_uri()))
    keys = [f"data/s/{name}" for name in ("gone", "undeleted", "held")]
    for key in keys:
        locking.put_stray(key, b"123")
    collector = Collector(spark, locking)
    mark = collector.mark_objects(*keys)
    locking.store.delete_many(keys[:2])
    assert place.back_up(spark, collector, mark).outcomes == {
        keys[0]: "already_gone",
        keys[1]: "already_gone",
        keys[2]: "copied",
    }
    bucket, _, root = locking.location.folder_url.removeprefix("s3://").partition("/")
    client = s3_server.client()

    def undelete(key: str) -> None:
        (marker,) = client.list_object_versions(Bucket=bucket, Prefix=root + key)["DeleteMarkers"]
        client.delete_object(Bucket=bucket, Key=root + key, VersionId=marker["VersionId"])

    undelete(keys[1])
    settings = place.settings(collector, required_before_sweep=True)
    context = collector.context_with(backup=settings.backup)
    missing = not_backed_up(context, require_backup(settings, mark, collector.server.endpoint_url))
    result = collector.sweep(mark, live=[], delete_versions=True, not_backed_up=missing)
    assert counts(result) == {"deleted": 1, "not_backed_up": 2}
    assert "no copy" in collector.errors[keys[0]]
    assert versions(s3_server, locking) == {keys[0]: 2, keys[1]: 1}
    assert b'"not_backed_up": {' in locking.store.read(MarkPaths.of(mark.mark_id).sweep_summary)

    # Once the backup has them, the same sweep takes them.
    undelete(keys[0])
    place.back_up(spark, collector, mark)
    assert not_backed_up(context, require_backup(settings, mark, collector.server.endpoint_url)) is None
    assert counts(collector.sweep(mark, live=[], delete_versions=True)) == {"deleted": 3}
    assert versions(s3_server, locking) == {}


def test_a_list_of_versions_without_those_of_the_mark_is_no_list(
    spark: SparkSession, locking: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that drops what it does not know may answer with an empty list: then nothing would be deleted."""
    locking.put_stray("data/s/a", b"123")
    mark = Collector(spark, locking).mark_objects("data/s/a")
    store = S3Store(locking.location)
    refuse_unlisted_versions(store, mark, utc_now())

    def empty(**request: str) -> dict[str, Any]:
        return {"Name": store.bucket, "IsTruncated": False, "Prefix": request["Prefix"]}

    monkeypatch.setattr(store._s3().client, "list_object_versions", empty)
    with pytest.raises(StorageError, match="no version of it is listed"):
        refuse_unlisted_versions(store, mark, utc_now())
    # A store that keeps none lists none.
    monkeypatch.setattr(store, "space_not_freed", lambda: "")
    refuse_unlisted_versions(store, mark, utc_now())


def test_a_folder_does_not_show_the_versions_of_a_bucket(tmp_path: Path) -> None:
    """A mount of the bucket as a folder. The sweep would record "deleted", and all versions would stay."""
    store = open_store(StoreLocation(tmp_path.as_uri()))
    settings = Settings(sweep=SweepSettings(delete_versions=True))
    for namespace in ("s3://bucket/lake/", "gs://bucket/lake/", "https://account.blob.core.windows.net/lake/"):
        mark = replace(MARK, namespace=namespace)
        with pytest.raises(ConfigurationError, match=r"`mounts` leads from .* a folder") as refused:
            refuse_unlisted_versions(store, mark, utc_now())
        assert "set sweep.delete_versions to false" in refused.value.remedy
        assert freed_space(store, namespace).state == "unknown"
        assert _space_after_deletes(store, settings, namespace).verdict == "fail"
        assert _space_after_deletes(store, Settings(), namespace).verdict == "warn"
    for namespace in ("local://lake/", "LOCAL://lake/"):
        refuse_unlisted_versions(store, replace(MARK, namespace=namespace), utc_now())
        assert freed_space(store, namespace).state == "freed at once"
        assert _space_after_deletes(store, settings, namespace).verdict == "ok"


def test_versions_stay_unless_asked_for(spark: SparkSession, locking: LakeRepository, s3_server: SeaweedFS) -> None:
    locking.put_stray("data/s/a", b"123")
    collector = Collector(spark, locking)
    mark = collector.mark_objects("data/s/a")
    assert "versioning: Enabled" in str(mark.run["deleted_bytes"])
    assert str(mark.run["deleted_bytes"]).startswith("not freed: ")
    assert counts(collector.sweep(mark, live=[])) == {"deleted": 1}
    assert versions(s3_server, locking) == {"data/s/a": 2}, "the version, and the delete marker before it"
