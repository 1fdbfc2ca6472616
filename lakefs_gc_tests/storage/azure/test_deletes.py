"""Deletes on Azure: each key has the account's own answer, on Azurite and on a stand-in that answers as Azure may."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lakefs_gc.errors import AccessDeniedError, ObjectNotFoundError, StoreUnavailableError
from lakefs_gc.storage.azure.store import AzureStore
from lakefs_gc.storage.base import DeletionOutcome, VersionedTarget
from lakefs_gc.storage.delete_window import NOT_TRIED, DeleteWindow
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy

QUICK = RetryPolicy(tries=3, tries_when_slow=5, base_seconds=0.001)
DELETED, FAILED, LOCKED, NEWER = (
    DeletionOutcome.DELETED,
    DeletionOutcome.FAILED,
    DeletionOutcome.LOCKED,
    DeletionOutcome.NEWER,
)
Part = tuple[str, int, str]
"""The id of a part of an answer (empty for none), its status and its code."""
Reply = tuple[int, str, list[Part] | None]
"""The status and the code of an answer, and the parts of the answer to a batch."""


class StandIn:
    """A stand-in for Azure: ``replies`` answers each request by its operation (``batch``, ``DELETE``, ``HEAD``)."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes]] = []
        self.replies: dict[str, Callable[[int, str, bytes], Reply | None]] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                operation = "batch" if "comp=batch" in self.path else self.command
                outer.requests.append((operation, self.path, body))
                number = sum(one == operation for one, _, _ in outer.requests)
                reply_to = outer.replies.get(operation)
                reply = reply_to(number, self.path, body) if reply_to else (200, "", None)
                if reply is None:  # a broken connection
                    self.close_connection = True
                    return
                status, code, parts = reply
                content = "" if parts is None else multipart(parts)
                self.send_response(status)
                if code:
                    self.send_header("x-ms-error-code", code)
                if parts is not None:
                    self.send_header("Content-Type", "multipart/mixed; boundary=answer")
                for name, value in (("Last-Modified", "Sun, 01 Jun 2025 12:00:00 GMT"), ("ETag", '"e"')):
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content.encode())

            do_GET = do_HEAD = do_DELETE = do_POST = do_PUT = answer  # noqa: N815 - names of http.server

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def count(self, operation: str) -> int:
        return sum(one == operation for one, _, _ in self.requests)


def multipart(parts: list[Part]) -> str:
    lines = []
    for number, status, code in parts:
        lines += ["--answer", "Content-Type: application/http", *([f"Content-ID: {number}"] if number else []), ""]
        lines += [f"HTTP/1.1 {status} text", *([f"x-ms-error-code: {code}"] if code else []), "", ""]
    return "\r\n".join([*lines, "--answer--"])


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    stand_in = StandIn()
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "acct")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    port = stand_in.server.server_address[1]
    monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", f"http://127.0.0.1:{port}/acct")
    yield stand_in
    stand_in.server.shutdown()
    stand_in.server.server_close()


@pytest.fixture
def store(azure: StandIn) -> AzureStore:
    return AzureStore(StoreLocation("https://acct.blob.core.windows.net/c/ns"), QUICK)


def test_each_part_is_matched_by_its_id_and_not_by_its_position(azure: StandIn, store: AzureStore) -> None:
    parts: list[Part] = [
        ("4", 409, "BlobImmutableDueToPolicy"),
        ("3", 409, "SnapshotsPresent"),
        ("2", 412, "LeaseIdMissing"),
        ("1", 404, "BlobNotFound"),
        ("0", 202, ""),
    ]
    azure.replies["batch"] = lambda *_: (202, "", parts)
    answers = store.delete_many(["a", "b", "c", "d", "e"])
    assert [answer.outcome for answer in answers] == [DELETED, DELETED, FAILED, FAILED, LOCKED]
    assert [answer.error.split(".")[0] for answer in answers[2:4]] == ["LeaseIdMissing", "SnapshotsPresent"]


def test_a_key_that_the_answer_does_not_mention_is_a_failure_of_unknown_result(
    azure: StandIn, store: AzureStore
) -> None:
    azure.replies["batch"] = lambda *_: (202, "", [("0", 202, "")])
    window = DeleteWindow()
    assert [answer.outcome for answer in store.delete_many(["a", "b"], window)] == [DELETED, FAILED]
    assert window.unanswered


def test_a_404_without_a_known_code_is_no_proof(azure: StandIn, store: AzureStore) -> None:
    azure.replies["batch"] = lambda *_: (202, "", [("0", 404, ""), ("1", 202, "")])
    assert [answer.outcome for answer in store.delete_many(["a", "b"])] == [FAILED, DELETED]


@pytest.mark.parametrize("code", ["ContainerNotFound", "AuthenticationFailed"])
def test_what_is_not_about_keys_is_raised(azure: StandIn, store: AzureStore, code: str) -> None:
    azure.replies["batch"] = lambda *_: (202, "", [("0", 404, code), ("1", 404, code)])
    with pytest.raises(ObjectNotFoundError if code.startswith("Container") else AccessDeniedError):
        store.delete_many(["a", "b"])


