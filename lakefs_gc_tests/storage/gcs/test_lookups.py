"""The facts of many objects of Google's store, in batches: an answer for each, or an error."""

from __future__ import annotations

import pytest

from lakefs_gc.errors import AccessDeniedError, LakeFSGCError, ObjectNotFoundError, StorageError, StoreUnavailableError
from lakefs_gc.sandbox.fake_gcs import FakeGCS
from lakefs_gc.storage.gcs.store import GCSStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.gcs_stand_in import (
    Answerer,
    GCSStandIn,
    Reply,
    batch,
    error,
    ids_in,
    requests_in,
    resource,
)

KEYS = [f"data/{number}" for number in range(250)]
BUSY, SLOW = error(503, "backendError"), error(429, "rateLimitExceeded")
GONE = error(404, "notFound", "No such object: bucket/ns/data/0")
GONE_OR_NO_BUCKET = error(404, "notFound", "Not Found")


def with_first(*replies: Reply) -> Answerer:
    """Answer the object ``data/0`` with these replies, one after the other, and the others with their facts."""
    left = list(replies)

    def answer(_: int, __: str, body: bytes) -> Reply:
        parts = []
        for number, (_method, path) in zip(ids_in(body), requests_in(body), strict=True):
            is_first = path.partition("?")[0].endswith("data%2F0")
            parts.append((number, left.pop(0) if is_first and left else resource()))
        return batch(*parts[::-1])

    return answer


def test_a_request_has_100_objects_and_each_answer_is_matched_by_its_id(gcs: GCSStandIn, store: GCSStore) -> None:
    def answer(_: int, __: str, body: bytes) -> Reply:
        paths = [path.partition("?")[0] for _, path in requests_in(body)]
        parts = [(one, resource(size=path.rpartition("%2F")[2])) for one, path in zip(ids_in(body), paths, strict=True)]
        return batch(*parts[::-1])

    gcs.replies["batch"] = answer
    found = store.stat_many([*KEYS, KEYS[0]])
    assert {key: info.size_bytes for key, info in found.items()} == {key: int(key[5:]) for key in KEYS}
    assert gcs.count("batch") == len(gcs.requests) == 3


def test_few_objects_have_a_request_each(gcs: GCSStandIn, store: GCSStore) -> None:
    assert len(store.stat_many(KEYS[:16])) == gcs.count("GET") == 16
    assert not gcs.count("batch")


def test_what_does_not_exist_is_left_out(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["batch"] = with_first(GONE)
    assert set(store.stat_many(KEYS)) == {*KEYS[1:]}
    assert not gcs.count("list")


def test_one_404_that_may_be_the_one_of_the_bucket_asks_once_for_the_bucket(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["batch"] = lambda _, __, body: batch(*((number, GONE_OR_NO_BUCKET) for number in ids_in(body)))
    gcs.replies["list"] = lambda *_: Reply(200, b'{"kind": "storage#objects"}')
    assert store.stat_many(KEYS[:100]) == {}
    assert gcs.count("list") == 1
    gcs.replies["list"] = lambda *_: GONE_OR_NO_BUCKET
    with pytest.raises(ObjectNotFoundError, match="bucket does not exist"):
        store.stat_many(KEYS)


@pytest.mark.parametrize("replies", [(BUSY, BUSY), (SLOW, SLOW, SLOW, SLOW), (resource(generation=0, size="x"),)])
def test_only_the_failed_ones_are_requested_again(gcs: GCSStandIn, store: GCSStore, replies: tuple[Reply, ...]) -> None:
    gcs.replies["batch"] = with_first(*replies)
    assert set(store.stat_many(KEYS[:100])) == {*KEYS[:100]}
    assert [len(requests_in(body)) for _, _, body in gcs.requests] == [100] + [1] * len(replies)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (BUSY, StoreUnavailableError),
        (SLOW, StoreUnavailableError),
        (error(403, "forbidden"), AccessDeniedError),
        (error(401, "authError"), AccessDeniedError),
        (error(400, "invalid"), StorageError),
        (Reply(308), StorageError),
        (Reply(404, b"<html>Not Found</html>"), StorageError),
        (Reply(200, b"<html>"), StoreUnavailableError),
        (Reply(200, b"{}"), StoreUnavailableError),
        (Reply(204), StoreUnavailableError),
    ],
)
def test_any_other_answer_is_an_error(
    gcs: GCSStandIn, store: GCSStore, reply: Reply, kind: type[LakeFSGCError]
) -> None:
    gcs.replies["batch"] = with_first(*[reply] * 9)
    gcs.replies["list"] = lambda *_: Reply(200, b'{"kind": "storage#objects"}')  # the bucket exists
    with pytest.raises(kind) as refused:
        store.stat_many(KEYS)
    assert not isinstance(refused.value, ObjectNotFoundError)


def test_an_object_that_the_answer_does_not_mention_is_an_error(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["batch"] = lambda _, __, body: batch(*((number, resource()) for number in ids_in(body)[1:]))
    with pytest.raises(StoreUnavailableError, match="does not mention"):
        store.stat_many(KEYS)


@pytest.mark.parametrize("status", [400, 404])
def test_without_batches_each_object_has_a_request(gcs: GCSStandIn, store: GCSStore, status: int) -> None:
    gcs.replies["batch"] = lambda *_: Reply(status)
    assert len(store.stat_many(KEYS)) == gcs.count("GET") == len(KEYS)


def test_the_emulator_answers_as_the_stand_in(fake_gcs: FakeGCS, gcs_namespace: StoreLocation) -> None:
    assert fake_gcs
    store = GCSStore(gcs_namespace)
    keys = [f"data/ä {number}?&%2F" for number in range(30)]
    for key in keys:
        store.put(key, key.encode())
    found = store.stat_many([*keys, "data/none"])
    assert {key: info.size_bytes for key, info in found.items()} == {key: len(key.encode()) for key in keys}
    assert found == {key: store.stat_many([key])[key] for key in keys}
    assert set(store.content_md5([*keys, "data/none"])) == {*keys}
