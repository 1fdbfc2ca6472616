"""Uploads in parts that create an object only if it is new."""

from __future__ import annotations

import os
from io import BytesIO

import pytest
from botocore.exceptions import ClientError

from lakefs_gc.errors import StorageError
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.s3.store import S3Store
from lakefs_gc_tests.support.copy_limits import MIB

CONTENT = os.urandom(20 * MIB)


@pytest.fixture
def store(s3_namespace: StoreLocation) -> S3Store:
    return S3Store(s3_namespace)


def uploads(store: S3Store, server: SeaweedFS) -> list[str]:
    found = server.client().list_multipart_uploads(Bucket=store.bucket).get("Uploads", [])
    return [upload["Key"] for upload in found if upload["Key"].startswith(store.root)]


def test_a_store_that_does_not_know_the_condition_gets_none(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    client = store._s3().client
    complete, conditions = client.complete_multipart_upload, []

    def unknown(**parameters: object) -> object:
        conditions.append(parameters.get("IfNoneMatch"))
        if conditions[-1]:
            raise ClientError({"Error": {"Code": "NotImplemented"}}, "CompleteMultipartUpload")
        return complete(**parameters)

    monkeypatch.setattr(client, "complete_multipart_upload", unknown)
    assert store.put_stream("a", BytesIO(CONTENT), if_absent=True) is True
    assert store.read("a") == CONTENT
    assert conditions == ["*", None]


@pytest.mark.parametrize("kind", ["unknown", "ignored"])
def test_an_upload_to_a_store_without_conditions_looks_again_before_its_end(
    kind: str, store: S3Store, s3_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts may take hours."""
    client = store._s3().client
    complete, upload_part, other = client.complete_multipart_upload, client.upload_part, S3Store(store.location)

    def without_conditions(**parameters: object) -> object:
        if parameters.pop("IfNoneMatch", None) and kind == "unknown":
            raise ClientError({"Error": {"Code": "NotImplemented"}}, "CompleteMultipartUpload")
        return complete(**parameters)

    def slowly(**parameters: object) -> object:
        if parameters["PartNumber"] == 2:
            other.put("a", b"of another writer")
        return upload_part(**parameters)

    monkeypatch.setattr(client, "complete_multipart_upload", without_conditions)
    monkeypatch.setattr(client, "upload_part", slowly)
    assert store.put_stream("a", BytesIO(CONTENT), if_absent=True) is False
    assert store.read("a") == b"of another writer"
    assert uploads(store, s3_server) == []


def test_an_upload_that_comes_late_leaves_no_parts(
    store: S3Store, s3_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", b"of another writer")
    monkeypatch.setattr(store, "_stat", lambda key: None)  # it was written after we have looked
    assert store.put_stream("a", BytesIO(CONTENT), if_absent=True) is False
    assert store.read("a") == b"of another writer"
    assert uploads(store, s3_server) == []


def test_an_upload_that_fails_leaves_no_parts(
    store: S3Store, s3_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = store._s3().client
    upload_part = client.upload_part

    def break_last(**parameters: object) -> object:
        if parameters["PartNumber"] == 3:
            parameters["UploadId"] = "none"
        return upload_part(**parameters)

    monkeypatch.setattr(client, "upload_part", break_last)
    with pytest.raises(StorageError):
        store.put_stream("a", BytesIO(CONTENT), if_absent=True)
    assert store.content_facts("a") is None
    assert uploads(store, s3_server) == []
