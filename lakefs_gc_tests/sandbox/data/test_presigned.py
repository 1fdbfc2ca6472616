"""Presigned URLs on S3, their absence on local files, and the update of user metadata."""

from __future__ import annotations

import os
import time
from typing import Any

import httpx
import lakefs
import lakefs_sdk
import pytest
from lakefs.client import Client

from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.fake_clock import FakeClock
from lakefs_gc_tests.support.sandbox_place import REPOSITORY, Place, StartSandbox, make_place, refused

PART_BYTES = 5 << 20


@pytest.fixture
def on_s3(start_sandbox: StartSandbox, s3_namespace: StoreLocation) -> Place:
    root = StoreLocation(s3_namespace.url.removesuffix("/repository"))
    return make_place(start_sandbox(root), s3_namespace.url, s3_namespace.url)


def test_objects_are_read_directly_from_the_store(on_s3: Place, clock: FakeClock) -> None:
    on_s3.put("a/ä b&c", "content")
    on_s3.put("b", "other")
    tree = on_s3.commit().meta_range_id
    url = f"/repositories/{REPOSITORY}/refs/main/objects"
    redirected = on_s3.get(url, params={"path": "a/ä b&c", "presign": "true"})
    assert redirected.status_code == 302
    assert httpx.get(redirected.headers["location"]).content == b"content"
    assert httpx.get(redirected.headers["location"].replace("X-Amz-Signature=", "X-Amz-Signature=0")).status_code == 403
    objects = on_s3.client.objects_api
    stats = objects.stat_object(REPOSITORY, "main", "b", presign=True)
    assert httpx.get(stats.physical_address).content == b"other"
    assert stats.physical_address_expiry == int(clock.now.timestamp()) + 900
    assert objects.stat_object(REPOSITORY, "main", "b").physical_address.startswith("s3://")
    listed = objects.list_objects(REPOSITORY, "main", presign=True, delimiter="/").results
    assert [item.path for item in listed] == ["a/", "b"]
    assert httpx.get(listed[1].physical_address).content == b"other"
    moved = on_s3.get(f"/repositories/{REPOSITORY}/metadata/object/meta_range/{tree}", params={"presign": "true"})
    assert moved.status_code == 302
    assert httpx.get(moved.headers["location"]).content == on_s3.store.read(f"_lakefs/{tree}")
    rules = lakefs_sdk.GarbageCollectionRules(default_retention_days=1, branches=[])
    on_s3.client.repositories_api.set_gc_rules(REPOSITORY, rules)
    prepared = on_s3.client.internal_api.prepare_garbage_collection_commits(REPOSITORY)
    assert tree in httpx.get(prepared.gc_commits_presigned_url).text
    on_s3.store.delete_many([on_s3.key("b")])
    gone = objects.stat_object(REPOSITORY, "main", "b", presign=True).physical_address
    assert httpx.get(gone).status_code == 404, "as in lakeFS, a URL does not prove that the object exists"


def test_an_object_is_written_directly_to_the_store(on_s3: Place) -> None:
    location = on_s3.client.staging_api.get_physical_address(REPOSITORY, "main", "x", presign=True)
    assert httpx.put(location.presigned_url, content=b"direct").status_code == 200
    metadata = lakefs_sdk.StagingMetadata(staging=location, checksum="c", size_bytes=6)
    on_s3.client.staging_api.link_physical_address(REPOSITORY, "main", "x", metadata)
    assert on_s3.read("x") == b"direct"
    elsewhere = location.presigned_url.replace("/data/", "/data/other")
    assert httpx.put(elsewhere, content=b"x").status_code == 403


@pytest.fixture
def uploads(on_s3: Place) -> Any:
    return lakefs_sdk.ExperimentalApi(on_s3.client.objects_api.api_client)


