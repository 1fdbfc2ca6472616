"""Checksums, uploads in parts, copies and settings in Google's store."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
import urllib3

from lakefs_gc.cli.doctor import _space_after_deletes
from lakefs_gc.config import Settings, SweepSettings
from lakefs_gc.engine.undo.same_content import same_content
from lakefs_gc.errors import AccessDeniedError, ConfigurationError, StorageError, StoreUnavailableError
from lakefs_gc.sandbox.fake_gcs import FakeGCS
from lakefs_gc.storage.base import ContentFacts, ObjectInfo, VersionedTarget
from lakefs_gc.storage.freed_space import freed_space
from lakefs_gc.storage.gcs.content import PART_BYTES, is_same
from lakefs_gc.storage.gcs.store import GCSStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.gcs_stand_in import GCSStandIn, Reply, error, resource

MD5 = hashlib.md5(b"1").hexdigest()


def test_an_object_has_both_checksums(gcs_namespace: StoreLocation) -> None:
    store = GCSStore(gcs_namespace)
    store.put("a", b"1")
    assert store.content_facts("a") == ContentFacts(1, {"md5": MD5, "crc32c": "kPWZ4w=="})
    assert store.content_md5(["a", "none"]) == {"a": MD5}


@pytest.mark.parametrize(
    "answer",
    [
        Reply(308, b"", {"Location": "https://elsewhere.test/"}),
        Reply(200, b"<html>Sign in</html>"),
        resource(md5Hash="x"),
    ],
    ids=["a redirect", "a page", "no checksum"],
)
def test_an_answer_that_does_not_name_what_was_sent_is_no_upload(
    gcs: GCSStandIn, store: GCSStore, answer: Reply
) -> None:
    """An intent, an approval or a note of a restore that was not written would be relied on."""
    gcs.replies["upload"] = lambda *_: answer
    for if_absent in (False, True):
        with pytest.raises(StorageError):
            store.put("lakefs-gc/intent.parquet", b"x", if_absent=if_absent)


def _upload_in_parts(gcs: GCSStandIn, of_part: Callable[[bytes], Reply]) -> None:
    """Begin each upload in parts, and answer each part by ``of_part``."""
    begun = Reply(200, b"{}", {"Location": f"{gcs.endpoint}/x?upload_id=u1"})
    gcs.replies["upload"] = lambda _, path, body: of_part(body) if "upload_id" in path else begun
    gcs.replies["PUT"] = lambda _, __, body: of_part(body)


def test_a_part_of_which_nothing_arrives_is_not_sent_for_ever(gcs: GCSStandIn, store: GCSStore) -> None:
    sent: list[int] = []

    def nothing(body: bytes) -> Reply:
        sent.append(len(body))
        return Reply(308 if len(sent) < 60 else 400)

    _upload_in_parts(gcs, nothing)
    with pytest.raises(StorageError, match="received nothing"):
        store.put_stream("x", BytesIO(b"a" * (PART_BYTES + 1)))
    assert len(sent) < 20


def test_a_page_for_the_last_part_is_no_upload(gcs: GCSStandIn, store: GCSStore) -> None:
    received = Reply(308, b"", {"Range": f"bytes=0-{PART_BYTES - 1}"})
    _upload_in_parts(gcs, lambda body: received if len(body) == PART_BYTES else Reply(200, b"<html>Sign in</html>"))
    with pytest.raises(StorageError):
        store.put_stream("x", BytesIO(b"a" * (PART_BYTES + 1)))


def test_a_copy_without_a_resource_is_no_copy(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["GET"] = lambda *_: resource(crc32c="AAAAAA==")
    gcs.replies["POST"] = lambda *_: Reply(200, b'{"done": true}')
    with pytest.raises(StorageError):
        store.copy_to("a", GCSStore(StoreLocation("gs://bucket/backup"), store.retry), "b")


def test_a_composite_object_is_proved_by_its_crc32c(
    fake_gcs: FakeGCS, gcs_namespace: StoreLocation, tmp_path: Path, gcs: GCSStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    crc32c = {"crc32c": "kPWZ4w=="}
    gcs.replies["GET"] = lambda *_: resource(1, **crc32c)
    composite = GCSStore(StoreLocation("gs://bucket/ns"))
    assert composite.content_facts("a") == ContentFacts(1, crc32c)
    assert composite.content_md5(["a"]) == {}
    composite._client()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake_gcs.endpoint)
    plain = GCSStore(gcs_namespace)
    plain.put("a", b"1")
    proof, *_ = same_content(composite, "a", plain, "a")
    assert str(proof) == "crc32c by stores"
    plain.put("a", b"2")
    assert same_content(composite, "a", plain, "a")[0] is None


def test_without_a_common_checksum_nothing_is_proved() -> None:
    md5, crc32c = ContentFacts(1, {"md5": MD5}), ContentFacts(1, {"crc32c": "kPWZ4w=="})
    assert not is_same(md5, crc32c)
    assert is_same(md5, ContentFacts(1, {**md5.checksums, **crc32c.checksums}))
    assert not is_same(md5, ContentFacts(2, md5.checksums))


@pytest.mark.parametrize("md5", ["", "x", base64.b64encode(b"short").decode(), None, 5])
def test_an_invalid_md5_is_none(gcs: GCSStandIn, store: GCSStore, md5: object) -> None:
    gcs.replies["GET"] = lambda *_: resource(1, md5Hash=md5)
    assert store.content_facts("a") == ContentFacts(1, {})


def test_content_that_is_stored_compressed_is_read_as_stored(fake_gcs: FakeGCS, gcs_namespace: StoreLocation) -> None:
    store = GCSStore(gcs_namespace)
    stored = gzip.compress(b"text " * 100)
    query = {"uploadType": "media", "name": f"{store.root}a", "contentEncoding": "gzip"}
    url = f"{fake_gcs.endpoint}/upload/storage/v1/b/{store.folder.bucket}/o"
    assert urllib3.request("POST", f"{url}?{'&'.join(f'{k}={v}' for k, v in query.items())}", body=stored).status == 200
    assert store.read("a") == stored
    with store.open_read("a") as stream:
        assert stream.read() == stored
    assert store.read_end("a", 8) == stored[-8:]


# -- reading -----------------------------------------------------------------------------------------------------


def test_a_cut_content_is_read_again_and_never_taken_for_the_whole(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["GET"] = lambda number, *_: Reply(200, b"123", announced=None if number == 3 else 5)
    assert store.read("a") == b"123"
    gcs.replies["GET"] = lambda *_: Reply(200, b"123", announced=5)
    with pytest.raises(StoreUnavailableError):
        store.read("a")
    with pytest.raises(StoreUnavailableError), store.open_read("a") as stream:
        stream.read()


def test_a_content_of_unknown_size_may_be_cut(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["GET"] = lambda *_: Reply(200, b"123", announced=-1)
    with pytest.raises(StoreUnavailableError):
        store.read("a")
    with pytest.raises(StoreUnavailableError), store.open_read("a") as stream:
        stream.read()


def test_the_end_of_an_empty_object(gcs: GCSStandIn, store: GCSStore) -> None:
    def answer(_: int, path: str, __: bytes) -> Reply:
        return error(416, "requestedRangeNotSatisfiable", "") if "alt=media" in path else resource(1, size="0")

    gcs.replies["GET"] = answer
    assert store.read_end("a", 4) == b""
    gcs.replies["GET"] = lambda _, path, __: error(416) if "alt=media" in path else resource(1, size="3")
    with pytest.raises(StorageError):
        store.read_end("a", 4)


# -- uploads -----------------------------------------------------------------------------------------------------


class Uploads:
    """A server of resumable uploads, as Google's: it keeps what arrived, and says how much."""

    def __init__(self) -> None:
        self.content = b""
        self.breaks: set[int] = set()
        """Requests with content whose answer is lost; only half of the content arrives."""
        self.lost = False
        self.changed = False
        self.puts = 0
        self.deleted = ""

    def answer(self, _: int, path: str, body: bytes, headers: dict[str, str]) -> Reply | None:
        if "upload_id" not in path:
            where = "http://elsewhere.test/upload/storage/v1/b/bucket/o?uploadType=resumable&upload_id=u1"
            return Reply(200, b"{}", {"Location": where})
        assert "upload_id=u1" in path
        if self.lost:
            return error(410, "gone", "")
        given, __, total = headers["Content-Range"].removeprefix("bytes ").partition("/")
        if given != "*":
            self.puts += 1
            start, end = (int(number) for number in given.split("-"))
            assert start == len(self.content)
            assert len(body) == end - start + 1
            if self.puts in self.breaks:
                self.content += body[: len(body) // 2]
                return None
            self.content += body
        if total != "*" and len(self.content) == int(total):
            md5 = base64.b64encode(hashlib.md5(self.content[self.changed :]).digest()).decode()
            return resource(3, size=str(len(self.content)), md5Hash=md5)
        received = {"Range": f"bytes=0-{len(self.content) - 1}"} if self.content else {}
        return Reply(308, b"", received)


@pytest.fixture
def uploads(gcs: GCSStandIn, monkeypatch: pytest.MonkeyPatch) -> Uploads:
    server, answer = Uploads(), gcs._answer

    def with_headers(method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply | None:
        if path.startswith("/upload"):
            return server.answer(0, path, body, headers)
        if method == "DELETE":
            server.deleted = path
            return Reply(204)
        return answer(method, path, body, headers)

    monkeypatch.setattr(gcs, "_answer", with_headers)
    return server


@pytest.mark.parametrize("breaks", [set(), {1}, {2, 3}, {4}])
def test_an_upload_continues_where_the_store_lost_the_connection(
    uploads: Uploads, store: GCSStore, breaks: set[int]
) -> None:
    content = os.urandom(2 * PART_BYTES + 12345)
    uploads.breaks = breaks
    assert store.put_stream("a", BytesIO(content))
    assert uploads.content == content


def test_a_stream_that_ends_with_a_part(uploads: Uploads, store: GCSStore) -> None:
    content = os.urandom(2 * PART_BYTES)
    assert store.put("a", content)
    assert uploads.content == content
    assert uploads.puts == 2


def test_an_upload_that_the_store_lost(uploads: Uploads, store: GCSStore) -> None:
    uploads.lost = True
    with pytest.raises(StoreUnavailableError, match="lost an upload"):
        store.put_stream("a", BytesIO(bytes(PART_BYTES + 1)))


def test_other_content_than_was_sent_is_deleted(uploads: Uploads, store: GCSStore) -> None:
    uploads.changed = True
    with pytest.raises(StorageError, match="does not have the content that was sent"):
        store.put_stream("a", BytesIO(os.urandom(PART_BYTES + 1)))
    assert uploads.deleted.endswith("/ns%2Fa?ifGenerationMatch=3")


def test_an_upload_after_a_broken_connection_finds_itself(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["upload"] = lambda number, *_: None if number == 1 else error(412, "conditionNotMet", "")
    gcs.replies["GET"] = lambda *_: resource(1, md5Hash=base64.b64encode(bytes.fromhex(MD5)).decode())
    assert store.put("a", b"1", if_absent=True)
    assert not store.put("a", b"1", if_absent=True), "the first try: it is another writer's"
    gcs.replies["upload"] = lambda number, *_: None if number % 2 else error(412, "conditionNotMet", "")
    assert not store.put("a", b"2", if_absent=True)


def test_a_long_stream_does_not_replace(gcs_namespace: StoreLocation) -> None:
    store = GCSStore(gcs_namespace)
    store.put("a", b"1")
    content = os.urandom(PART_BYTES + 1)
    assert store.put_stream("a", BytesIO(content), if_absent=True) is False
    assert store.read("a") == b"1"
    assert store.put_stream("b", BytesIO(content), if_absent=True) is True
    assert store.read("b") == content


# -- copies ------------------------------------------------------------------------------------------------------


def test_the_store_copies_in_steps_and_proves_the_copy(gcs: GCSStandIn, store: GCSStore) -> None:
    checksums = {"crc32c": "AAAAAA=="}
    gcs.replies["GET"] = lambda *_: resource(5, **checksums)

    def answer(number: int, path: str, _: bytes) -> Reply:
        assert path.startswith("/storage/v1/b/bucket/o/ns%2Fa/rewriteTo/b/other/o/x%2Fb%20c?sourceGeneration=5")
        assert ("rewriteToken=t1" in path) == (number == 2)
        copied = {"size": "1", "updated": "2025-06-01T12:00:00Z", "generation": "6", **checksums}
        if number == 1:
            return Reply(200, json.dumps({"done": False, "rewriteToken": "t1"}).encode())
        return Reply(200, json.dumps({"done": True, "resource": copied}).encode())

    gcs.replies["POST"] = answer
    other = GCSStore(StoreLocation("gs://other/x"))
    assert store.copy_to("a", other, "b c")
    assert gcs.count("POST") == 2
    gcs.requests.clear()
    checksums["crc32c"] = "BBBBBB=="
    gcs.replies["GET"] = lambda *_: resource(5, crc32c="AAAAAA==")
    with pytest.raises(StorageError, match="the copy differs"):
        store.copy_to("a", other, "b c")


def test_a_copy_does_not_replace(gcs_namespace: StoreLocation) -> None:
    store = open_store(gcs_namespace)
    store.put("a", b"1")
    assert store.copy_to("a", store, "b", if_absent=True)
    store.put("a", b"2")
    assert not store.copy_to("a", store, "b", if_absent=True)
    assert store.read("b") == b"1"
    assert store.copy_to("a", store, "b")
    assert store.read("b") == b"2"


def test_a_copy_that_another_writer_overtakes_does_not_replace(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["GET"] = lambda number, *_: resource(5) if number == 1 else error(404, "", "No such object: x")
    gcs.replies["POST"] = lambda *_: error(412, "conditionNotMet", "")
    assert not store.copy_to("a", store, "b", if_absent=True)
    assert "ifGenerationMatch=0" in gcs.requests[-1][1]


# -- settings ----------------------------------------------------------------------------------------------------


def settings_of(gcs: GCSStandIn, **settings: object) -> None:
    gcs.replies["GET"] = lambda *_: Reply(200, json.dumps({"kind": "storage#bucket", **settings}).encode())


def test_what_keeps_the_bytes_of_deleted_objects(gcs: GCSStandIn, store: GCSStore) -> None:
    settings_of(gcs, softDeletePolicy={"retentionDurationSeconds": "0"}, versioning={"enabled": False})
    assert freed_space(store).state == "freed at once"
    settings_of(gcs, softDeletePolicy={"retentionDurationSeconds": "604800"})
    assert store.space_not_freed() == "the bucket bucket keeps deleted objects for 7 days (soft delete)"
    settings_of(gcs, versioning={"enabled": True}, retentionPolicy={"retentionPeriod": "86400"})
    assert "keeps versions" in store.space_not_freed()
    assert "younger than 1 day cannot" in store.space_not_freed()
    settings_of(gcs, defaultEventBasedHold=True)
    assert "holds new objects" in store.space_not_freed()


def test_settings_that_cannot_be_read_are_unknown(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["GET"] = lambda *_: error(403, "forbidden", "no")
    with pytest.raises(AccessDeniedError):
        store.space_not_freed()
    assert freed_space(store).state == "unknown"
    gcs.replies["GET"] = lambda *_: Reply(200, b"{}")
    assert freed_space(store).state == "unknown"


def test_versions_in_the_emulator(fake_gcs: FakeGCS, gcs_namespace: StoreLocation) -> None:
    url = f"{fake_gcs.endpoint}/storage/v1/b"
    body = {"name": "versioned", "versioning": {"enabled": True}}
    assert urllib3.request("POST", url, json=body).status == 200
    store = GCSStore(StoreLocation("gs://versioned/x"))
    assert "keeps versions" in store.space_not_freed()
    assert GCSStore(gcs_namespace).space_not_freed() == ""
    with pytest.raises(ConfigurationError, match="does not delete versions"):
        store.find_versions([VersionedTarget("a", ObjectInfo(1, store.now(), ""), store.now())])


def test_a_delete_keeps_the_versions(fake_gcs: FakeGCS, gcs_namespace: StoreLocation) -> None:
    """The other condition on a generation would delete the version for good."""
    urllib3.request("POST", f"{fake_gcs.endpoint}/storage/v1/b", json={"name": "kept", "versioning": {"enabled": True}})
    store = GCSStore(StoreLocation("gs://kept/x"))
    store.put("a", b"1")
    info = store.stat_many(["a"])["a"]
    store.delete_unchanged([VersionedTarget("a", info, info.last_modified)])
    assert store.stat_many(["a"]) == {}
    listed = urllib3.request("GET", f"{fake_gcs.endpoint}/storage/v1/b/kept/o?versions=true").json()
    assert [item["generation"] for item in listed["items"]] == [info.e_tag]


@pytest.mark.parametrize(("delete_versions", "verdict"), [(False, "warn"), (True, "fail")])
def test_doctor_recommends_nothing_that_a_sweep_refuses(
    gcs: GCSStandIn, store: GCSStore, delete_versions: bool, verdict: str
) -> None:
    bucket = {"kind": "storage#bucket", "softDeletePolicy": {"retentionDurationSeconds": "604800"}}
    gcs.replies["GET"] = lambda *_: Reply(200, json.dumps(bucket).encode())
    found = _space_after_deletes(store, Settings(sweep=SweepSettings(delete_versions=delete_versions)))
    assert found.verdict == verdict
    assert "set sweep.delete_versions to false" in found.remedy or "sweep.delete_versions" not in found.remedy