def test_busy_keys_are_tried_again_alone(azure: StandIn, store: AzureStore) -> None:
    def busy_once(number: int, _: str, body: bytes) -> Reply:
        return 202, "", [("0", 202, ""), ("1", 503, "ServerBusy"), ("2", 500, "OperationTimedOut")]

    azure.replies["batch"] = lambda n, p, b: (
        busy_once(n, p, b) if n == 1 else (202, "", [("0", 202, ""), ("1", 202, "")])
    )
    window = DeleteWindow()
    assert {answer.outcome for answer in store.delete_many(["a", "b", "c"], window)} == {DELETED}
    first, second = (body for operation, _, body in azure.requests if operation == "batch")
    assert re.findall(rb"DELETE (\S+)", first) == [b"/acct/c/ns/a", b"/acct/c/ns/b", b"/acct/c/ns/c"]
    assert re.findall(rb"DELETE (\S+)", second) == [b"/acct/c/ns/b", b"/acct/c/ns/c"]
    assert window.unanswered, "the account may still execute a delete that timed out"
    assert store.slow_downs == 1


def test_a_refused_batch_becomes_single_deletes(azure: StandIn, store: AzureStore) -> None:
    azure.replies["batch"] = lambda *_: (403, "AuthorizationPermissionMismatch", None)
    azure.replies["DELETE"] = lambda n, path, _: (202, "", None) if path.endswith("a") else (403, "Forbidden", None)
    assert [answer.outcome for answer in store.delete_many(["a", "b"])] == [DELETED, FAILED]
    store.delete_many(["a", "b"])
    assert (azure.count("batch"), azure.count("DELETE")) == (1, 4)


def test_a_batch_that_is_refused_in_its_only_part(azure: StandIn, store: AzureStore) -> None:
    azure.replies["batch"] = lambda *_: (202, "", [("", 400, "InvalidInput")])
    azure.replies["DELETE"] = lambda *_: (202, "", None)
    assert [answer.outcome for answer in store.delete_many(["a", "b"])] == [DELETED, DELETED]
    assert azure.count("DELETE") == 2


def test_a_lost_answer_is_of_unknown_result_and_no_success(azure: StandIn, store: AzureStore) -> None:
    azure.replies["batch"] = lambda *_: None
    window = DeleteWindow()
    with pytest.raises(StoreUnavailableError):
        store.delete_many(["a", "b"], window)
    assert window.unanswered


def test_no_try_is_sent_after_the_window(azure: StandIn, store: AzureStore) -> None:
    store.now()  # the client exists
    now = [0.0]
    window = DeleteWindow(wall=lambda: now[0], steady=lambda: now[0])

    def slow(*_: object) -> Reply:
        now[0] += 1000
        return 503, "ServerBusy", None

    azure.replies["batch"] = azure.replies["DELETE"] = slow
    answers = store.delete_many(["a", "b"], window)
    assert all(answer.error.startswith(NOT_TRIED) and "ServerBusy" in answer.error for answer in answers)
    assert azure.count("batch") == 1
    assert store.delete_many(["a"], window)[0].error == NOT_TRIED
    assert azure.count("DELETE") == 0


def test_at_most_256_keys_in_a_batch(azure_namespace: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    store = AzureStore(azure_namespace)
    keys = [f"data/s/{number}" for number in range(600)]
    store.put(keys[0], b"1")
    store.put(keys[-1], b"1")
    assert {answer.outcome for answer in store.delete_many(keys)} == {DELETED}
    assert not list(store.list())
    assert not store._azure().refuses_batches, "Azurite refuses larger ones"


@pytest.mark.parametrize("by_listing", [False, True])
@pytest.mark.parametrize("batches", [True, False])
def test_an_object_that_was_written_again_stays(
    azure_namespace: StoreLocation, by_listing: bool, batches: bool
) -> None:
    store = AzureStore(azure_namespace)
    keys = ["data/s/same", "data/s/again", "data/s/gone"]
    for key in keys:
        store.put(key, b"1")
    seen = store.stat_many(keys)
    if by_listing:  # without an ETag, and older than the second in which it is written again
        seen = {key: type(info)(1, info.last_modified, "") for key, info in seen.items()}
        again = seen["data/s/again"]
        seen["data/s/again"] = type(again)(1, again.last_modified - timedelta(seconds=1), "")
    store.put("data/s/again", b"2")
    store.delete_many(["data/s/gone"])
    store._azure().refuses_batches = not batches
    targets = [VersionedTarget(key, seen[key], seen[key].last_modified) for key in keys]
    answers = store.delete_unchanged(targets, DeleteWindow())
    assert [(answer.key, answer.outcome) for answer in answers] == list(
        zip(keys, [DELETED, NEWER, DELETED], strict=True)
    )
    assert store.read("data/s/again") == b"2"
