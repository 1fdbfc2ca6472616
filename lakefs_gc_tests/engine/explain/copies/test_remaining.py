"""Copies of an object beside the object itself: versions in a real bucket, and backups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakefs_gc.config import BackupSettings
from lakefs_gc.engine.explain.copies import remaining
from lakefs_gc.engine.explain.copies.found import Copies
from lakefs_gc.engine.explain.copies.remaining import find_backups, find_versions
from lakefs_gc.engine.records.backups.manifest import BackupPaths, BackupStart
from lakefs_gc.errors import AccessDeniedError
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.s3.store import S3Store
from lakefs_gc.units import EPOCH

KEYS = ("data/s/once", "data/s/twice", "data/s/deleted", "data/s/erased", "data/s/never")
UNMARKED: dict[str, tuple[str, ...]] = dict.fromkeys(KEYS, ())
"""The keys, of which no mark names one."""


def test_versions_remain_behind_a_delete_marker(versioned: StoreLocation, s3_server: SeaweedFS) -> None:
    store = open_store(versioned)
    for key in ("data/s/once", "data/s/twice", "data/s/twice", "data/s/deleted", "data/s/erased", "data/s/erased-too"):
        store.put(key, key.encode())
    store.delete_many(["data/s/deleted", "data/s/erased"])
    bucket, _, root = versioned.folder_url.removeprefix("s3://").partition("/")
    client = s3_server.client()
    listed = client.list_object_versions(Bucket=bucket, Prefix=root + "data/s/erased")["Versions"]
    [version] = [each for each in listed if each["Key"] == root + "data/s/erased"]
    client.delete_object(Bucket=bucket, Key=root + "data/s/erased", VersionId=version["VersionId"])

    found = find_versions(store, KEYS)
    assert found.unread == ()
    counts = {key: [text.partition(" in ")[0] for text in texts] for key, texts in found.of.items() if texts}
    # Of the erased object only the delete marker is left, which has no content.
    assert counts == {"data/s/twice": ["1 version"], "data/s/deleted": ["1 version"]}


def test_a_bucket_without_versions_has_none(s3_namespace: StoreLocation) -> None:
    store = open_store(s3_namespace)
    store.put("data/s/once", b"1")
    assert find_versions(store, KEYS).of == {key: [] for key in KEYS}


@pytest.mark.parametrize("asked", ["data/s/once", "data/s/never"])
def test_a_store_that_lists_no_version_of_what_it_has_shows_nothing(
    versioned: StoreLocation, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that drops what it does not know may answer with an empty list."""
    store = S3Store(versioned)
    store.put("data/s/once", b"1")
    assert find_versions(store, [asked]).unread == ()

    def empty(**request: str) -> dict[str, Any]:
        return {"Name": store.bucket, "IsTruncated": False, "Prefix": request["Prefix"]}

    monkeypatch.setattr(store._s3().client, "list_object_versions", empty)
    [unread] = find_versions(store, [asked]).unread
    assert "the store has data/s/once, and lists no version of it" in unread


def test_what_may_be_kept_and_cannot_be_listed_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(StoreLocation(tmp_path.as_uri()))
    monkeypatch.setattr(store, "deletes_versions", False)
    monkeypatch.setattr(store, "space_not_freed", lambda: "soft delete keeps blobs for 7 days")
    assert "soft delete keeps blobs for 7 days" in find_versions(store, KEYS).unread[0]

    def denied() -> str:
        raise AccessDeniedError("access denied for s3:GetBucketVersioning")

    monkeypatch.setattr(store, "space_not_freed", denied)
    assert "access denied" in find_versions(store, KEYS).unread[0]


