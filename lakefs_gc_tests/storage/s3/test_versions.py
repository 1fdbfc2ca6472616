"""Buckets that keep what is deleted: versions for good, and locks."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc.errors import StorageError
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.base import Deletion, DeletionOutcome, ObjectStore, VersionedTarget
from lakefs_gc.storage.delete_window import NOT_TRIED, DeleteWindow
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc.storage.s3 import versions as s3_versions
from lakefs_gc.storage.s3.delete import Target
from lakefs_gc.storage.s3.store import S3Store
from lakefs_gc.storage.s3.versions import lock_of
from lakefs_gc_tests.support.faulty_s3 import FaultyS3, Request, deleted, error

NewBucket = Callable[..., S3Store]
MINIO = "Object is WORM protected and cannot be overwritten"
AWS = "Access Denied because object protected by object lock."
SAYS_LOCKED = (
    f"AccessDenied: {AWS}",
    f"InvalidRequest: {MINIO}",
    "AccessDenied: forbidden by object lock",  # Ceph
    f"s3://bucket/repo/a (b) at https://store: access denied for s3:DeleteObjectVersion (AccessDenied: {AWS})",
    f"s3://bucket/repo/a at https://store: s3:DeleteObject failed (InvalidRequest: {MINIO})",
)
"""What stores say of a lock, and how our errors show it."""
_ROLE = "AccessDenied: User: arn:aws:sts::1:assumed-role/retention-gc/x is not authorized to perform: s3:DeleteObject"
DENIED = (
    f"{_ROLE} on resource: arn:aws:s3:::bookworm/repo/a",
    f'{_ROLE} on resource: "arn:aws:s3:::b/legal-hold" with an explicit deny in a resource-based policy "object-lock"',
    f"s3://bookworm/legal-hold/object-lock at https://worm: access denied for s3:DeleteObject ({_ROLE})",
    f"s3://bucket/{AWS} at https://store: access denied for s3:DeleteObject (AccessDenied: Access Denied)",
    f"s3://bucket/(AccessDenied: {AWS}) at https://store: s3:DeleteObject failed (InvalidRequest: no)",
    "AccessDenied: not by the retention policy of this gateway",
)
"""What they say of a missing right, where things are called after what they are for."""


def credentials(server: FaultyS3) -> dict[str, str]:
    """The environment in which it is the store."""
    return {
        "AWS_ENDPOINT_URL_S3": server.endpoint,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1",
    }


@pytest.fixture
def new_bucket(s3_server: SeaweedFS, s3_namespace: StoreLocation) -> NewBucket:
    """Makes a bucket with versions, or with object lock, and opens a namespace in it."""

    def make(*, locks: bool = False) -> S3Store:
        bucket = f"versions-{uuid.uuid4().hex[:12]}"
        client = s3_server.client()
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=locks)
        if not locks:
            client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        return S3Store(StoreLocation(f"s3://{bucket}/repo"))

    return make


def versions(server: SeaweedFS, store: S3Store) -> list[str]:
    """Keys of all versions and delete markers, each as often as it is there."""
    page: dict[str, Any] = server.client().list_object_versions(Bucket=store.bucket)
    found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
    return sorted(entry["Key"].removeprefix(store.root) for entry in found)


def doomed(store: ObjectStore, *keys: str) -> list[VersionedTarget]:
    """These objects as they are now; a second for HEAD, which tells whole ones."""
    there = store.stat_many(keys)
    return [VersionedTarget(key, there.get(key), datetime.now(UTC) + timedelta(seconds=1)) for key in keys]


def purge(store: ObjectStore, seen: list[VersionedTarget], window: DeleteWindow | None = None) -> list[Deletion]:
    """Find the versions, and delete them."""
    return store.delete_versions(store.find_versions(seen), window)


def test_versions_go_for_good(new_bucket: NewBucket, s3_server: SeaweedFS) -> None:
    store = new_bucket()
    for key in ("data/s/a", "data/s/a", "data/s/ab", "data/s/b", "data/s/live"):
        store.put(key, b"x")
    assert [d.outcome for d in store.delete_many(["data/s/a"])] == [DeletionOutcome.DELETED]
    assert versions(s3_server, store).count("data/s/a") == 3, "two versions and a delete marker"

    keys = ("data/s/a", "data/s/b", "data/s/none")
    answer = purge(store, doomed(store, *keys))
    assert [(d.key, d.outcome, d.error) for d in answer] == [(key, DeletionOutcome.DELETED, "") for key in keys]
    assert versions(s3_server, store) == ["data/s/ab", "data/s/live"]


def test_more_versions_than_a_page_has(
    new_bucket: NewBucket, s3_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_bucket()
    for _ in range(7):
        store.put("data/s/a", b"x")
    client = store._s3().client
    listing, pages = client.list_object_versions, []

    def by_two(**parameters: Any) -> Any:
        pages.append(parameters)
        return listing(**parameters, MaxKeys=2)

    monkeypatch.setattr(client, "list_object_versions", by_two)
    assert purge(store, doomed(store, "data/s/a"))[0].outcome is DeletionOutcome.DELETED
    assert len(pages) >= 4
    assert versions(s3_server, store) == []


def test_no_version_goes_once_the_window_is_over(new_bucket: NewBucket, s3_server: SeaweedFS) -> None:
    store = new_bucket()
    keys = ["data/s/a", "data/s/b"]
    for key in keys * 2:
        store.put(key, b"content")
    seen = doomed(store, *keys)
    assert [(d.outcome, d.error) for d in purge(store, seen, DeleteWindow(0))] == [
        (DeletionOutcome.FAILED, NOT_TRIED)
    ] * 2
    assert versions(s3_server, store) == sorted(keys * 2)
    assert [d.outcome for d in purge(store, seen, DeleteWindow())] == [DeletionOutcome.DELETED] * 2
    assert versions(s3_server, store) == []


def test_what_was_written_since_stays_and_so_do_its_older_versions(new_bucket: NewBucket, s3_server: SeaweedFS) -> None:
    store = new_bucket()
    for key in ("data/s/gone", "data/s/there", "data/s/young", "data/s/hidden", "data/s/plain"):
        store.put(key, b"old")
    store.delete_many(["data/s/gone", "data/s/hidden", "data/s/plain"])
    seen = doomed(store, "data/s/gone", "data/s/there", "data/s/young", "data/s/hidden", "data/s/plain")
    # What came back may look old: an upload in parts has the time of its start.
    store.put("data/s/gone", b"old")
    store.put("data/s/there", b"longer")
    # And what is newer than the mark may be behind a delete marker.
    young, hidden = (replace(seen[place], newest=datetime.now(UTC) - timedelta(hours=1)) for place in (2, 3))
    before = versions(s3_server, store)
    answer = purge(store, [seen[0], seen[1], young, hidden, seen[4]])
    newer, deleted_too = DeletionOutcome.NEWER, DeletionOutcome.DELETED
    assert [d.outcome for d in answer] == [newer, newer, newer, newer, deleted_too]
    assert versions(s3_server, store) == [key for key in before if key != "data/s/plain"]


def test_what_is_written_after_the_listing_of_versions_stays(
    new_bucket: NewBucket, s3_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_bucket()
    store.put("data/s/a", b"old")
    store.delete_many(["data/s/a"])
    seen = doomed(store, "data/s/a")
    client = store._s3().client
    delete = client.delete_objects

    def late(**parameters: Any) -> Any:
        store.put("data/s/a", b"new")
        return delete(**parameters)

    monkeypatch.setattr(client, "delete_objects", late)
    assert purge(store, seen)[0].outcome is DeletionOutcome.DELETED
    assert versions(s3_server, store) == ["data/s/a"]
    assert store.read("data/s/a") == b"new"


def test_a_version_without_a_time_is_not_deleted(
    new_bucket: NewBucket, s3_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_bucket()
    store.put("data/s/a", b"x")
    client = store._s3().client
    listing = client.list_object_versions

    def without(**parameters: Any) -> Any:
        page = listing(**parameters)
        for entry in page["Versions"]:
            del entry["LastModified"]
        return page

    monkeypatch.setattr(client, "list_object_versions", without)
    with pytest.raises(StorageError, match="has no time for a version"):
        purge(store, doomed(store, "data/s/a"))
    assert versions(s3_server, store) == ["data/s/a"]


def test_what_a_lock_holds_is_an_outcome_of_its_own(new_bucket: NewBucket, s3_server: SeaweedFS) -> None:
    store, client = new_bucket(locks=True), s3_server.client()
    until = datetime.now(UTC) + timedelta(days=2)
    at = {"Bucket": store.bucket, "Body": b"x"}
    client.put_object(**at, Key=store.root + "retained", ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=until)
    client.put_object(**at, Key=store.root + "held", ObjectLockLegalHoldStatus="ON")
    store.put("retained", b"newer and free")
    store.put("free", b"x")
    retained, held, free = purge(store, doomed(store, "retained", "held", "free"))
    assert [d.outcome for d in (retained, held, free)] == [
        DeletionOutcome.LOCKED,
        DeletionOutcome.LOCKED,
        DeletionOutcome.DELETED,
    ]
    assert f"locked until {until:%Y-%m-%d}" in retained.error
    assert "COMPLIANCE" in retained.error
    assert "legal hold" in held.error
    assert versions(s3_server, store) == ["held", "retained"], "only what is locked is left"


def test_a_missing_right_is_no_lock(new_bucket: NewBucket) -> None:
    store = new_bucket(locks=True)
    store.put("free", b"x")
    s3, name = store._s3(), store.root + "free"
    assert lock_of(s3, Target(name), "AccessDenied: Access Denied.") == ""
    for error_of_lock in SAYS_LOCKED:
        assert lock_of(s3, Target(name), error_of_lock) == error_of_lock
    for denied in DENIED:
        assert lock_of(s3, Target(name), denied) == ""
    assert lock_of(s3, Target(name), "InternalError") == ""
    assert lock_of(s3, Target(store.root + "none"), "AccessDenied") == ""


def test_a_plain_delete_that_a_lock_refuses() -> None:
    for error_of_lock in SAYS_LOCKED:
        assert s3_versions.deletion("data/s/a", error_of_lock).outcome is DeletionOutcome.LOCKED
    for denied in DENIED:
        assert s3_versions.deletion("data/s/a", denied).outcome is DeletionOutcome.FAILED
    assert s3_versions.deletion("data/s/a", "").outcome is DeletionOutcome.DELETED


def test_a_denied_delete_is_no_lock_whatever_things_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the store, in a bulk delete and alone: bucket, keys and role are named after what they are for."""
    keys = ["data/s/legal-hold", "data/s/object protected by object lock", "data/s/\u0001-WORM"]
    with FaultyS3() as server:
        for name, value in credentials(server).items():
            monkeypatch.setenv(name, value)
        user = "User: arn:aws:sts::1:assumed-role/retention-gc/x is not authorized to perform: s3:DeleteObject on"

        def deny(request: Request) -> Any:
            if request.operation == "DeleteObjects":
                message = f"{user} resource: arn:aws:s3:::bookworm/legal-hold"
                return deleted(request.keys, dict.fromkeys(request.keys, ("AccessDenied", message)))
            if request.operation == "DeleteObject":
                return error(403, "AccessDenied", f"{user} resource: arn:aws:s3:::bookworm/WORM")
            return None

        server.faults.append(deny)
        denied = S3Store(StoreLocation("s3://bookworm/object-lock"), RetryPolicy(tries=1)).delete_many(keys)
        assert (server.count("DeleteObjects"), server.count("DeleteObject")) == (1, 1)
        assert {d.outcome for d in denied} == {DeletionOutcome.FAILED}

        server.faults[:] = [
            lambda request: (
                error(400, "InvalidRequest", MINIO)
                if request.operation == "DeleteObject"
                else deleted(request.keys, dict.fromkeys(request.keys, ("InvalidRequest", MINIO)))
            )
        ]
        locked = S3Store(StoreLocation("s3://bookworm/object-lock"), RetryPolicy(tries=1)).delete_many(keys)
        assert {d.outcome for d in locked} == {DeletionOutcome.LOCKED}


