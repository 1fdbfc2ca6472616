"""Copies that the store makes itself, and what it says of contents."""

from __future__ import annotations

import hashlib
import os
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError

from lakefs_gc.errors import ObjectNotFoundError, StorageError
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc.storage.s3.checksums import checksums_of
from lakefs_gc.storage.s3.copy import CopyLimits
from lakefs_gc.storage.s3.store import S3Store
from lakefs_gc_tests.support.copy_limits import IN_PARTS, MIB


def s3_name(store: S3Store, key: str) -> dict[str, str]:
    return {"Bucket": store.bucket, "Key": store.root + key}


@pytest.mark.parametrize("call", ["PutObject", "CopyObject", "CompleteMultipartUpload"])
def test_the_client_knows_conditional_writes(call: str, s3_namespace: StoreLocation) -> None:
    """An older boto3 refuses the parameter, and so each object of a restore, after the deletes."""
    model = S3Store(s3_namespace)._s3().client.meta.service_model
    assert "IfNoneMatch" in model.operation_model(call).input_shape.members


def test_a_large_object_is_copied_in_parts_by_the_store(s3_namespace: StoreLocation, s3_server: SeaweedFS) -> None:
    store = S3Store(s3_namespace, copy_limits=IN_PARTS)
    content = os.urandom(5 * MIB) + os.urandom(5 * MIB) + b"end"
    client = s3_server.client()
    client.put_object(
        **s3_name(store, "data/s/big"), Body=content, ContentType="text/x-big", Metadata={"made-by": "ada"}
    )
    assert store.copy_to("data/s/big", store, "backup/big é +%")
    assert store.read("backup/big é +%") == content
    head = client.head_object(**s3_name(store, "backup/big é +%"))
    assert head["ETag"].strip('"').endswith("-3"), "three parts"
    assert (head["ContentType"], head["Metadata"]) == ("text/x-big", {"made-by": "ada"})

    # What one call can copy keeps its ETag.
    store.put("data/s/small", b"small")
    assert store.copy_to("data/s/small", store, "backup/small")
    assert store.content_facts("backup/small") == store.content_facts("data/s/small")


