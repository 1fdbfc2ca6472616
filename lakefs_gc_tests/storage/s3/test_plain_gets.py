"""Reads that boto3 does not send: they are the same requests, and what is not a success is left to boto3."""

from __future__ import annotations

import gzip
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from lakefs_gc.errors import AccessDeniedError, ObjectNotFoundError, StoreUnavailableError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc.storage.s3.store import S3Store
from lakefs_gc_tests.support.faulty_s3 import Answer, FaultyS3, Request, error

QUICK = RetryPolicy(tries=4, tries_when_slow=7, base_seconds=0.001)
ODD = ["data/a b+c", "data/é~(x)/%41&=?", "data//x/...y", "data/'\"*!,:;@$#"]
TABLES = [f"_lakefs/{n:064x}" for n in range(4)]
A, B = TABLES[:2]
FROM_BOTO3 = "amz-sdk-request"
"""A header of boto3's requests only."""


@pytest.fixture(params=[True, False], ids=["by curl", "by botocore's connections"])
def store(faulty_s3: FaultyS3, request: pytest.FixtureRequest) -> S3Store:
    store = open_store(StoreLocation("s3://bucket/n s+é"), retry=QUICK)
    assert isinstance(store, S3Store)
    assert store._s3().pages._curl is None
    for gets in (store._s3().sstables, store._s3().quick_pages):
        assert gets._curl is not None
        if not request.param:
            gets._curl = None
    return store


def fill(server: FaultyS3, keys: list[str]) -> dict[str, bytes]:
    contents = {key: f"content of {key}".encode() for key in keys}
    server.objects.update({f"n s+é/{key}": content for key, content in contents.items()})
    return contents


def read_all(store: ObjectStore, keys: list[str]) -> dict[str, bytes]:
    return dict(store.read_many(keys, concurrency=1))


def by_boto3(server: FaultyS3, operation: str) -> list[bool]:
    return [FROM_BOTO3 in request.headers for request in server.requests if request.operation == operation]


def test_only_the_first_sstable_is_read_by_boto3(faulty_s3: FaultyS3, store: S3Store) -> None:
    contents = fill(faulty_s3, TABLES)
    assert read_all(store, TABLES) == contents
    assert {key: store.read(key) for key in TABLES} == contents
    assert by_boto3(faulty_s3, "GetObject") == [True] + [False] * 7


def test_files_without_checksums_inside_are_read_by_boto3(faulty_s3: FaultyS3, store: S3Store) -> None:
    keys = [*ODD, f"data/{A}/x", "_lakefs/retention/gc/commits/commits.csv", f"data/{A[8:]}", f"{A}\n"]
    contents = fill(faulty_s3, keys)
    assert read_all(store, [*keys, *keys]) == contents
    assert by_boto3(faulty_s3, "GetObject") == [True] * 2 * len(keys)


def test_only_the_first_page_is_listed_by_boto3(faulty_s3: FaultyS3, store: S3Store) -> None:
    fill(faulty_s3, ODD)
    faulty_s3.page_size = 1
    assert [key for rows in store.list("data/") for key in rows["address"].to_pylist()] == sorted(ODD)
    assert [key for rows in store.list("data/", start_after="data/a b+c") for key in rows["address"].to_pylist()]
    assert store.first_name_after("data/", "data/a") == "data/a b+c"
    assert by_boto3(faulty_s3, "ListObjectsV2") == [True] + [False] * (faulty_s3.count("ListObjectsV2") - 1)


def test_both_send_the_same_request(store: S3Store, faulty_s3: FaultyS3) -> None:
    fill(faulty_s3, ODD)
    s3 = store._s3()
    pairs = []
    for key in ODD:
        name = store.root + key
        for _ in range(2):
            s3.sstables.get(partial(store._get, s3, name), name)
        s3.sstables._pattern = None
        list(store.list(key[:7], start_after=key))
        list(store.list(key[:7], start_after=key))
        s3.pages._pattern = None
        pairs += [faulty_s3.requests[:2], faulty_s3.requests[2:]]
        faulty_s3.requests.clear()
    for first, second in pairs:
        assert (first.target, first.keys, first.query) == (second.target, second.keys, second.query)
        assert (FROM_BOTO3 in first.headers, FROM_BOTO3 in second.headers) == (True, False)
        for header in ("host", "user-agent", "x-amz-content-sha256"):
            assert first.headers[header] == second.headers[header]
        scope = first.headers["authorization"].partition("SignedHeaders")[0]
        assert second.headers["authorization"].startswith(scope)