def test_says_that_bytes_stay(new_bucket: NewBucket, s3_server: SeaweedFS, s3_namespace: StoreLocation) -> None:
    assert S3Store(s3_namespace).space_not_freed() == ""
    versioned, locking = new_bucket(), new_bucket(locks=True)
    assert "keeps versions (versioning: Enabled)" in versioned.space_not_freed()
    assert "no lifecycle rule expires them" in versioned.space_not_freed()
    assert "object lock" not in versioned.space_not_freed()
    assert "object lock is on" in locking.space_not_freed()
    rule = {
        "ID": "old versions",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 9},
    }
    s3_server.client().put_bucket_lifecycle_configuration(
        Bucket=versioned.bucket, LifecycleConfiguration={"Rules": [rule]}
    )
    assert "a lifecycle rule expires noncurrent versions after 9 days" in versioned.space_not_freed()


def test_which_lifecycle_rules_cover_a_namespace() -> None:
    rule: dict[str, Any] = {"Status": "Enabled", "NoncurrentVersionExpiration": {"NoncurrentDays": 9}}
    covers = s3_versions._covers
    assert covers(rule | {"Filter": {"Prefix": "re"}}, "repo/")
    assert covers(rule | {"Prefix": ""}, "repo/")
    assert not covers(rule | {"Filter": {"Prefix": "repo/data/"}}, "repo/")
    assert not covers(rule | {"Filter": {"And": {"Prefix": "", "Tags": []}}}, "repo/")
    assert not covers(rule | {"Filter": {}, "Status": "Disabled"}, "repo/")
    assert not covers({"Status": "Enabled", "Filter": {}, "Expiration": {"Days": 1}}, "repo/")