def test_a_copy_in_parts_that_fails_leaves_nothing(
    s3_namespace: StoreLocation, s3_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = S3Store(s3_namespace, RetryPolicy(tries=2, base_seconds=0.01), copy_limits=IN_PARTS)
    store.put("data/s/big", bytes(11 * MIB))
    client = store._s3().client
    copy_part = client.upload_part_copy

    def break_last(**parameters: object) -> object:
        if parameters["PartNumber"] == 3:
            parameters["CopySourceRange"] = f"bytes={20 * MIB}-{21 * MIB}"  # beyond the end: the store refuses
        return copy_part(**parameters)

    monkeypatch.setattr(client, "upload_part_copy", break_last)
    with pytest.raises(StorageError):
        store.copy_to("data/s/big", store, "backup/big")
    assert store.content_facts("backup/big") is None
    uploads = s3_server.client().list_multipart_uploads(Bucket=store.bucket).get("Uploads", [])
    assert [upload for upload in uploads if upload["Key"] == store.root + "backup/big"] == []


def test_a_copy_in_parts_to_a_store_without_conditions_looks_again_before_its_end(
    s3_namespace: StoreLocation, s3_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = S3Store(s3_namespace, copy_limits=IN_PARTS)
    store.put("backup/big", bytes(11 * MIB))
    client = store._s3().client
    complete, copy_part, other = client.complete_multipart_upload, client.upload_part_copy, S3Store(s3_namespace)

    def without_conditions(**parameters: object) -> object:
        parameters.pop("IfNoneMatch", None)
        return complete(**parameters)

    def slowly(**parameters: object) -> object:
        if parameters["PartNumber"] == 2:
            other.put("data/s/big", b"of another writer")
        return copy_part(**parameters)

    monkeypatch.setattr(client, "complete_multipart_upload", without_conditions)
    monkeypatch.setattr(client, "upload_part_copy", slowly)
    assert store.copy_to("backup/big", store, "data/s/big", if_absent=True) is False
    assert store.read("data/s/big") == b"of another writer"
    uploads = s3_server.client().list_multipart_uploads(Bucket=store.bucket).get("Uploads", [])
    assert [upload for upload in uploads if upload["Key"] == store.root + "data/s/big"] == []


@pytest.mark.parametrize("kind", ["local", "s3", "s3 in parts", "local to s3", "s3 to local"])
def test_a_copy_never_overwrites_when_told_not_to(
    kind: str, s3_namespace: StoreLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3 = S3Store(s3_namespace, copy_limits=CopyLimits(single_bytes=1, part_bytes=MIB) if "parts" in kind else None)
    folder = LocalStore(StoreLocation(tmp_path.as_uri()))
    source, target = {
        "local": (folder, folder),
        "local to s3": (folder, s3),
        "s3 to local": (s3, folder),
    }.get(kind, (s3, s3))
    source.put("data/s/a", b"the copy")
    target.put("there", b"original")
    assert source.copy_to("data/s/a", target, "there", if_absent=True) is False
    assert target.read("there") == b"original"
    if kind.startswith("s3") and target is s3:
        # Somebody writes it after we have looked.
        monkeypatch.setattr(s3, "_stat", lambda key: None)
        assert source.copy_to("data/s/a", target, "there", if_absent=True) is False
        assert target.read("there") == b"original"
    assert source.copy_to("data/s/a", target, "new", if_absent=True) is True
    assert target.read("new") == b"the copy"
    assert source.copy_to("data/s/a", target, "there") is True
    assert target.read("there") == b"the copy"
    with pytest.raises(ObjectNotFoundError):
        source.copy_to("data/s/none", target, "none", if_absent=True)


@pytest.mark.parametrize(
    ("written", "made"),
    [(None, True), (b"the copy", True), (b"not copy", False), (b"longer than it", False)],
    ids=["ours", "the same", "another", "a longer one"],
)
def test_a_copy_whose_answer_was_lost_is_still_ours(
    written: bytes | None, made: bool, s3_namespace: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The try after it finds an object in the way: the store's own answer then says whether it is the copy."""
    store = S3Store(s3_namespace, RetryPolicy(tries=2, base_seconds=0.01))
    store.put("backup/a", b"the copy")
    client = store._s3().client
    copy_object, calls = client.copy_object, []

    def lose_first(**parameters: object) -> object:
        calls.append(parameters)
        if len(calls) > 1:
            return copy_object(**parameters)
        if written is None:
            copy_object(**parameters)
        else:
            store.put("data/s/a", written)
        raise ConnectionClosedError(endpoint_url="the store")

    monkeypatch.setattr(client, "copy_object", lose_first)
    assert store.copy_to("backup/a", store, "data/s/a", if_absent=True) is made
    assert len(calls) == 2
    assert store.read("data/s/a") == (b"the copy" if written is None else written)


def test_a_copy_in_parts_that_another_one_preceded_leaves_none(
    s3_namespace: StoreLocation, s3_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two restores of one object: the answer 412 leaves the upload of the second one open."""
    store = S3Store(s3_namespace, copy_limits=IN_PARTS)
    store.put("backup/big", bytes(11 * MIB))
    client, other = store._s3().client, S3Store(s3_namespace)
    complete = client.complete_multipart_upload

    def after_another_restore(**parameters: Any) -> Any:
        other.put("data/s/big", bytes(11 * MIB))
        return complete(**parameters)

    monkeypatch.setattr(client, "complete_multipart_upload", after_another_restore)
    store.copy_to("backup/big", store, "data/s/big", if_absent=True)
    uploads = s3_server.client().list_multipart_uploads(Bucket=store.bucket).get("Uploads", [])
    assert store.root + "data/s/big" not in [upload["Key"] for upload in uploads]


def test_local_copies_where_the_kernel_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(StoreLocation(tmp_path.as_uri()))
    content = os.urandom(3 * MIB)
    store.put("data/s/a", content)
    store.put("data/s/empty", b"")
    assert store.copy_to("data/s/a", store, "by kernel")

    def unable(*_: object) -> int:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", unable)
    assert store.copy_to("data/s/a", store, "by hand")
    assert store.copy_to("data/s/empty", store, "empty")
    assert store.read("by kernel") == store.read("by hand") == content
    assert store.read("empty") == b""


def test_what_stores_say_of_contents(s3_namespace: StoreLocation, s3_server: SeaweedFS, tmp_path: Path) -> None:
    s3, folder = S3Store(s3_namespace), open_store(StoreLocation(tmp_path.as_uri()))
    content = b"some content"
    for store in (s3, folder):
        store.put("a", content)
        assert store.content_facts("none") is None
    facts = s3.content_facts("a")
    assert facts is not None
    assert facts.size_bytes == len(content)
    assert facts.checksums == {"md5": hashlib.md5(content).hexdigest()}
    of_file = folder.content_facts("a")
    assert of_file is not None
    assert (of_file.size_bytes, of_file.checksums) == (len(content), {})
    s3_server.client().put_object(**s3_name(s3, "sha"), Body=content, ChecksumAlgorithm="SHA256")
    with_sha = s3.content_facts("sha")
    assert with_sha is not None
    assert with_sha.checksums["sha256"] == hashlib.sha256(content).hexdigest()
    s3.put_stream("parts", BytesIO(bytes(20 * MIB)))
    in_parts = s3.content_facts("parts")
    assert in_parts is not None
    assert "md5" not in in_parts.checksums, "the ETag of an upload in parts is no MD5"


def test_which_checksums_count() -> None:
    md5 = "0" * 32
    assert checksums_of({"ETag": f'"{md5}"'}) == {"md5": md5}
    assert checksums_of({"ETag": f'"{md5}"', "ServerSideEncryption": "AES256"}) == {"md5": md5}
    assert checksums_of({"ETag": f'"{md5}"', "ServerSideEncryption": "aws:kms"}) == {}
    directory_bucket = {"StorageClass": "EXPRESS_ONEZONE", "ServerSideEncryption": "AES256"}
    assert checksums_of({"ETag": f'"{md5}"', **directory_bucket}) == {}
    assert checksums_of({"ETag": f'"{md5}"', "SSECustomerAlgorithm": "AES256"}) == {}
    assert checksums_of({"ETag": f'"{md5}-2"'}) == {}
    assert checksums_of({"ChecksumCRC64NVME": "abc=", "ChecksumType": "FULL_OBJECT"}) == {"crc64nvme": "abc="}
    assert checksums_of({"ChecksumSHA256": "abcd", "ChecksumType": "COMPOSITE"}) == {}
    assert checksums_of({"ChecksumSHA256": "abcd-3"}) == {}