@pytest.mark.parametrize("slow_down", [error(503, "SlowDown"), error(400, "Throttling")])
@pytest.mark.parametrize("operation", ["GetObject", "ListObjectsV2"])
def test_a_temporary_failure_is_not_asked_again_at_once(
    faulty_s3: FaultyS3, store: S3Store, operation: str, slow_down: Answer
) -> None:
    contents = fill(faulty_s3, [A])
    fill(faulty_s3, ["data/a"])
    for _ in range(2):
        read_all(store, [A])
        list(store.list("data/"))
    done = faulty_s3.count(operation)
    before = store.slow_downs
    faulty_s3.faults.append(lambda r: slow_down if r.operation == operation and r.number <= done + 3 else None)
    assert read_all(store, [A]) == contents
    assert [rows.num_rows for rows in store.list("data/")] == [1]
    assert store.slow_downs == before + 3
    assert by_boto3(faulty_s3, operation)[done:] == [False] * 4

    faulty_s3.faults.append(lambda r: Answer(500) if r.operation == operation else None)
    done = faulty_s3.count(operation)
    with pytest.raises(StoreUnavailableError, match="500"):
        read_all(store, [A]) if operation == "GetObject" else list(store.list("data/"))
    assert faulty_s3.count(operation) == done + QUICK.tries


def test_a_body_that_is_too_short_is_read_again(faulty_s3: FaultyS3, store: S3Store) -> None:
    contents = fill(faulty_s3, [A, B])
    read_all(store, [A])

    def cut(request: Request) -> Answer | None:
        if request.operation == "GetObject" and request.number in (2, 3):
            return Answer(body=contents[B], cut_at=4)
        return None

    faulty_s3.faults.append(cut)
    assert read_all(store, [B]) == {B: contents[B]}
    assert by_boto3(faulty_s3, "GetObject") == [True, False, False, False]


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (error(404, "NoSuchKey"), ObjectNotFoundError),
        (error(403, "AccessDenied"), AccessDeniedError),
    ],
)
def test_a_refusal_is_that_of_boto3(
    faulty_s3: FaultyS3, store: S3Store, answer: Answer, raised: type[Exception]
) -> None:
    fill(faulty_s3, [A, B])
    read_all(store, [A])
    faulty_s3.faults.append(lambda r: answer if r.operation == "GetObject" and r.keys[0].endswith(B) else None)
    with pytest.raises(raised):
        read_all(store, [B])
    assert by_boto3(faulty_s3, "GetObject") == [True, False, True]
    assert read_all(store, [A])  # the pattern is still valid