def put_parts(urls: list[str], bodies: list[bytes]) -> list[Any]:
    answers = [httpx.put(url, content=body) for url, body in zip(urls, bodies, strict=True)]
    tags = [answer.headers["etag"] for answer in answers]
    return [lakefs_sdk.UploadPart(part_number=number, etag=tag) for number, tag in enumerate(tags, 1)]


def test_the_parts_of_an_upload_are_written_directly_to_the_store(on_s3: Place, uploads: Any) -> None:
    bodies = [os.urandom(PART_BYTES), b"the rest"]
    begun = uploads.create_presign_multipart_upload(REPOSITORY, "main", "big", parts=2)
    assert begun.physical_address.startswith(f"{on_s3.namespace}/data/")
    parts = put_parts(begun.presigned_urls, bodies)
    body = lakefs_sdk.CompletePresignMultipartUpload(
        physical_address=begun.physical_address, parts=parts, user_metadata={"k": "v"}, content_type="text/csv"
    )
    complete, upload_id = uploads.complete_presign_multipart_upload, begun.upload_id
    assert "invalid address" in refused(400, complete, REPOSITORY, "main", upload_id, "other", body)
    assert on_s3.paths() == []
    stats = complete(REPOSITORY, "main", upload_id, "big", body)
    assert (stats.size_bytes, stats.content_type, stats.metadata) == (PART_BYTES + 8, "text/csv", {"k": "v"})
    assert stats.checksum.endswith("-2")
    assert stats.physical_address == begun.physical_address.removeprefix(on_s3.namespace + "/"), "as lakeFS shows it"
    assert on_s3.read("big") == b"".join(bodies)
    assert "already used" in refused(400, complete, REPOSITORY, "main", upload_id, "big", body)
    part = lakefs_sdk.UploadPartFrom(physical_address=begun.physical_address)
    assert "already used" in refused(400, uploads.upload_part, REPOSITORY, "main", upload_id, "big", 1, part)
    staging = lakefs_sdk.StagingLocation(physical_address=begun.physical_address)
    again = lakefs_sdk.StagingMetadata(staging=staging, checksum="c", size_bytes=1)
    link = on_s3.client.staging_api.link_physical_address
    assert "already used" in refused(400, link, REPOSITORY, "main", "big", again)


def test_parts_can_be_written_one_by_one_and_copied(on_s3: Place, uploads: Any) -> None:
    on_s3.put("source", "0123456789")
    begun = uploads.create_presign_multipart_upload(REPOSITORY, "main", "x")
    assert not begun.presigned_urls
    address, upload_id = begun.physical_address, begun.upload_id
    body = lakefs_sdk.UploadPartFrom(physical_address=address)
    target = uploads.upload_part(REPOSITORY, "main", upload_id, "x", 1, body)
    parts = put_parts([target.presigned_url], [b"a" * PART_BYTES])
    source = {"repository": REPOSITORY, "ref": "main", "path": "source", "range": "bytes=2-4"}
    copy = on_s3.server.endpoint_url + f"/api/v1/repositories/{REPOSITORY}/branches/main/staging/pmpu/{upload_id}"
    answer = httpx.put(
        copy + "/parts/2/copy",
        params={"path": "x"},
        json={"physical_address": address, "copy_source": source},
        auth=(on_s3.server.access_key_id, on_s3.server.secret_access_key),
    )
    assert answer.status_code == 204, answer.text
    parts.append(lakefs_sdk.UploadPart(part_number=2, etag=answer.headers["etag"]))
    body = lakefs_sdk.CompletePresignMultipartUpload(physical_address=address, parts=parts)
    uploads.complete_presign_multipart_upload(REPOSITORY, "main", upload_id, "x", body)
    assert on_s3.read("x") == b"a" * PART_BYTES + b"234"