def test_what_may_not_be_asked_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versioning is known, lock and lifecycle may not be asked for."""
    with FaultyS3() as server:
        for name, value in credentials(server).items():
            monkeypatch.setenv(name, value)
        versioned = b"<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>"

        def answer(request: Request) -> Any:
            if "versioning" in request.query:
                return type(error(403, "AccessDenied"))(200, versioned)
            return error(403, "AccessDenied")

        server.faults.append(answer)
        text = S3Store(StoreLocation("s3://bucket/repo"), RetryPolicy(tries=1)).space_not_freed()
    assert "versioning: Suspended" in text
    assert "object lock is unknown (access denied for s3:GetBucketObjectLockConfiguration)" in text
    assert "lifecycle rules is unknown (access denied for s3:GetLifecycleConfiguration)" in text


def test_a_folder_keeps_nothing(tmp_path: Path) -> None:
    store = LocalStore(StoreLocation(tmp_path.as_uri()))
    store.put("data/s/a", b"x")
    assert store.space_not_freed() == ""
    seen = doomed(store, "data/s/a")
    assert [d.outcome for d in purge(store, seen)] == [DeletionOutcome.DELETED]
    assert store.content_facts("data/s/a") is None
    gone = doomed(store, "data/s/a")
    store.put("data/s/a", b"back")
    assert [d.outcome for d in purge(store, gone)] == [DeletionOutcome.DELETED]
    assert store.read("data/s/a") == b"back", "what was not there is left alone"


def test_a_listing_without_a_version_of_an_object_that_is_shown_proves_no_delete(
    new_bucket: NewBucket, s3_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that ignores the parameter `versions` answers with a listing of another kind."""
    store = new_bucket()
    store.put("data/s/a", b"x")
    seen = doomed(store, "data/s/a", "data/s/none")
    with monkeypatch.context() as patch:
        listing = {"Name": store.bucket, "IsTruncated": False}
        patch.setattr(store._s3().client, "list_object_versions", lambda **_: listing)
        answer = purge(store, seen)
        for left_out in listing:
            page = {name: value for name, value in listing.items() if name != left_out}
            patch.setattr(store._s3().client, "list_object_versions", lambda page=page, **_: page)
            with pytest.raises(StorageError, match="no listing of versions"):
                purge(store, seen)
        of_another = {**listing, "Prefix": f"{store.root}data/s/b"}
        patch.setattr(store._s3().client, "list_object_versions", lambda **_: of_another)
        with pytest.raises(StorageError, match="of another prefix"):
            purge(store, seen)
    assert [d.outcome for d in answer] == [DeletionOutcome.FAILED, DeletionOutcome.DELETED]
    assert "lists no version" in answer[0].error
    assert versions(s3_server, store) == ["data/s/a"]
