"""Objects, listings and errors of the S3 gateway, with the unmodified boto3."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import httpx
import lakefs_sdk
import pytest

from lakefs_gc.sandbox.clock import system_clock
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.gateway.documents import read_keys_to_delete
from lakefs_gc.sandbox.gateway.problems import S3Error
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.fake_clock import FakeClock
from lakefs_gc_tests.support.gateway_client import refusal, s3_client
from lakefs_gc_tests.support.sandbox_place import REPOSITORY, Place, refused

MIB = 1 << 20


def test_an_object_is_written_and_read(place: Place, s3: Any) -> None:
    body = os.urandom(2 * MIB)
    key = "main/dir/ä b+c%20&=?#"
    metadata = {"team": "data"}
    put = s3.put_object(Bucket=REPOSITORY, Key=key, Body=body, ContentType="text/csv", Metadata=metadata)
    assert put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
    got = s3.get_object(Bucket=REPOSITORY, Key=key)
    assert got["Body"].read() == body
    assert (got["ContentType"], got["Metadata"], got["ETag"]) == ("text/csv", metadata, put["ETag"])
    head = s3.head_object(Bucket=REPOSITORY, Key=key)
    assert (head["ContentLength"], head["Metadata"]) == (len(body), metadata)
    stat = place.client.objects_api.stat_object(REPOSITORY, "main", key.removeprefix("main/"))
    assert stat.metadata == {"X-Amz-Meta-team": "data"}, "as lakeFS keeps it"
    assert place.key(key.removeprefix("main/")).startswith("data/")
    s3.delete_object(Bucket=REPOSITORY, Key=key)
    assert refusal(404, s3.get_object, Bucket=REPOSITORY, Key=key) == "NoSuchKey"
    s3.delete_object(Bucket=REPOSITORY, Key=key)


def test_a_collected_object_is_a_404_here_and_a_410_in_the_api(place: Place, s3: Any) -> None:
    """As lakeFS 1.84.0 answers. Neither a listing nor a HEAD shows that the bytes are deleted."""
    s3.put_object(Bucket=REPOSITORY, Key="main/old", Body=b"personal data")
    before = place.commit().id
    s3.put_object(Bucket=REPOSITORY, Key="main/old", Body=b"other data")
    place.store.delete_many([place.key("old", ref=before)])
    assert refusal(404, s3.get_object, Bucket=REPOSITORY, Key=f"{before}/old") == "NoSuchVersion"
    assert refused(410, place.client.objects_api.get_object, REPOSITORY, before, "old") == "No data"
    assert s3.head_object(Bucket=REPOSITORY, Key=f"{before}/old")["ContentLength"] == 13
    assert [item["Key"] for item in s3.list_objects_v2(Bucket=REPOSITORY, Prefix=f"{before}/")["Contents"]] == [
        f"{before}/old"
    ]
    assert refusal(404, s3.get_object, Bucket=REPOSITORY, Key=f"{before}/never") == "NoSuchKey"
    assert s3.get_object(Bucket=REPOSITORY, Key="main/old")["Body"].read() == b"other data"


@pytest.mark.parametrize(
    ("header", "part"), [("bytes=2-5", b"2345"), ("bytes=7-", b"789"), ("bytes=-3", b"789"), ("bytes=8-99", b"89")]
)
def test_ranges(header: str, part: bytes, s3: Any) -> None:
    s3.put_object(Bucket=REPOSITORY, Key="main/x", Body=b"0123456789")
    got = s3.get_object(Bucket=REPOSITORY, Key="main/x", Range=header)
    assert (got["Body"].read(), got["ContentLength"]) == (part, len(part))
    assert refusal(416, s3.get_object, Bucket=REPOSITORY, Key="main/x", Range="bytes=10-") == "InvalidRange"


def listed(s3: Any, **fields: Any) -> tuple[list[str], list[str], int]:
    """Return the keys, the common prefixes and the number of pages of a complete listing."""
    keys, prefixes, pages = [], [], 0
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=REPOSITORY, **fields):
        keys += [item["Key"] for item in page.get("Contents", [])]
        prefixes += [item["Prefix"] for item in page.get("CommonPrefixes", [])]
        pages += 1
    return keys, prefixes, pages


def test_listings(place: Place, s3: Any) -> None:
    paths = ["a/1", "a/2", "a&b <c>", "b", "c/d/1", "c/e", "control\x01", "p%20q"]
    for path in paths:
        s3.put_object(Bucket=REPOSITORY, Key=f"main/{path}", Body=path.encode())
    everything = sorted(f"main/{path}" for path in paths)
    assert listed(s3, Prefix="main/") == (everything, [], 1)
    assert listed(s3, Prefix="main/", PaginationConfig={"PageSize": 2}) == (everything, [], 4)
    keys, prefixes, _ = listed(s3, Prefix="main/", Delimiter="/", PaginationConfig={"PageSize": 1})
    assert (keys, prefixes) == (["main/a&b <c>", "main/b", "main/control\x01", "main/p%20q"], ["main/a/", "main/c/"])
    assert listed(s3, Prefix="main/c/", Delimiter="/")[:2] == (["main/c/e"], ["main/c/d/"])
    assert listed(s3, Prefix="main/", StartAfter="main/b")[0] == everything[everything.index("main/b") + 1 :]
    assert listed(s3, Prefix="main/", StartAfter="a")[0] == everything
    assert listed(s3, Prefix="main/", StartAfter="n") == ([], [], 1)
    assert listed(s3, Prefix="none/") == ([], [], 1)
    place.branch("dev")
    assert listed(s3, Delimiter="/") == ([], ["dev/", "main/"], 1)
    assert listed(s3, Prefix="de") == ([], ["dev/"], 1)
    old = s3.list_objects(Bucket=REPOSITORY, Prefix="main/", MaxKeys=3)
    following = s3.list_objects(Bucket=REPOSITORY, Prefix="main/", Marker=old["NextMarker"])
    assert [item["Key"] for item in old["Contents"] + following["Contents"]] == everything
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == [REPOSITORY]
    assert s3.list_objects_v2(Bucket=REPOSITORY, Prefix="main/b")["Contents"][0]["Size"] == 1


def test_deleting_many(s3: Any) -> None:
    for key in ("main/a", "main/b<&>", "main/c"):
        s3.put_object(Bucket=REPOSITORY, Key=key, Body=b"x")
    keys = [{"Key": key} for key in ("main/a", "main/b<&>", "main/none", "nowhere/x")]
    answer = s3.delete_objects(Bucket=REPOSITORY, Delete={"Objects": keys})
    assert [item["Key"] for item in answer["Deleted"]] == ["main/a", "main/b<&>", "main/none"]
    assert [(item["Key"], item["Code"]) for item in answer["Errors"]] == [("nowhere/x", "NoSuchBucket")]
    assert listed(s3, Prefix="main/")[0] == ["main/c"]


def test_copies(place: Place, s3: Any) -> None:
    s3.put_object(Bucket=REPOSITORY, Key="main/a b", Body=b"x", Metadata={"k": "v"})
    source = {"Bucket": REPOSITORY, "Key": "main/a b"}
    s3.copy_object(Bucket=REPOSITORY, Key="main/same", CopySource=source)
    assert place.key("same") == place.key("a b"), "staged, in its branch: shared"
    assert s3.head_object(Bucket=REPOSITORY, Key="main/same")["Metadata"] == {"k": "v"}
    assert [address for address, _ in place.server.sandbox.copies.addresses(REPOSITORY)] == [place.key("a b")]
    place.branch("dev")
    s3.copy_object(Bucket=REPOSITORY, Key="dev/other", CopySource=source)
    assert place.key("other", "dev") != place.key("a b")
    replaced = {"MetadataDirective": "REPLACE", "Metadata": {"new": "1"}, "ContentType": "text/csv"}
    s3.copy_object(Bucket=REPOSITORY, Key="main/a b", CopySource=source, **replaced)
    head = s3.head_object(Bucket=REPOSITORY, Key="main/a b")
    assert (head["Metadata"], head["ContentType"]) == ({"new": "1"}, "text/csv")
    namespace = place.namespace.removesuffix(place.namespace.rpartition("/")[2]) + "second"
    body = lakefs_sdk.RepositoryCreation(name="second", storage_namespace=namespace)
    place.client.repositories_api.create_repository(body)
    s3.copy_object(Bucket="second", Key="main/foreign", CopySource=source)
    assert s3.get_object(Bucket="second", Key="main/foreign")["Body"].read() == b"x"
    second = place.server.sandbox.namespaces.store(namespace)
    keys = [key for batch in second.list("data/") for key in batch.column("address").to_pylist()]
    assert len(keys) == 1, "a copy into another repository is an object of its own"
    missing = {"Bucket": REPOSITORY, "Key": "main/none"}
    assert refusal(404, s3.copy_object, Bucket=REPOSITORY, Key="main/x", CopySource=missing) == "NoSuchKey"


def test_refusals(place: Place, s3: Any) -> None:
    assert refusal(404, s3.put_object, Bucket="no-such", Key="main/x", Body=b"x") == "NoSuchBucket"
    assert refusal(404, s3.put_object, Bucket=REPOSITORY, Key="none/x", Body=b"x") == "NoSuchBucket"
    assert refusal(404, s3.list_objects_v2, Bucket="no-such") == "NoSuchBucket"
    assert refusal(404, s3.get_object, Bucket=REPOSITORY, Key="main/none") == "NoSuchKey"
    assert refusal(404, s3.head_object, Bucket=REPOSITORY, Key="main/none") == "404"
    assert refusal(400, s3.put_object, Bucket=REPOSITORY, Key="main", Body=b"x") == "InvalidArgument"
    assert refusal(409, s3.create_bucket, Bucket=REPOSITORY) == "BucketAlreadyExists"
    assert refusal(404, s3.create_bucket, Bucket="no-such") == "NoSuchBucket", "as lakeFS: it has no namespace for it"
    assert refusal(501, s3.get_object_acl, Bucket=REPOSITORY, Key="main/x") == "NotImplemented"
    s3.put_object(Bucket=REPOSITORY, Key="main/x", Body=b"x")
    fields = {"Bucket": REPOSITORY, "Key": "main/x"}
    assert refusal(412, s3.put_object, **fields, Body=b"y", IfNoneMatch="*") == "PreconditionFailed"
    place.store.delete_many([place.key("x")])
    assert refusal(404, s3.get_object, **fields) == "NoSuchVersion", "as in lakeFS, for deleted bytes"


def test_only_the_sandbox_s_credentials_sign(place: Place) -> None:
    wrong_secret = s3_client(place.server, aws_secret_access_key="wrong")
    assert refusal(403, wrong_secret.list_objects_v2, Bucket=REPOSITORY) == "SignatureDoesNotMatch"
    unknown = s3_client(place.server, aws_access_key_id="unknown")
    assert refusal(403, unknown.list_objects_v2, Bucket=REPOSITORY) == "InvalidAccessKeyId"
    unsigned = httpx.get(f"{place.server.endpoint_url}/{REPOSITORY}/main/x")
    assert unsigned.status_code == 404, "no request of the gateway: the API has no such place"


def test_a_presigned_request_is_valid_only_for_its_time_and_key(place: Place, s3: Any) -> None:
    s3.put_object(Bucket=REPOSITORY, Key="main/a b", Body=b"x")
    fields = {"Bucket": REPOSITORY, "Key": "main/a b"}
    url = s3.generate_presigned_url("get_object", Params=fields, ExpiresIn=60)
    assert httpx.get(url).content == b"x"
    assert httpx.get(url.replace("a%20b", "b")).status_code == 403
    upload = s3.generate_presigned_url("put_object", Params=fields | {"Key": "main/up"}, ExpiresIn=60)
    assert httpx.put(upload, content=b"up").status_code == 200
    assert place.read("up") == b"up"
    old = s3.generate_presigned_url("get_object", Params=fields, ExpiresIn=0)
    assert httpx.get(old).status_code == 403


def test_a_body_that_differs_from_the_signed_one_is_rejected(place: Place, s3: Any) -> None:
    def tamper(request: Any, **_: Any) -> None:
        request.body = b"evil"

    s3.meta.events.register("before-send.s3.PutObject", tamper)
    code = refusal(400, s3.put_object, Bucket=REPOSITORY, Key="main/x", Body=b"good")
    assert code == "XAmzContentSHA256Mismatch"
    assert place.paths() == []


def test_an_unsigned_header_is_rejected(place: Place, s3: Any) -> None:
    def tamper(request: Any, **_: Any) -> None:
        request.headers["x-amz-copy-source"] = f"{REPOSITORY}/main/secret"

    s3.put_object(Bucket=REPOSITORY, Key="main/secret", Body=b"x")
    s3.meta.events.register("before-send.s3.PutObject", tamper)
    assert refusal(403, s3.put_object, Bucket=REPOSITORY, Key="main/x", Body=b"good") == "AccessDenied"
    assert place.paths() == ["secret"]


@pytest.mark.parametrize("body", [b"", b"<Delete", b"<!DOCTYPE x><Delete/>", b"<Delete><Object/></Delete>"])
def test_an_invalid_document_is_rejected(body: bytes) -> None:
    with pytest.raises(S3Error) as caught:
        read_keys_to_delete(body)
    assert (caught.value.status, caught.value.code) == (400, "MalformedXML")


def test_an_expired_request_is_rejected(tmp_path: Path) -> None:
    late = FakeClock(system_clock())
    late.advance(minutes=16)
    location = StoreLocation((tmp_path / "objects").as_uri())
    with SandboxServer(tmp_path / "state", location, options=SandboxOptions(), clock=late) as server:
        assert refusal(403, s3_client(server).list_buckets) == "RequestTimeTooSkewed"