def test_an_aborted_or_rejected_multipart_upload_leaves_no_object(on_s3: Place, uploads: Any) -> None:
    create = uploads.create_presign_multipart_upload
    begun = create(REPOSITORY, "main", "x", parts=1)
    parts = put_parts(begun.presigned_urls, [b"x"])
    abort = lakefs_sdk.AbortPresignMultipartUpload(physical_address=begun.physical_address)
    uploads.abort_presign_multipart_upload(
        REPOSITORY, "main", begun.upload_id, "x", abort_presign_multipart_upload=abort
    )
    body = lakefs_sdk.CompletePresignMultipartUpload(physical_address=begun.physical_address, parts=parts)
    complete = uploads.complete_presign_multipart_upload
    refused(500, complete, REPOSITORY, "main", begun.upload_id, "x", body)
    assert on_s3.paths() == []
    assert refused(404, create, REPOSITORY, "none", "x") == "branch 'none' not found"
    assert refused(400, create, REPOSITORY, "main", "") == "path is required"
    assert refused(400, create, REPOSITORY, "main", "x", parts=10_001) == "parts can be between 0 and 10000"
    body.parts = []
    assert refused(400, complete, REPOSITORY, "main", begun.upload_id, "x", body) == "parts are required"
    body.physical_address = "s3://elsewhere/x"
    message = "physical address must be relative to the storage namespace"
    assert refused(400, complete, REPOSITORY, "main", begun.upload_id, "x", body) == message


def test_the_high_level_package_uses_presigned_urls(on_s3: Place) -> None:
    server: SandboxServer = on_s3.server
    client: Any = Client(  # type: ignore[no-untyped-call]
        host=server.endpoint_url, username=server.access_key_id, password=server.secret_access_key
    )
    assert client.storage_config_by_id().pre_sign_support
    branch = lakefs.Repository(REPOSITORY, client=client).branch("main")
    began = time.monotonic()
    branch.object("x").upload(b"by itself", pre_sign=True)
    with branch.object("x").reader(mode="rb") as reader:
        assert reader.read() == b"by itself"
    assert time.monotonic() - began < 10
    assert on_s3.read("x") == b"by itself"


def test_local_files_have_no_presigned_urls(local: Place) -> None:
    local.put("x")
    uploads = lakefs_sdk.ExperimentalApi(local.client.objects_api.api_client)
    message = "presign multipart upload API is not supported"
    assert refused(501, uploads.create_presign_multipart_upload, REPOSITORY, "main", "x") == message
    stat, physical = local.client.objects_api.stat_object, local.client.staging_api.get_physical_address
    assert refused(400, stat, REPOSITORY, "main", "x", presign=True) == "operation not supported"
    assert refused(400, physical, REPOSITORY, "main", "x", presign=True) == "operation not supported"
    assert not local.get("/config").json()["storage_config"]["pre_sign_support"]


def test_user_metadata_can_be_updated(place: Place) -> None:
    objects = place.client.objects_api

    def update(path: str, branch: str = "main", **metadata: str) -> None:
        body = lakefs_sdk.UpdateObjectUserMetadata(set=metadata)
        objects.update_object_user_metadata(REPOSITORY, branch, path, body)

    place.put("staged")
    update("staged", a="1")
    update("staged", b="2")
    assert objects.stat_object(REPOSITORY, "main", "staged").metadata == {"b": "2"}
    place.commit()
    key = place.key("staged")
    assert refused(400, place.commit) == "commit: no changes"
    update("staged", c="3")
    assert place.key("staged") == key, "the bytes are the same"
    assert objects.stat_object(REPOSITORY, "main@", "staged").metadata == {"b": "2"}
    place.commit()
    assert objects.stat_object(REPOSITORY, "main@", "staged").metadata == {"c": "3"}
    message = f"update user metadata on {REPOSITORY}/main/none: not found"
    assert refused(404, update, "none", a="1") == message
    assert refused(404, update, "staged", branch="none", a="1") == "branch not found"
    place.client.objects_api.delete_object(REPOSITORY, "main", "staged")
    assert "not found" in refused(404, update, "staged", a="1")