def test_other_credentials_sign_the_next_request(
    faulty_s3: FaultyS3, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(faulty_s3, [A])
    read_all(store, [A])
    credentials = store._s3().sstables._session.get_credentials()
    monkeypatch.setattr(credentials, "access_key", "RENEWED")
    monkeypatch.setattr(credentials, "token", "of a session")
    read_all(store, [A])
    last = faulty_s3.requests[-1].headers
    assert "Credential=RENEWED/" in last["authorization"]
    assert last["x-amz-security-token"] == "of a session"


@pytest.mark.parametrize("unusual", ["x-amz-request-payer", "x-amz-server-side-encryption-customer-key"])
def test_an_unusual_request_is_always_sent_by_boto3(faulty_s3: FaultyS3, store: S3Store, unusual: str) -> None:
    contents = fill(faulty_s3, [A])

    def add(request: Any, **_: Any) -> None:
        request.headers[unusual] = "value"

    store._s3().client.meta.events.register("before-sign.s3.GetObject", add)
    for _ in range(3):
        assert read_all(store, [A]) == contents
    assert by_boto3(faulty_s3, "GetObject") == [True] * 3


def test_boto3_sends_all_if_its_connections_have_another_name(faulty_s3: FaultyS3, store: S3Store) -> None:
    contents = fill(faulty_s3, [A])
    store._s3().sstables._http = None
    for _ in range(3):
        assert read_all(store, [A]) == contents
    assert by_boto3(faulty_s3, "GetObject") == [True] * 3


def test_a_body_whose_end_is_not_stated_is_read_by_boto3(faulty_s3: FaultyS3, store: S3Store) -> None:
    contents = fill(faulty_s3, [A])
    read_all(store, [A])
    faulty_s3.faults.append(
        lambda r: Answer(body=contents[A], announce_length=False) if r.operation == "GetObject" else None
    )
    assert read_all(store, [A]) == contents
    assert by_boto3(faulty_s3, "GetObject") == [True, False, True]


@pytest.mark.parametrize("in_chunks", [True, False], ids=["in chunks", "of a stated length"])
@pytest.mark.parametrize("is_cut", [True, False], ids=["cut", "whole"])
def test_a_page_that_is_cut_is_listed_again(faulty_s3: FaultyS3, store: S3Store, in_chunks: bool, is_cut: bool) -> None:
    fill(faulty_s3, ODD)

    def answer(request: Request) -> Answer | None:
        if request.operation != "ListObjectsV2":
            return None
        page = replace(faulty_s3.right_answer(request), in_chunks=in_chunks)
        whole = page.on_the_wire()
        is_second = is_cut and request.number - done == 2
        # All of the XML arrives, but not the end of the last chunk.
        return replace(page, cut_at=len(whole) - (5 if in_chunks else 20)) if is_second else page

    faulty_s3.faults.append(answer)
    for quick in (False, True):
        done = faulty_s3.count("ListObjectsV2")
        for _ in range(3):
            assert names_in(store, quick=quick) == sorted(ODD)
        sent = by_boto3(faulty_s3, "ListObjectsV2")[done:]
        assert sent[:2] == [True, False]
        assert sent[2:] == ([True, False] if is_cut and sent[2] else [False] * (len(sent) - 2))
        assert len(sent) == 3 + is_cut


def names_in(store: S3Store, *, quick: bool) -> list[str]:
    pages = store.quick_pages("data/") if quick else store.pages("data/")
    return [key for page in pages for key in page.objects["address"].to_pylist()]


@pytest.mark.parametrize("quick", [False, True])
def test_a_page_whose_end_is_not_stated_is_listed_by_boto3(faulty_s3: FaultyS3, store: S3Store, quick: bool) -> None:
    fill(faulty_s3, ODD)
    names_in(store, quick=quick)
    faulty_s3.faults.append(lambda r: replace(faulty_s3.right_answer(r), announce_length=False))
    assert names_in(store, quick=quick) == sorted(ODD)
    assert by_boto3(faulty_s3, "ListObjectsV2") == [True, False, True]


@pytest.mark.parametrize("quick", [False, True])
def test_a_compressed_page_is_listed_by_boto3(faulty_s3: FaultyS3, store: S3Store, quick: bool) -> None:
    """libcurl states no encoding that it accepts, and a proxy may then compress."""
    fill(faulty_s3, ODD)
    names_in(store, quick=quick)

    def compress(request: Request) -> Answer | None:
        page = faulty_s3.right_answer(request)
        accepts = request.headers.get("accept-encoding", "*")
        return page if "identity" in accepts else Answer(200, gzip.compress(page.body), {"Content-Encoding": "gzip"})

    faulty_s3.faults.append(compress)
    assert names_in(store, quick=quick) == sorted(ODD)


def test_boto3_sends_all_where_only_its_requests_succeed(faulty_s3: FaultyS3, store: S3Store) -> None:
    contents = fill(faulty_s3, TABLES)

    def refuse(request: Request) -> Answer | None:
        is_refused = request.operation == "GetObject" and FROM_BOTO3 not in request.headers
        return error(403, "AccessDenied") if is_refused else None

    faulty_s3.faults.append(refuse)
    assert read_all(store, TABLES + TABLES) == contents
    assert by_boto3(faulty_s3, "GetObject") == [True] + [False, True] * 3 + [True] * 4


def test_a_success_in_between_shows_that_not_only_boto3_succeeds(faulty_s3: FaultyS3, store: S3Store) -> None:
    contents = fill(faulty_s3, [A])
    answers = [False, True, True, False, True, True, False]  # of the requests that boto3 does not send: is it refused?

    def refuse(request: Request) -> Answer | None:
        is_plain = request.operation == "GetObject" and FROM_BOTO3 not in request.headers
        return error(403, "AccessDenied") if is_plain and answers.pop(0) else None

    faulty_s3.faults.append(refuse)
    for _ in range(8):
        assert read_all(store, [A]) == contents
    assert answers == []
