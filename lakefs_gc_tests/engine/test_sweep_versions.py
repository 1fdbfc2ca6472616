"""A sweep of a bucket that keeps versions: they stay unless asked for, and what a lock holds is said to be locked."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.deleted_bytes import deleted_bytes
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.base import StoreLocation
from lakefs_gc_tests.collector import Collector, Lake, LakeRepository, counts


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

    assert deleted_bytes(locking.store).fate == "stay"
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


def test_versions_stay_unless_asked_for(spark: SparkSession, locking: LakeRepository, s3_server: SeaweedFS) -> None:
    locking.put_stray("data/s/a", b"123")
    collector = Collector(spark, locking)
    mark = collector.mark_objects("data/s/a")
    assert "versioning: Enabled" in str(mark.run["deleted_bytes"])
    assert str(mark.run["deleted_bytes"]).startswith("stay: ")
    assert counts(collector.sweep(mark, live=[])) == {"deleted": 1}
    assert versions(s3_server, locking) == {"data/s/a": 2}, "the version, and the delete marker before it"