@pytest.mark.parametrize("url", ["gs://bucket/ns", "https://account.blob.core.windows.net/container/ns"])
def test_copies_that_azure_and_google_keep_are_unknown_and_no_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google keeps deleted objects for seven days by default."""
    store = open_store(StoreLocation(url))
    monkeypatch.setattr(store, "count_versions", lambda keys: dict.fromkeys(keys, 0))
    monkeypatch.setattr(store, "space_not_freed", lambda: "deleted objects are kept for 7 days")
    [unread] = find_versions(store, KEYS).unread
    assert "cannot all be listed: deleted objects are kept" in unread


NAMESPACE, OTHER_NAMESPACE = "s3://bucket/lake/", "s3://bucket/other/"


def put_copy(store: ObjectStore, repository: str, mark_id: str, *keys: str, namespace: str = "") -> BackupPaths:
    """Put copies into a backup, with the note of its begin if there is a ``namespace``."""
    paths = BackupPaths(repository, mark_id)
    for key in keys:
        store.put(paths.objects + key, b"")
    if namespace:
        store.put(paths.began, BackupStart(mark_id, namespace, "sha256:0", EPOCH).to_json())
    return paths


def named_marks(found: Copies) -> dict[str, list[str]]:
    return {key: [text.split()[3] for text in texts] for key, texts in found.of.items() if texts}


def test_each_backup_with_a_copy_is_named(tmp_path: Path) -> None:
    store = open_store(StoreLocation(tmp_path.as_uri()))
    put_copy(store, "lake", "m1", "data/s/once")
    put_copy(store, "lake", "m2", "data/s/once", "data/s/twice")  # incomplete: it has no manifest, but copies
    put_copy(store, "other", "m3", "data/s/never", namespace=OTHER_NAMESPACE)
    settings = BackupSettings(url=tmp_path.as_uri())
    found = find_backups(settings, "lake", [NAMESPACE], UNMARKED, others=[OTHER_NAMESPACE])
    assert found.unread == ()
    assert named_marks(found) == {"data/s/once": ["m1", "m2"], "data/s/twice": ["m2"]}
    assert "m3" in named_marks(find_backups(settings, "lake", [NAMESPACE], UNMARKED))["data/s/never"]
    assert find_backups(BackupSettings(), "lake", [NAMESPACE], UNMARKED).unread
    missing = BackupSettings(url=(tmp_path / "not-mounted").as_uri())
    assert "not-mounted" in find_backups(missing, "lake", [NAMESPACE], UNMARKED).unread[0]


def test_backups_below_a_former_name_of_the_repository(tmp_path: Path) -> None:
    """Also one without a record. One whose record is damaged is unknown. A folder of another kind is looked through."""
    store = open_store(StoreLocation(tmp_path.as_uri()))
    put_copy(store, "lake-before", "m1", "data/s/once", namespace=NAMESPACE)
    put_copy(store, "lake-before", "m2", "data/s/twice")
    put_copy(store, "other", "m3", *KEYS, namespace=OTHER_NAMESPACE)
    put_copy(store, "lake", "m4", "data/s/erased", namespace=OTHER_NAMESPACE)  # of a deleted repository of this name
    settings = BackupSettings(url=tmp_path.as_uri())
    found = find_backups(settings, "lake", ["s3://alias/lake/", NAMESPACE], UNMARKED, others=[OTHER_NAMESPACE])
    assert found.unread == ()
    assert named_marks(found) == {"data/s/once": ["m1"], "data/s/twice": ["m2"], "data/s/erased": ["m4"]}
    assert found.of["data/s/once"] == [f"backup of mark m1 of lake-before in {tmp_path.as_uri()}"]

    damaged = put_copy(store, "lake-before", "m5", "data/s/deleted", namespace=NAMESPACE)
    store.put(damaged.began, store.read(damaged.began)[:-9])
    store.put("other/no mark/x", b"")
    found = find_backups(settings, "lake", [NAMESPACE], UNMARKED, others=[OTHER_NAMESPACE])
    assert [each.split(" in ")[0] for each in found.unread] == ["backup of mark m5 of lake-before"]
    assert named_marks(found)["data/s/once"] == ["m1"]


def test_a_key_that_the_backup_location_cannot_have_hides_no_other_copy(tmp_path: Path) -> None:
    store = open_store(StoreLocation(tmp_path.as_uri()))
    put_copy(store, "lake", "m1", "data/s/once", namespace=NAMESPACE)
    found = find_backups(
        BackupSettings(url=tmp_path.as_uri()), "lake", [NAMESPACE], {"data//once": (), "data/s/once": ()}
    )
    assert named_marks(found) == {"data/s/once": ["m1"]}
    assert "could not be asked for lake/m1/objects/data//once" in found.unread[0]


def test_a_backup_that_is_moved_to_the_configured_location_meanwhile_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, configured = (tmp_path / name for name in ("former", "configured"))
    configured.mkdir()
    put_copy(open_store(StoreLocation(former.as_uri())), "lake", "m1", "data/s/once")
    opened: list[str] = []

    def open_after_a_move(location: StoreLocation) -> ObjectStore:
        opened.append(location.url)
        if len(opened) == 2:
            (former / "lake").rename(configured / "lake")
        return open_store(location)

    monkeypatch.setattr(remaining, "open_store", open_after_a_move)
    settings = BackupSettings(url=configured.as_uri())
    found = find_backups(settings, "lake", [NAMESPACE], UNMARKED, recorded=[former.as_uri()])
    assert named_marks(found)["data/s/once"]
