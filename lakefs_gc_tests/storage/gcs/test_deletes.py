"""Deletes in Google's store: each key has the store's own answer, on the emulator and on a stand-in.

fake-gcs-server ignores the condition of a delete. Where that matters, a stand-in before it checks the condition.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakefs_gc.errors import AccessDeniedError, ObjectNotFoundError, StorageError, StoreUnavailableError
from lakefs_gc.storage.base import DeletionOutcome, ObjectInfo, VersionedTarget
from lakefs_gc.storage.delete_window import NOT_TRIED, DeleteWindow
from lakefs_gc.storage.gcs.store import GCSStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.gcs_stand_in import (
    GCSStandIn,
    Reply,
    batch,
    error,
    ids_in,
    requests_in,
    resource,
)

DELETED, FAILED, LOCKED, NEWER = (
    DeletionOutcome.DELETED,
    DeletionOutcome.FAILED,
    DeletionOutcome.LOCKED,
    DeletionOutcome.NEWER,
)
GONE = error(404, "notFound", "No such object: bucket/ns/a")
DONE = Reply(204)
MOVED = Reply(308, b"", {"Location": "https://elsewhere.test/"})
"""A redirect, which Google sends only after a part of an upload."""
HELD = error(403, "forbidden", "Object 'bucket/ns/a' is under active Temporary hold and cannot be deleted")
RETAINED = error(403, "retentionPolicyNotMet", "Object 'bucket/ns/a' is subject to bucket's retention policy")
FORBIDDEN = error(403, "forbidden", "gc@project.test does not have storage.objects.delete access")


def answers(*replies: Reply, reverse: bool = False) -> object:
    """Answer the requests of a batch in their order, or in the reverse one."""

    def answer(_: int, __: str, body: bytes) -> Reply:
        parts = list(zip(ids_in(body), replies, strict=False))
        return batch(*(parts[::-1] if reverse else parts))

    return answer


def test_each_part_is_matched_by_its_id_and_not_by_its_position(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["batch"] = answers(DONE, GONE, HELD, RETAINED, FORBIDDEN, reverse=True)  # type: ignore[assignment]
    found = store.delete_many(["a", "b", "c", "d", "e"])
    assert [answer.outcome for answer in found] == [DELETED, DELETED, LOCKED, LOCKED, FAILED]
    assert found[4].error.startswith("forbidden: gc@project.test")


@pytest.mark.parametrize("reply", [HELD, RETAINED, error(403, "objectUnderActiveHold", "")])
def test_what_a_hold_or_a_policy_protects_is_locked(gcs: GCSStandIn, store: GCSStore, reply: Reply) -> None:
    gcs.replies["DELETE"] = lambda *_: reply
    assert store.delete_many(["a"])[0].outcome is LOCKED


def test_a_key_that_the_answer_does_not_mention_is_a_failure_of_unknown_result(
    gcs: GCSStandIn, store: GCSStore
) -> None:
    gcs.replies["batch"] = answers(DONE)  # type: ignore[assignment]
    window = DeleteWindow()
    assert [answer.outcome for answer in store.delete_many(["a", "b"], window)] == [DELETED, FAILED]
    assert window.unanswered


@pytest.mark.parametrize("cut", [10, 60, 1])
def test_an_answer_that_is_cut_is_no_success(gcs: GCSStandIn, store: GCSStore, cut: int) -> None:
    def answer(_: int, __: str, body: bytes) -> Reply:
        whole = batch(*((number, DONE) for number in ids_in(body)))
        return Reply(200, whole.content[: -cut - 4], whole.headers)

    gcs.replies["batch"] = answer
    window = DeleteWindow()
    with pytest.raises(StoreUnavailableError):
        store.delete_many(["a", "b"], window)
    assert window.unanswered


def test_the_same_answer_twice_is_no_answer(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["batch"] = lambda _, __, body: batch((ids_in(body)[0], DONE), (ids_in(body)[0], DONE))
    with pytest.raises(StoreUnavailableError, match="Content-ID"):
        store.delete_many(["a", "b"])


def test_a_404_of_the_bucket_is_no_deleted_object(gcs: GCSStandIn, store: GCSStore) -> None:
    gone = error(404, "notFound", "Not Found")
    gcs.replies["batch"] = answers(gone, gone)  # type: ignore[assignment]
    gcs.replies["list"] = lambda *_: gone
    with pytest.raises(ObjectNotFoundError, match="bucket does not exist"):
        store.delete_many(["a", "b"])
    gcs.replies["GET"] = gcs.replies["DELETE"] = lambda *_: gone
    for call in (lambda: store.stat_many(["a"]), lambda: store.delete_many(["a"]), lambda: store.content_facts("a")):
        with pytest.raises(ObjectNotFoundError, match="bucket does not exist"):
            call()
    gcs.replies["list"] = lambda *_: error(403, "forbidden", "no")  # unknown
    for call in (lambda: store.stat_many(["a"]), lambda: store.delete_many(["a"])):
        with pytest.raises(AccessDeniedError):
            call()


def test_a_404_is_that_of_the_object_if_the_bucket_answers(gcs: GCSStandIn, store: GCSStore) -> None:
    gone = error(404, "notFound", "Not Found")
    gcs.replies["batch"] = answers(gone, gone)  # type: ignore[assignment]
    gcs.replies["list"] = lambda *_: Reply(200, b'{"kind": "storage#objects"}')
    assert [answer.outcome for answer in store.delete_many(["a", "b"])] == [DELETED, DELETED]
    assert gcs.count("list") == 1, "asked once"


@pytest.mark.parametrize(
    "body", [b"<html><title>Not Found</title></html>", b'{"error": {"code": 404, "message": "Not Found"}}', b""]
)
def test_a_404_of_a_proxy_is_neither_a_delete_nor_an_absence(gcs: GCSStandIn, store: GCSStore, body: bytes) -> None:
    page = Reply(404, body)
    gcs.replies["list"] = lambda *_: Reply(200, b'{"kind": "storage#objects"}')
    gcs.replies["DELETE"] = gcs.replies["GET"] = lambda *_: page
    window = DeleteWindow()
    assert store.delete_many(["a"], window)[0].outcome is FAILED
    assert window.unanswered, "what the store does is unknown"
    for call in (lambda: store.stat_many(["a"]), lambda: store.content_facts("a")):
        with pytest.raises(StorageError) as refused:
            call()
        assert not isinstance(refused.value, ObjectNotFoundError)
    gcs.replies["batch"] = answers(page, GONE)  # type: ignore[assignment]
    assert [answer.outcome for answer in store.delete_many(["a", "b"])] == [FAILED, DELETED]


def test_a_page_of_a_proxy_does_not_prove_that_the_bucket_exists(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["DELETE"] = lambda *_: error(404, "notFound", "Not Found")
    for page in (Reply(200, b"<html>Sign in</html>"), Reply(200, b"{}"), MOVED):
        gcs.replies["list"] = lambda *_, page=page: page
        with pytest.raises(StorageError):
            store.delete_many(["a"])


def test_a_redirect_of_a_proxy_is_no_delete(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["DELETE"] = lambda *_: MOVED
    assert store.delete_many(["a"])[0].outcome is FAILED


@pytest.mark.parametrize(
    "page",
    [Reply(200, b"<html>Sign in</html>"), Reply(200), Reply(202), Reply(201, b"{}")],
    ids=lambda page: page.status,
)
def test_a_page_of_a_proxy_is_no_delete(gcs: GCSStandIn, store: GCSStore, page: Reply) -> None:
    """Google answers with 204."""
    gcs.replies["DELETE"] = lambda *_: page
    window = DeleteWindow()
    assert store.delete_many(["a"], window)[0].outcome is FAILED
    assert window.unanswered, "what the store does is unknown"


def test_a_part_without_a_final_status_is_no_delete(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["batch"] = answers(Reply(100), DONE, Reply(200))  # type: ignore[assignment]
    assert [answer.outcome for answer in store.delete_many(["a", "b", "c"])] == [FAILED, DELETED, FAILED]


def test_wrong_credentials_are_raised(gcs: GCSStandIn, store: GCSStore) -> None:
    wrong = error(401, "authError", "Invalid Credentials")
    gcs.replies["batch"] = answers(wrong, wrong)  # type: ignore[assignment]
    with pytest.raises(AccessDeniedError, match="does not accept the credentials"):
        store.delete_many(["a", "b"])
    for operation in ("batch", "list", "GET", "DELETE"):
        gcs.replies[operation] = lambda *_: wrong
    for call in (
        lambda: store.delete_many(["a", "b"]),
        lambda: store.delete_many(["a"]),
        lambda: store.stat_many(["a"]),
        lambda: list(store.list()),
    ):
        with pytest.raises(AccessDeniedError, match="does not accept the credentials"):
            call()


def test_busy_keys_are_tried_again_alone(gcs: GCSStandIn, store: GCSStore) -> None:
    busy, broken = error(429, "rateLimitExceeded", "slow"), error(503, "backendError", "busy")

    def answer(number: int, path: str, body: bytes) -> Reply:
        replies = (DONE, busy, broken) if number == 1 else (DONE, DONE)
        return batch(*zip(ids_in(body), replies, strict=True))

    gcs.replies["batch"] = answer
    window = DeleteWindow()
    assert {answer.outcome for answer in store.delete_many(["a", "b", "c"], window)} == {DELETED}
    first, second = (requests_in(body) for operation, _, body in gcs.requests if operation == "batch")
    paths = [f"/storage/v1/b/bucket/o/ns%2F{key}" for key in "abc"]
    assert first == [("DELETE", path) for path in paths]
    assert second == [("DELETE", path) for path in paths[1:]]
    assert window.unanswered, "the store may still execute a delete that it answered with 503"
    assert store.slow_downs == 2


def test_busy_forever_is_a_failure_with_the_store_s_words(gcs: GCSStandIn, store: GCSStore) -> None:
    busy = error(503, "backendError", "busy")
    gcs.replies["batch"] = answers(DONE, busy)  # type: ignore[assignment]
    gcs.replies["DELETE"] = lambda *_: busy
    found = store.delete_many(["a", "b"])
    assert [answer.outcome for answer in found] == [DELETED, FAILED]
    assert "backendError" in found[1].error


def test_only_too_many_requests_are_surely_not_executed(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["DELETE"] = lambda number, *_: error(429, "rateLimitExceeded", "slow") if number < 4 else DONE
    window = DeleteWindow()
    assert store.delete_many(["a"], window)[0].outcome is DELETED
    assert not window.unanswered
    assert gcs.count("DELETE") == 4, "more often than after a failure"
    assert store.slow_downs == 3


@pytest.mark.parametrize("status", [400, 403, 404])
def test_a_refused_batch_becomes_single_deletes(gcs: GCSStandIn, store: GCSStore, status: int) -> None:
    gcs.replies["batch"] = lambda *_: error(status, "x", "no batches")
    gcs.replies["DELETE"] = lambda _, path, __: DONE if path.endswith("a") else FORBIDDEN
    assert [answer.outcome for answer in store.delete_many(["a", "b"])] == [DELETED, FAILED]
    store.delete_many(["a", "b"])
    assert gcs.count("batch") == (1 if status == 404 else 2)
    assert gcs.count("DELETE") == 4


def test_a_lost_answer_is_of_unknown_result_and_no_success(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["batch"] = lambda *_: None
    window = DeleteWindow()
    with pytest.raises(StoreUnavailableError):
        store.delete_many(["a", "b"], window)
    assert window.unanswered


def test_no_try_is_sent_after_the_window(gcs: GCSStandIn, store: GCSStore) -> None:
    store.now()  # the client exists
    now = [0.0]
    window = DeleteWindow(wall=lambda: now[0], steady=lambda: now[0])

    def slow(*_: object) -> Reply:
        now[0] += 1000
        return error(503, "backendError", "busy")

    gcs.replies["batch"] = gcs.replies["DELETE"] = slow
    found = store.delete_many(["a", "b"], window)
    assert all(answer.error.startswith(NOT_TRIED) and "backendError" in answer.error for answer in found)
    assert gcs.count("batch") == 1
    assert store.delete_many(["a"], window)[0].error == NOT_TRIED
    assert gcs.count("DELETE") == 0
    seen = ObjectInfo(1, store.now(), "")
    targets = [VersionedTarget(key, seen, seen.last_modified) for key in ("a", "b")]
    assert [answer.error for answer in store.delete_unchanged(targets, window)] == [NOT_TRIED, NOT_TRIED]


def test_at_most_100_keys_in_a_batch(gcs_namespace: StoreLocation, with_conditions: GCSStandIn) -> None:
    store = GCSStore(gcs_namespace)
    keys = [f"data/s/{number}" for number in range(250)]
    store.put(keys[0], b"1")
    store.put(keys[-1], b"1")
    assert {answer.outcome for answer in store.delete_many(keys)} == {DELETED}
    assert not list(store.list())
    sizes = [len(requests_in(body)) for operation, _, body in with_conditions.requests if operation == "batch"]
    assert sorted(sizes) == [50, 100, 100]


def test_the_condition_is_the_generation_that_was_seen(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["batch"] = answers(DONE, error(412, "conditionNotMet", "no"))  # type: ignore[assignment]
    gcs.replies["GET"] = lambda *_: resource(9)
    seen = ObjectInfo(1, store.now(), "7")
    found = store.delete_unchanged([VersionedTarget(key, seen, seen.last_modified) for key in ("a", "b")])
    assert [answer.outcome for answer in found] == [DELETED, NEWER]
    (body,) = (body for operation, _, body in gcs.requests if operation == "batch")
    assert [path.partition("?")[2] for _, path in requests_in(body)] == ["ifGenerationMatch=7"] * 2
    gcs.replies["GET"] = lambda *_: GONE  # a condition on an object that does not exist is not fulfilled
    gcs.replies["DELETE"] = lambda *_: error(412, "conditionNotMet", "no")
    assert store.delete_unchanged([VersionedTarget("a", seen, seen.last_modified)])[0].outcome is DELETED


@pytest.mark.parametrize("by_listing", [False, True])
@pytest.mark.parametrize("batches", [True, False])
def test_an_object_that_was_written_again_stays(conditional_store: GCSStore, by_listing: bool, batches: bool) -> None:
    store = conditional_store
    keys = ["data/s/same", "data/s/again", "data/s/gone"]
    for key in keys:
        store.put(key, b"1")
    seen = store.stat_many(keys)
    if by_listing:  # a listing shows no generation
        seen = {key: ObjectInfo(1, info.last_modified, "") for key, info in seen.items()}
    store.put("data/s/again", b"2")
    store.delete_many(["data/s/gone"])
    store._client().has_no_batches = not batches
    targets = [VersionedTarget(key, seen[key], seen[key].last_modified) for key in keys]
    found = store.delete_unchanged(targets, DeleteWindow())
    assert [(answer.key, answer.outcome) for answer in found] == list(zip(keys, [DELETED, NEWER, DELETED], strict=True))
    assert store.read("data/s/again") == b"2"


def test_an_object_that_is_written_between_its_look_up_and_its_delete_stays(
    with_conditions: GCSStandIn, conditional_store: GCSStore
) -> None:
    store = conditional_store
    store.put("data/s/a", b"1")
    info = store.stat_many(["data/s/a"])["data/s/a"]
    looked_up = with_conditions._answer

    def write_after_the_look_up(method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply | None:
        reply = looked_up(method, path, body, headers)
        if method == "GET" and "data%2Fs%2Fa" in path and not written:
            written.append(True)
            store.put("data/s/a", b"2")
        return reply

    written: list[bool] = []
    with_conditions._answer = write_after_the_look_up  # type: ignore[method-assign]
    target = VersionedTarget("data/s/a", ObjectInfo(1, info.last_modified, ""), info.last_modified)
    assert store.delete_unchanged([target])[0].outcome is NEWER
    assert store.read("data/s/a") == b"2"


def test_a_look_up_without_an_answer_deletes_nothing(gcs: GCSStandIn, store: GCSStore) -> None:
    seen = ObjectInfo(1, store.now(), "")
    targets = [VersionedTarget(key, seen, seen.last_modified) for key in ("a", "b", "c")]
    incomplete = Reply(200, b'{"generation": "1"}')

    def answer(_: int, __: str, body: bytes) -> Reply:
        assert {method for method, _ in requests_in(body)} == {"GET"}
        return batch((ids_in(body)[0], incomplete), (ids_in(body)[1], error(403, "forbidden", "no")))

    gcs.replies["batch"] = answer
    assert [found.outcome for found in store.delete_unchanged(targets)] == [FAILED] * 3
    assert gcs.count("DELETE") == 0


def test_later_by_a_microsecond_is_newer(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["GET"] = lambda *_: resource(5, updated="2025-06-01T12:00:00.000001Z")
    at = store.stat_many(["a"])["a"].last_modified
    gcs.replies["DELETE"] = lambda *_: DONE
    earlier = ObjectInfo(1, at - timedelta(microseconds=1), "")
    assert store.delete_unchanged([VersionedTarget("a", earlier, at)])[0].outcome is NEWER
    assert gcs.count("DELETE") == 0
    assert store.delete_unchanged([VersionedTarget("a", ObjectInfo(1, at, ""), at)])[0].outcome is DELETED
