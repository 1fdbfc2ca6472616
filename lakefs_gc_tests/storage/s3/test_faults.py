"""The S3 store against a server that fails in the ways S3 servers do."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lakefs_gc.errors import (
    AccessDeniedError,
    ConfigurationError,
    ObjectNotFoundError,
    StorageError,
    StoreUnavailableError,
)
from lakefs_gc.storage.base import DeletionOutcome, ObjectStore
from lakefs_gc.storage.delete_window import DeleteWindow
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc_tests.support.faulty_s3 import Answer, FaultyS3, Request, deleted, error

QUICK = RetryPolicy(tries=4, tries_when_slow=7, base_seconds=0.001)
_TIME = {"Last-Modified": "Sun, 01 Jun 2025 12:00:00 GMT"}


@pytest.fixture
def server(faulty_s3: FaultyS3) -> FaultyS3:
    return faulty_s3


@pytest.fixture
def store(server: FaultyS3) -> ObjectStore:
    return open_store(StoreLocation("s3://bucket/ns"), retry=QUICK)


def fill(server: FaultyS3, count: int) -> list[str]:
    keys = [f"data/s/{number:04d}" for number in range(count)]
    server.objects.update({f"ns/{key}": b"content" for key in keys})
    return keys


def listed(store: ObjectStore) -> list[str]:
    return [key for batch in store.list("data/") for key in batch["address"].to_pylist()]


def fail_first(times: int, operation: str, answer: Answer) -> Callable[[Request], Answer | None]:
    return lambda request: answer if request.operation == operation and request.number <= times else None


def outcomes(store: ObjectStore, keys: list[str]) -> dict[str, str]:
    """The error of each key that failed; checks that there is one answer for each key, in order."""
    answers = store.delete_many(keys)
    assert [answer.key for answer in answers] == keys
    assert all((answer.outcome is DeletionOutcome.DELETED) != bool(answer.error) for answer in answers)
    return {answer.key: answer.error for answer in answers if answer.error}


# -- deleting -------------------------------------------------------------------------------------------------


def test_keys_that_the_store_refuses_fail_alone(server: FaultyS3, store: ObjectStore) -> None:
    keys = fill(server, 10)
    refused = {"ns/data/s/0003": ("AccessDenied", "Access Denied"), "ns/data/s/0007": ("ObjectLocked", "legal hold")}
    server.faults.append(lambda r: deleted(r.keys, refused) if r.operation == "DeleteObjects" else None)
    assert outcomes(store, keys) == {
        "data/s/0003": "AccessDenied: Access Denied",
        "data/s/0007": "ObjectLocked: legal hold",
    }
    assert server.count("DeleteObjects") == 1


def test_a_key_that_is_already_gone_counts_as_deleted(server: FaultyS3, store: ObjectStore) -> None:
    gone = {"ns/data/s/0001": ("NoSuchKey", "The specified key does not exist.")}
    server.faults.append(lambda r: deleted(r.keys, gone) if r.operation == "DeleteObjects" else None)
    assert outcomes(store, fill(server, 3)) == {}


def test_a_key_the_answer_does_not_mention_failed(server: FaultyS3, store: ObjectStore) -> None:
    server.faults.append(lambda r: deleted(r.keys[:-1]) if r.operation == "DeleteObjects" else None)
    failed = outcomes(store, fill(server, 3))
    assert list(failed) == ["data/s/0002"]
    assert "does not mention" in failed["data/s/0002"]


def test_keys_told_to_slow_down_are_tried_again_and_only_they(server: FaultyS3, store: ObjectStore) -> None:
    slow = {"ns/data/s/0002": ("SlowDown", "Please reduce"), "ns/data/s/0004": ("InternalError", "try again")}

    def fault(request: Request) -> Answer | None:
        if request.operation == "DeleteObjects" and request.number <= 2:
            return deleted(request.keys, slow)
        return None

    server.faults.append(fault)
    assert outcomes(store, fill(server, 6)) == {}
    bulk = [request.keys for request in server.requests if request.operation == "DeleteObjects"]
    assert [len(keys) for keys in bulk] == [6, 2, 2]
    assert set(bulk[2]) == set(slow)


def test_keys_told_to_slow_down_for_ever_fail(server: FaultyS3, store: ObjectStore) -> None:
    slow = {"ns/data/s/0002": ("SlowDown", "Please reduce")}
    server.faults.append(
        lambda r: deleted(r.keys, slow if set(slow) <= set(r.keys) else {}) if r.operation == "DeleteObjects" else None
    )
    assert outcomes(store, fill(server, 4)) == {"data/s/0002": "SlowDown: Please reduce"}
    assert server.count("DeleteObjects") == QUICK.tries


@pytest.mark.parametrize("status", [500, 503, 429])
def test_whole_requests_told_to_slow_down_are_tried_again(server: FaultyS3, store: ObjectStore, status: int) -> None:
    keys = fill(server, 3)
    server.faults.append(fail_first(QUICK.tries - 1, "DeleteObjects", error(status, "SlowDown")))
    assert outcomes(store, keys) == {}
    assert server.objects == {}


def test_a_store_that_only_asks_to_slow_down_is_given_longer(server: FaultyS3, store: ObjectStore) -> None:
    [key] = fill(server, 1)
    server.faults.append(fail_first(QUICK.tries_when_slow - 1, "GetObject", error(503, "SlowDown")))
    assert [name for name, _ in store.read_many([key])] == [key]
    assert server.count("GetObject") == QUICK.tries_when_slow


def test_a_store_that_stays_down_is_unavailable(server: FaultyS3, store: ObjectStore) -> None:
    server.faults.append(fail_first(99, "DeleteObjects", error(503, "ServiceUnavailable")))
    with pytest.raises(StoreUnavailableError, match="ServiceUnavailable"):
        store.delete_many(fill(server, 3))
    assert server.count("DeleteObjects") == QUICK.tries


def test_a_key_that_spoils_a_batch_is_isolated(server: FaultyS3, store: ObjectStore) -> None:
    keys = fill(server, 700)
    poison = {f"ns/{keys[123]}", f"ns/{keys[600]}"}

    def fault(request: Request) -> Answer | None:
        if request.operation == "DeleteObjects" and poison & set(request.keys):
            return error(400, "MalformedXML")
        if request.operation == "DeleteObject" and request.keys[0] == f"ns/{keys[600]}":
            return error(400, "InvalidURI")
        return None

    server.faults.append(fault)
    failed = outcomes(store, keys)
    assert list(failed) == [keys[600]]
    assert "InvalidURI" in failed[keys[600]]
    assert list(server.objects) == [f"ns/{keys[600]}"]
    assert server.count("DeleteObject") == 2
    assert server.count("DeleteObjects") < 50


def test_control_characters_never_reach_the_xml(server: FaultyS3, store: ObjectStore) -> None:
    keys = [*fill(server, 2), "data/s/control\x01", "data/s/line\nfeed", "data/s/not a character \uffff"]
    server.objects.update({f"ns/{key}": b"" for key in keys})
    assert outcomes(store, keys) == {}
    assert server.objects == {}
    assert (server.count("DeleteObjects"), server.count("DeleteObject")) == (1, 3)


def test_a_404_without_the_store_s_words_is_no_delete(server: FaultyS3, store: ObjectStore) -> None:
    """A proxy has no route for such a name. The store itself answers NoSuchKey, or that it deleted the object."""
    key = "data/s/control\x01"
    server.objects[f"ns/{key}"] = b""
    for body in (b"<html>Not Found</html>", b""):
        with_page = fail_first(99, "DeleteObject", Answer(404, body))
        server.faults.append(with_page)
        window = DeleteWindow()
        [answer] = store.delete_many([key], window)
        assert answer.outcome is DeletionOutcome.FAILED
        assert window.unanswered
        server.faults.remove(with_page)
    server.faults.append(fail_first(99, "DeleteObject", error(404, "NoSuchKey")))
    assert outcomes(store, [key]) == {}


@pytest.mark.parametrize("page", [Answer(200, b""), Answer(200, b"<html>Sign in</html>"), Answer(202, b"")])
def test_an_answer_that_s3_does_not_give_is_no_delete(server: FaultyS3, store: ObjectStore, page: Answer) -> None:
    """S3 answers a delete of one object with 204."""
    key = "data/s/control\x01"
    server.objects[f"ns/{key}"] = b""
    server.faults.append(fail_first(99, "DeleteObject", page))
    window = DeleteWindow()
    [answer] = store.delete_many([key], window)
    assert answer.outcome is DeletionOutcome.FAILED
    assert window.unanswered


def test_no_right_to_delete(server: FaultyS3, store: ObjectStore) -> None:
    server.faults.append(fail_first(99, "DeleteObjects", error(403, "AccessDenied")))
    with pytest.raises(AccessDeniedError, match=r"Grant these credentials s3:DeleteObject on arn:aws:s3:::bucket/ns/"):
        store.delete_many(fill(server, 100))
    assert len(server.requests) == 1  # no use in halving or trying again


def test_a_bulk_delete_carries_an_md5_for_older_stores(server: FaultyS3, store: ObjectStore) -> None:
    store.delete_many(fill(server, 1))
    assert server.requests[0].headers["content-md5"]


def test_an_e_tag_is_an_md5_only_where_the_store_says_so(server: FaultyS3, store: ObjectStore) -> None:
    """Else a hidden twin under SSE-KMS looks like an object of another content, and is deleted."""
    md5 = "0123456789abcdef" * 2
    heads = {
        "plain": {"ETag": f'"{md5}"'},
        "upper": {"ETag": f'"{md5.upper()}"'},
        "sse-s3": {"ETag": f'"{md5}"', "x-amz-server-side-encryption": "AES256"},
        "sse-kms": {"ETag": f'"{md5}"', "x-amz-server-side-encryption": "aws:kms"},
        "sse-kms twice": {"ETag": f'"{md5}"', "x-amz-server-side-encryption": "aws:kms:dsse"},
        "sse-c": {"ETag": f'"{md5}"', "x-amz-server-side-encryption-customer-algorithm": "AES256"},
        "parts": {"ETag": f'"{md5}-2"'},
        "none": {},
    }
    server.objects.update({f"ns/{key}": b"" for key in heads})
    server.faults.append(
        lambda request: (
            Answer(headers=_TIME | heads[request.keys[0].removeprefix("ns/")])
            if request.keys[0].removeprefix("ns/") in heads
            else None
        )
    )
    assert store.content_md5([*heads, "gone"]) == dict.fromkeys(("plain", "upper", "sse-s3"), md5)
    assert server.count("HeadObject") == len(heads) + 1


# -- listing --------------------------------------------------------------------------------------------------


def test_a_listing_of_many_pages(server: FaultyS3, store: ObjectStore) -> None:
    server.page_size = 7
    keys = fill(server, 50)
    assert listed(store) == keys
    assert server.count("ListObjectsV2") == 8


@pytest.mark.parametrize("announce_length", [True, False])
@pytest.mark.parametrize("cut_at", [150, 900, -10])
def test_a_page_cut_off_is_asked_for_again(
    server: FaultyS3, store: ObjectStore, cut_at: int, announce_length: bool
) -> None:
    """Without Content-Length the HTTP client cannot see it: only the XML tells."""
    server.page_size = 20
    keys = fill(server, 50)

    def fault(request: Request) -> Answer | None:
        if request.number in (2, 3):
            body = server.page(request.query).encode()
            return Answer(body=body, cut_at=cut_at, announce_length=announce_length)
        return None

    server.faults.append(fault)
    assert listed(store) == keys
    assert server.count("ListObjectsV2") == 5


def test_a_page_that_is_always_cut_off_fails_the_listing(server: FaultyS3, store: ObjectStore) -> None:
    server.page_size = 20
    fill(server, 50)
    server.faults.append(
        lambda r: Answer(body=server.page(r.query).encode()[:900], announce_length=False) if r.number > 1 else None
    )
    with pytest.raises(StoreUnavailableError, match="the listing is incomplete"):
        listed(store)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("<IsTruncated>true</IsTruncated>", ""),
        ("<IsTruncated>true</IsTruncated>", "<IsTruncated/>"),
        ("NextContinuationToken>", "NextMarker>"),
        ("<Size>7</Size>", ""),
        ("<Key>", "<key>"),
        ("2025-06-01T12:00:00.000Z", "yesterday"),
        ("<Key>ns/", "<Key>other/"),
    ],
)
def test_a_page_that_does_not_say_all_fails_the_listing(
    server: FaultyS3, store: ObjectStore, right: str, wrong: str
) -> None:
    server.page_size = 20
    fill(server, 50)

    def fault(request: Request) -> Answer:
        page = server.page(request.query)
        return Answer(body=page.replace(right, wrong).encode())

    server.faults.append(fault)
    with pytest.raises(StorageError):
        listed(store)


def test_a_listing_that_goes_round_in_circles(server: FaultyS3, store: ObjectStore) -> None:
    server.page_size = 20
    fill(server, 50)
    server.faults.append(lambda r: Answer(body=server.page({"prefix": "ns/data/"}).encode()))
    with pytest.raises(StorageError, match="repeats a continuation token"):
        listed(store)


def test_an_error_in_spite_of_a_200(server: FaultyS3, store: ObjectStore) -> None:
    keys = fill(server, 3)
    body = error(500, "InternalError").body
    server.faults.append(fail_first(1, "ListObjectsV2", Answer(200, body)))
    assert listed(store) == keys
    server.faults.append(lambda r: Answer(200, body))
    with pytest.raises(StoreUnavailableError):
        listed(store)


@pytest.mark.parametrize(
    ("answer", "fact"),
    [
        (Answer(), "LastModified"),
        (Answer(headers=_TIME, announce_length=False), "ContentLength"),
        (Answer(headers={"Last-Modified": "yesterday"}), "has an invalid header"),
    ],
)
def test_a_success_that_says_nothing_is_no_fact(
    server: FaultyS3, store: ObjectStore, answer: Answer, fact: str
) -> None:
    [key] = fill(server, 1)
    server.faults.append(lambda request: answer if request.operation == "HeadObject" else None)
    for ask in (
        lambda: store.stat_many([key]),
        lambda: store.content_md5([key]),
        lambda: store.content_facts(key),
        lambda: store.copy_to(key, store, "copy"),
    ):
        with pytest.raises(StorageError, match=f"{key} at .*: the answer is a success, but .*{fact}"):
            ask()


def test_directory_markers_are_no_objects(server: FaultyS3, store: ObjectStore) -> None:
    keys = fill(server, 2)
    server.objects.update({"ns/": b"", "ns/data/": b"", "ns/data/s/": b"", "ns/data/s/0000/": b"not empty"})
    assert listed(store) == keys
    assert sum(batch.num_rows for batch in store.list()) == 2


def test_connections_that_break_without_an_answer(server: FaultyS3, store: ObjectStore) -> None:
    keys = fill(server, 3)
    server.faults.append(fail_first(3, "ListObjectsV2", Answer(body=b"x" * 100, cut_at=0)))
    assert listed(store) == keys
    assert server.count("ListObjectsV2") == 4


def test_a_server_that_is_not_there(server: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{unused.getsockname()[1]}")
        store = open_store(StoreLocation("s3://bucket/ns"), retry=QUICK)
        with pytest.raises(StoreUnavailableError, match="reachable"):
            store.now()


def test_no_tls_where_tls_is_expected(server: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint.replace("http:", "https:"))
    store = open_store(StoreLocation("s3://bucket/ns"), retry=QUICK)
    with pytest.raises(StorageError, match="TLS"):
        store.now()


# -- reading and writing --------------------------------------------------------------------------------------


def test_reads_broken_off_are_tried_again(server: FaultyS3, store: ObjectStore) -> None:
    (key,) = fill(server, 1)
    server.faults.append(fail_first(2, "GetObject", Answer(body=b"content", cut_at=3)))
    assert store.read(key) == b"content"
    assert server.count("GetObject") == 3


def test_a_stream_broken_off_is_copied_anew(server: FaultyS3, store: ObjectStore, tmp_path: Path) -> None:
    (key,) = fill(server, 1)
    server.faults.append(fail_first(1, "GetObject", Answer(body=b"content", cut_at=3)))
    local = open_store(StoreLocation(f"file://{tmp_path}/backup"))
    store.copy_to(key, local, key)
    assert local.read(key) == b"content"
    assert server.count("GetObject") == 2


def test_put_if_absent_without_the_stores_help(server: FaultyS3, store: ObjectStore) -> None:
    def fault(request: Request) -> Answer | None:
        if request.operation == "PutObject" and "if-none-match" in request.headers:
            return error(501, "NotImplemented")
        return None

    server.faults.append(fault)
    assert store.put("lock", b"1", if_absent=True) is True
    assert store.put("lock", b"2", if_absent=True) is False
    assert server.objects["ns/lock"] == b"1"


def test_put_if_absent_whose_answer_was_lost_is_still_ours(server: FaultyS3, store: ObjectStore) -> None:
    def fault(request: Request) -> Answer | None:
        if request.operation != "PutObject":
            return None
        if request.number == 1:
            server.right_answer(request)  # written, but the client does not learn it
            return error(503, "ServiceUnavailable")
        return error(412, "PreconditionFailed")

    server.faults.append(fault)
    assert store.put("lock", b"ours", if_absent=True) is True
    del server.objects["ns/lock"]
    server.faults[:] = [fail_first(99, "PutObject", error(412, "PreconditionFailed"))]
    assert store.put("lock", b"ours", if_absent=True) is False


def test_a_missing_bucket_is_no_missing_key(server: FaultyS3, store: ObjectStore) -> None:
    """A HEAD answers 404 to both, without saying which."""
    assert store.stat_many(["none"]) == {}
    server.faults.append(lambda r: error(404, "NoSuchBucket") if r.operation == "ListObjectsV2" else None)
    with pytest.raises(ObjectNotFoundError, match="bucket"):
        store.stat_many(["none"])


@pytest.mark.parametrize(
    ("answer", "kind", "remedy"),
    [
        (error(403, "AccessDenied"), AccessDeniedError, "Grant these credentials s3:ListBucket on arn:aws:s3:::bucket"),
        (error(400, "ExpiredToken"), AccessDeniedError, "Renew"),
        (error(403, "InvalidAccessKeyId"), AccessDeniedError, "Check the AWS credentials"),
        (error(403, "SignatureDoesNotMatch"), AccessDeniedError, "Check the AWS credentials"),
        (error(403, "RequestTimeTooSkewed"), AccessDeniedError, "clock"),
        (error(404, "NoSuchBucket"), ObjectNotFoundError, "name of the bucket"),
        (error(400, "AuthorizationHeaderMalformed"), StorageError, "AWS_REGION"),
        (error(501, "NotImplemented"), StorageError, "Correct the cause"),
    ],
)
def test_refusals_say_what_to_do_and_no_secret(
    server: FaultyS3, store: ObjectStore, answer: Answer, kind: type[StorageError], remedy: str
) -> None:
    server.faults.append(lambda r: answer)
    with pytest.raises(kind) as caught:
        listed(store)
    assert type(caught.value) is kind
    assert remedy in caught.value.remedy
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in f"{caught.value!s} {caught.value.facts}"
    assert server.count("ListObjectsV2") <= 2  # botocore may ask a second time for the region


def test_no_credentials(server: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AccessDeniedError, match="AWS_ACCESS_KEY_ID"):
        listed(open_store(StoreLocation("s3://bucket/ns"), retry=QUICK))


def test_a_profile_that_does_not_exist(server: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(ConfigurationError, match="no-such-profile"):
        listed(open_store(StoreLocation("s3://bucket/ns")))


def test_endpoint_credentials_and_region_of_a_profile(
    server: FaultyS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(
        f"[profile mine]\naws_access_key_id=id-of-profile\naws_secret_access_key=x\nregion=eu-west-3\n"
        f"endpoint_url={server.endpoint}\n"
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    keys = fill(server, 1)
    assert listed(open_store(StoreLocation("s3://bucket/ns"))) == keys
    assert "Credential=id-of-profile/" in server.requests[0].headers["authorization"]
    assert "/eu-west-3/s3/" in server.requests[0].headers["authorization"]


def test_a_listing_with_line_feeds_and_escapes(server: FaultyS3, store: ObjectStore) -> None:
    keys = ["data/s/a\nb", "data/s/a%0Ab", "data/s/a+b", "data/s/a b", "data/s/\x01", "data/s/%25"]
    server.objects.update({f"ns/{key}": b"" for key in keys})
    assert sorted(listed(store)) == sorted(keys)


def test_one_client_for_many_threads(server: FaultyS3, store: ObjectStore) -> None:
    keys = fill(server, 30)
    answers: list[list[str]] = []
    threads = [threading.Thread(target=lambda: answers.append(listed(store))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [keys] * 8
