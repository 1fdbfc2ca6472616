"""Writes that have begun and not ended: no listing shows them, but the stores find them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lakefs_gc.errors import AccessDeniedError, NamespaceError, ObjectNotFoundError, StorageError
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.base import UnfinishedWrite
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.faulty_s3 import Answer, FaultyS3, Request, error
from lakefs_gc_tests.support.killed_copy import WRITTEN_BYTES, leave_unfinished

KEY = "data/s/a"


@pytest.fixture(params=["local", "s3"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    if request.param == "s3":
        in_s3: StoreLocation = request.getfixturevalue("s3_namespace")
        return in_s3
    (tmp_path / "with space").mkdir()
    return StoreLocation(f"file://{tmp_path}/with space")


def test_what_a_killed_write_leaves(location: StoreLocation) -> None:
    """It has no object, so a listing and a look-up show nothing."""
    store = open_store(location)
    began_at = store.now()
    leave_unfinished(store, KEY, "other/s/b")
    assert list(store.list()) == []
    assert store.stat_many([KEY]) == {}
    found = store.unfinished_of([KEY, "data/s2/a", "data/none/a"])
    assert set(found) == {KEY}
    [write] = found[KEY]
    assert (write.since - began_at).total_seconds() > -2
    assert list(store.unfinished_below("data/s/")) == [write]
    assert len(list(store.unfinished_below())) == 2
    assert list(store.unfinished_below("data/s2")) == []

    store.discard([write, write])
    assert store.unfinished_of([KEY]) == {}
    assert len(list(store.unfinished_below())) == 1
    store.put("other/s/b", b"whole")  # what is written again does not end the other write
    assert list(store.unfinished_of(["other/s/b"])) == ["other/s/b"]


def test_a_file_is_of_some_object_of_its_folder(tmp_path: Path) -> None:
    store = open_store(StoreLocation(f"file://{tmp_path}/with space"))
    leave_unfinished(store, KEY)
    found = store.unfinished_of([KEY, "data/s/b", "data/s/deeper/a", "data/a", "data//a", "../a"])
    assert set(found) == {KEY, "data/s/b"}
    [write] = found[KEY]
    assert (write.upload_id, write.size_bytes) == ("", WRITTEN_BYTES)
    subprocess.run(write.remove_with, shell=True, check=True)
    assert store.unfinished_of([KEY]) == {}
    store.discard([write])  # the folders go with the last file in them
    assert list((tmp_path / "with space").iterdir()) == []


def test_a_folder_that_is_missing_or_behind_a_link_has_no_answer(tmp_path: Path) -> None:
    missing = open_store(StoreLocation((tmp_path / "not-mounted").as_uri()))
    with pytest.raises(ObjectNotFoundError):
        missing.unfinished_of([KEY])
    store = open_store(StoreLocation(tmp_path.as_uri()))
    (tmp_path / "moved" / "s").mkdir(parents=True)
    (tmp_path / "data").symlink_to(tmp_path / "moved")
    with pytest.raises(NamespaceError, match="symbolic link"):
        store.unfinished_of([KEY])


def test_an_upload_is_of_one_key(s3_namespace: StoreLocation, s3_server: SeaweedFS) -> None:
    """Of that key alone, although S3 lists by prefix. A key with a blank is quoted in the command."""
    store, client = open_store(s3_namespace), s3_server.client()
    bucket, _, root = s3_namespace.folder_url.removeprefix("s3://").partition("/")
    ids = {}
    for key in (KEY, f"{KEY}b", f"{KEY} & c"):
        ids[key] = client.create_multipart_upload(Bucket=bucket, Key=root + key)["UploadId"]
    found = store.unfinished_of([*ids, "data/s", "data/../a"])
    assert {key: [write.upload_id for write in writes] for key, writes in found.items()} == {
        key: [upload_id] for key, upload_id in ids.items()
    }
    quoted = f"--key '{root}{KEY} & c' --upload-id {ids[f'{KEY} & c']}"
    command = f"aws s3api abort-multipart-upload --bucket {bucket} {quoted}"
    assert found[f"{KEY} & c"][0].remove_with == command


def uploads(entries: str, *, prefix: str = "p/", rest: str = "<IsTruncated>false</IsTruncated>") -> Answer:
    page = f"<Bucket>bucket</Bucket><Prefix>{prefix}</Prefix>{rest}{entries}"
    return Answer(body=f"<ListMultipartUploadsResult>{page}</ListMultipartUploadsResult>".encode())


def entry(key: str, upload_id: str) -> str:
    facts = f"<Key>{key}</Key><UploadId>{upload_id}</UploadId><Initiated>2026-01-01T00:00:00.000Z</Initiated>"
    return f"<Upload>{facts}</Upload>"


def listed(server: FaultyS3, *answers: Answer) -> list[UnfinishedWrite]:
    """List uploads from a server that gives these answers one after the other, the last one again and again."""
    remaining = list(answers)

    def answer(request: Request) -> Answer | None:
        if "uploads" not in request.query:
            return None
        return remaining.pop(0) if len(remaining) > 1 else remaining[0]

    server.faults = [answer]
    return list(open_store(StoreLocation("s3://bucket/p")).unfinished_below())


def test_all_pages_are_read(faulty_s3: FaultyS3) -> None:
    more = "<IsTruncated>true</IsTruncated><NextUploadIdMarker>1</NextUploadIdMarker>"
    found = listed(faulty_s3, uploads(entry("p/a", "1"), rest=more), uploads(entry("p/a", "2") + entry("q", "3")))
    assert [(write.key, write.upload_id) for write in found] == [("a", "1"), ("a", "2")]
    markers = [request.query.get("upload-id-marker") for request in faulty_s3.requests]
    assert markers == [None, "1"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (uploads("", rest="<IsTruncated>true</IsTruncated><NextKeyMarker>a</NextKeyMarker>"), "never ends"),
        (uploads("", rest="<IsTruncated>true</IsTruncated>"), "never ends"),
        (uploads("", prefix="other/"), "another prefix"),
        (Answer(body=b"<ListBucketResult><Name>bucket</Name></ListBucketResult>"), "lists no uploads"),
        (Answer(), "lists no uploads"),
        (error(501, "NotImplemented"), "ListBucketMultipartUploads failed"),
        (uploads("<Upload><Key>p/a</Key><UploadId>1</UploadId></Upload>"), "Initiated"),
    ],
)
def test_what_is_no_list_of_uploads(faulty_s3: FaultyS3, answer: Answer, message: str) -> None:
    """It must not pass for an empty list."""
    with pytest.raises(StorageError, match=message):
        listed(faulty_s3, answer)


def test_a_missing_permission_is_named(faulty_s3: FaultyS3) -> None:
    with pytest.raises(AccessDeniedError, match="s3:ListBucketMultipartUploads") as raised:
        listed(faulty_s3, error(403, "AccessDenied"))
    assert "arn:aws:s3:::bucket," in raised.value.remedy
