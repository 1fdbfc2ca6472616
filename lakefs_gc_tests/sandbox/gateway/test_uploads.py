"""Multipart uploads to the S3 gateway, with the unmodified boto3."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import pytest
from boto3.s3.transfer import TransferConfig

from lakefs_gc.sandbox.gateway.uploads import Uploads
from lakefs_gc_tests.support.fake_clock import FakeClock
from lakefs_gc_tests.support.gateway_client import refusal
from lakefs_gc_tests.support.sandbox_place import REPOSITORY, Place

MIB = 1 << 20


def test_the_parts_of_an_upload_become_one_object(place: Place, s3: Any) -> None:
    body = os.urandom(12 * MIB + 5)
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
    extra = {"ContentType": "text/csv", "Metadata": {"k": "v"}}
    s3.upload_fileobj(io.BytesIO(body), REPOSITORY, "main/big", Config=config, ExtraArgs=extra)
    head = s3.head_object(Bucket=REPOSITORY, Key="main/big")
    digests = [hashlib.md5(body[i : i + 5 * MIB]).digest() for i in range(0, len(body), 5 * MIB)]
    assert head["ETag"] == f'"{hashlib.md5(b"".join(digests)).hexdigest()}-3"'
    assert (head["ContentLength"], head["ContentType"], head["Metadata"]) == (len(body), "text/csv", {"k": "v"})
    target = io.BytesIO()
    s3.download_fileobj(REPOSITORY, "main/big", target, Config=config)
    assert target.getvalue() == body == place.store.read(place.key("big"))


def test_an_aborted_multipart_upload_leaves_nothing(place: Place, s3: Any, tmp_path: Path) -> None:
    where = {"Bucket": REPOSITORY, "Key": "main/x"}
    upload = where | {"UploadId": s3.create_multipart_upload(**where)["UploadId"]}
    e_tag = s3.upload_part(**upload, PartNumber=1, Body=b"one")["ETag"]
    wrong = {"Parts": [{"PartNumber": 1, "ETag": '"' + "0" * 32 + '"'}]}
    assert refusal(400, s3.complete_multipart_upload, **upload, MultipartUpload=wrong) == "InvalidPart"
    assert s3.upload_part(**upload, PartNumber=2, Body=b"one")["ETag"] == e_tag
    backwards = {"Parts": [{"PartNumber": 2, "ETag": e_tag}, {"PartNumber": 1, "ETag": e_tag}]}
    assert refusal(400, s3.complete_multipart_upload, **upload, MultipartUpload=backwards) == "InvalidPart"
    elsewhere = upload | {"Key": "main/y"}
    assert refusal(404, s3.upload_part, **elsewhere, PartNumber=1, Body=b"x") == "NoSuchUpload"
    s3.abort_multipart_upload(**upload)
    parts = {"Parts": [{"PartNumber": 1, "ETag": e_tag}]}
    assert refusal(404, s3.complete_multipart_upload, **upload, MultipartUpload=parts) == "NoSuchUpload"
    assert [batch for batch in place.store.list("data/") if batch.num_rows] == []
    assert list((tmp_path / "state" / "uploads").iterdir()) == []
    nowhere = {"Bucket": REPOSITORY, "Key": "none/x"}
    assert refusal(404, s3.create_multipart_upload, **nowhere) == "NoSuchBucket"


def test_parts_and_unfinished_uploads_are_listed_in_pages(place: Place, s3: Any) -> None:
    where = {"Bucket": REPOSITORY, "Key": "main/x"}
    upload = where | {"UploadId": s3.create_multipart_upload(**where)["UploadId"]}
    assert s3.list_parts(**upload).get("Parts", []) == []
    bodies = {number: b"x" * number for number in (1, 2, 7, 10_000)}
    sent = {number: s3.upload_part(**upload, PartNumber=number, Body=body)["ETag"] for number, body in bodies.items()}
    sent[2] = s3.upload_part(**upload, PartNumber=2, Body=b"another")["ETag"]
    pages = list(s3.get_paginator("list_parts").paginate(**upload, PaginationConfig={"PageSize": 3}))
    assert [page["IsTruncated"] for page in pages] == [True, False]
    parts = [part for page in pages for part in page["Parts"]]
    assert {part["PartNumber"]: part["ETag"] for part in parts} == sent
    assert [part["Size"] for part in parts] == [1, 7, 7, 10_000]
    for number in (0, 10_001):
        assert refusal(400, s3.upload_part, **upload, PartNumber=number, Body=b"x") == "InvalidArgument"

    place.branch("dev")
    others = ["dev/y", "main/x", "main/z ä"]
    begun = [(upload["Key"], upload["UploadId"])]
    begun += [(key, s3.create_multipart_upload(Bucket=REPOSITORY, Key=key)["UploadId"]) for key in others]

    def unfinished(**fields: Any) -> list[tuple[str, str]]:
        found = s3.get_paginator("list_multipart_uploads").paginate(Bucket=REPOSITORY, **fields)
        return [(item["Key"], item["UploadId"]) for page in found for item in page.get("Uploads", [])]

    assert unfinished() == sorted(begun)
    assert unfinished(PaginationConfig={"PageSize": 1}) == sorted(begun)
    assert unfinished(Prefix="dev/") == begun[1:2]
    assert unfinished(KeyMarker="main/x") == begun[3:], "without an id: all uploads to that key are passed over"
    assert refusal(404, s3.list_parts, **where, UploadId="0" * 32) == "NoSuchUpload"
    for key, upload_id in begun:
        s3.abort_multipart_upload(Bucket=REPOSITORY, Key=key, UploadId=upload_id)
    assert unfinished() == []


def test_parts_can_be_copied(place: Place, s3: Any) -> None:
    body = os.urandom(3 * MIB)
    s3.put_object(Bucket=REPOSITORY, Key="main/source ä", Body=body)
    where = {"Bucket": REPOSITORY, "Key": "main/x"}
    upload = where | {"UploadId": s3.create_multipart_upload(**where)["UploadId"]}
    source = {"Bucket": REPOSITORY, "Key": "main/source ä"}
    parts = []
    for number, part in enumerate(("bytes=0-1048575", "bytes=2097152-3145727", None), 1):
        fields = {"CopySourceRange": part} if part else {}
        copied = s3.upload_part_copy(**upload, PartNumber=number, CopySource=source, **fields)["CopyPartResult"]
        parts.append({"PartNumber": number, "ETag": copied["ETag"]})
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    expected = body[:MIB] + body[2 * MIB :] + body
    assert s3.get_object(**where)["Body"].read() == expected
    assert place.store.read(place.key("x")) == expected
    upload = where | {"UploadId": s3.create_multipart_upload(**where)["UploadId"]}
    call, missing = s3.upload_part_copy, source | {"Key": "main/none"}
    assert refusal(404, call, **upload, PartNumber=1, CopySource=missing) == "NoSuchKey"
    outside = "bytes=9999999-99999999"
    assert refusal(416, call, **upload, PartNumber=1, CopySource=source, CopySourceRange=outside) == "InvalidRange"
    assert s3.list_parts(**upload).get("Parts", []) == []


def test_an_unfinished_upload_is_removed_after_its_lifetime(tmp_path: Path, clock: FakeClock) -> None:
    uploads = Uploads(tmp_path, clock)
    old = uploads.begin("demo/main/old", {})
    uploads.put_part(old, "demo/main/old", 1, iter([b"x"]))
    clock.advance(days=4)
    new = uploads.begin("demo/main/new", {})
    clock.advance(days=4)
    restarted = Uploads(tmp_path, clock)
    assert [upload.upload_id for upload in restarted.unfinished("demo")] == [new]
    assert [folder.name for folder in tmp_path.iterdir()] == [new]
    clock.advance(days=4)
    newest = restarted.begin("demo/main/newest", {})
    assert [folder.name for folder in tmp_path.iterdir()] == [newest]


def test_an_interrupted_part_leaves_nothing(tmp_path: Path, clock: FakeClock) -> None:
    def broken() -> Any:
        yield b"x"
        raise OSError("the client is gone")

    uploads = Uploads(tmp_path, clock)
    upload_id = uploads.begin("demo/main/x", {})
    before = sorted((tmp_path / upload_id).iterdir())
    with pytest.raises(OSError, match="gone"):
        uploads.put_part(upload_id, "demo/main/x", 1, broken())
    assert sorted((tmp_path / upload_id).iterdir()) == before
