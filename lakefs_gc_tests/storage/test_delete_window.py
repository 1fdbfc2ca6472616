"""The time in which a delete may be tried, and what the stores do when it is over."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lakefs_gc.storage.base import DeletionOutcome, ObjectStore
from lakefs_gc.storage.delete_window import (
    CONNECT_TIMEOUT_SECONDS,
    DEAD_AFTER_SECONDS,
    DELETE_DEADLINE_SECONDS,
    NOT_TRIED,
    READ_TIMEOUT_SECONDS,
    DeleteWindow,
)
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.pace import RequestLimit
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc.storage.s3.client import new_clients
from lakefs_gc.storage.s3.store import S3Store
from lakefs_gc_tests.support.faulty_s3 import Answer, FaultyS3, Request, deleted, error

QUICK = RetryPolicy(tries=4, tries_when_slow=7, base_seconds=0.001)
KEYS = ["data/s/a", "data/s/b", "data/s/c", "data/s/d"]


class Clock:
    """Two clocks that a test moves."""

    def __init__(self) -> None:
        self.wall = self.steady = 1000.0

    def go_by(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def window(self) -> DeleteWindow:
        return DeleteWindow(wall=lambda: self.wall, steady=lambda: self.steady)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(faulty_s3: FaultyS3) -> FaultyS3:
    faulty_s3.objects.update({f"ns/{key}": b"content" for key in KEYS})
    return faulty_s3


@pytest.fixture
def store(server: FaultyS3) -> ObjectStore:
    return open_store(StoreLocation("s3://bucket/ns"), retry=QUICK)


def errors(store: ObjectStore, window: DeleteWindow, keys: list[str] = KEYS) -> dict[str, str]:
    """The error of each key that failed."""
    answers = store.delete_many(keys, window)
    assert [answer.key for answer in answers] == keys
    assert all((answer.outcome is DeletionOutcome.FAILED) == bool(answer.error) for answer in answers)
    return {answer.key: answer.error for answer in answers if answer.error}


def sent(server: FaultyS3) -> int:
    return server.count("DeleteObjects") + server.count("DeleteObject")


# -- the window ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wall", "steady"])
def test_a_window_is_over_when_either_clock_says_so(clock: Clock, name: str) -> None:
    window = clock.window()
    setattr(clock, name, 1000 + DELETE_DEADLINE_SECONDS - 1)
    assert not window.is_over
    setattr(clock, name, 1000 + DELETE_DEADLINE_SECONDS)
    assert window.is_over
    setattr(clock, {"wall": "steady", "steady": "wall"}[name], 0.0)  # set back, or a machine that slept
    assert window.is_over


def test_a_restore_waits_for_longer_than_a_delete_can_take(server: FaultyS3) -> None:
    _, client, _ = new_clients()
    config = client.meta.config
    assert (config.connect_timeout, config.read_timeout) == (CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS)
    longest_request = config.connect_timeout + config.read_timeout
    assert DELETE_DEADLINE_SECONDS + longest_request + 30 <= DEAD_AFTER_SECONDS


# -- S3 --------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_once_it_is_over(server: FaultyS3, store: ObjectStore, clock: Clock) -> None:
    window = clock.window()
    clock.go_by(DELETE_DEADLINE_SECONDS)
    odd = "data/s/\x07"  # a request of its own
    assert errors(store, window, [*KEYS, odd]) == dict.fromkeys([*KEYS, odd], NOT_TRIED)
    assert sent(server) == 0
    assert not window.unanswered
    assert errors(store, clock.window()) == {}, "the window was of that delete alone"


def slowly(clock: Clock, answer: Answer, seconds: float = 60) -> Callable[[Request], Answer | None]:
    """The answer to each delete, which takes its time."""

    def answers(request: Request) -> Answer | None:
        if request.operation not in ("DeleteObjects", "DeleteObject"):
            return None
        clock.go_by(seconds)
        return answer

    return answers


@pytest.mark.parametrize(
    ("answer", "said", "unanswered"),
    [
        (error(500, "InternalError", "try again"), "InternalError: try again", True),
        (Answer(504), "504", True),
        (error(503, "SlowDown", "less"), "SlowDown: less", False),
        (error(503, "ServiceUnavailable", "down"), "ServiceUnavailable: down", True),
        (Answer(body=b"<DeleteResult/>", cut_at=3), "Error", True),
    ],
    ids=["failed", "a proxy gave up", "slow", "down", "broken off"],
)
def test_a_request_is_tried_again_only_in_time(
    server: FaultyS3, store: ObjectStore, clock: Clock, answer: Answer, said: str, unanswered: bool
) -> None:
    server.faults.append(slowly(clock, answer))
    window = clock.window()
    found = errors(store, window)
    assert sent(server) == 2, "at 0 and at 60 s, and not at 120 s"
    assert set(found) == set(KEYS)
    assert all(text.startswith(NOT_TRIED) for text in found.values())
    assert said in found[KEYS[0]]
    assert window.unanswered is unanswered


def test_keys_are_tried_again_only_in_time(server: FaultyS3, store: ObjectStore, clock: Clock) -> None:
    slow = {f"ns/{KEYS[1]}": ("SlowDown", "less")}
    server.faults.append(slowly(clock, deleted(tuple(f"ns/{key}" for key in KEYS), slow)))
    found = errors(store, window := clock.window())
    assert sent(server) == 2
    assert set(found) == {KEYS[1]}
    assert found[KEYS[1]].startswith(NOT_TRIED)
    assert found[KEYS[1]].endswith("SlowDown: less")
    assert not window.unanswered


def test_halves_are_tried_only_in_time(server: FaultyS3, store: ObjectStore, clock: Clock) -> None:
    server.faults.append(slowly(clock, error(400, "MalformedXML"), 40))
    found = errors(store, clock.window())
    assert sent(server) == 3, "the whole, a half, and a key alone; at 120 s nothing"
    assert set(found) == set(KEYS)
    assert NOT_TRIED in found[KEYS[3]]


def test_who_waits_for_a_turn_until_it_is_over_sends_nothing(
    server: FaultyS3, store: ObjectStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.limit_requests(1000)
    monkeypatch.setattr(RequestLimit, "wait", lambda limit: clock.go_by(DELETE_DEADLINE_SECONDS))
    assert set(errors(store, clock.window())) == set(KEYS)
    assert sent(server) == 0


def test_who_waits_for_credentials_until_it_is_over_sends_nothing(
    server: FaultyS3, store: ObjectStore, clock: Clock
) -> None:
    """Also what boto3 itself does before it sends, or sends again elsewhere, takes of the time."""
    assert isinstance(store, S3Store)
    events = store._s3().client.meta.events
    events.register("before-sign.s3.DeleteObjects", lambda **_: clock.go_by(DELETE_DEADLINE_SECONDS))
    assert set(errors(store, clock.window())) == set(KEYS)
    assert sent(server) == 0


def test_a_lost_answer_is_known_although_the_next_try_succeeds(
    server: FaultyS3, store: ObjectStore, clock: Clock
) -> None:
    lost = Answer(body=b"<DeleteResult/>", cut_at=3)
    server.faults.append(lambda r: lost if r.operation == "DeleteObjects" and r.number == 1 else None)
    assert errors(store, window := clock.window()) == {}
    assert sent(server) == 2
    assert window.unanswered


def test_an_answer_that_leaves_out_a_key_is_none(server: FaultyS3, store: ObjectStore, clock: Clock) -> None:
    server.faults.append(lambda r: deleted(r.keys[1:]) if r.operation == "DeleteObjects" else None)
    assert set(errors(store, window := clock.window())) == {KEYS[0]}
    assert window.unanswered


def test_a_refusal_is_an_answer(server: FaultyS3, store: ObjectStore, clock: Clock) -> None:
    refused = {f"ns/{KEYS[0]}": ("AccessDenied", "no")}
    server.faults.append(lambda r: deleted(r.keys, refused) if r.operation == "DeleteObjects" else None)
    assert errors(store, window := clock.window()) == {KEYS[0]: "AccessDenied: no"}
    assert not window.unanswered


# -- folders ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> ObjectStore:
    store = open_store(StoreLocation((tmp_path / "lake").as_uri()))
    for key in KEYS:
        store.put(key, b"content")
    return store


def test_files_are_deleted_only_in_time(folder: ObjectStore, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = os.unlink

    def slow(*arguments: object, **more: object) -> None:
        clock.go_by(50)
        unlink(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "unlink", slow)
    assert errors(folder, window := clock.window()) == dict.fromkeys(KEYS[2:], NOT_TRIED)
    assert sorted(folder.stat_many(KEYS)) == KEYS[2:]
    assert not window.unanswered


@pytest.mark.parametrize(("code", "unanswered"), [(errno.EIO, True), (errno.ETIMEDOUT, True), (errno.EACCES, False)])
def test_a_file_server_that_does_not_answer(
    folder: ObjectStore, clock: Clock, monkeypatch: pytest.MonkeyPatch, code: int, unanswered: bool
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "unlink", fail)
    assert set(errors(folder, window := clock.window())) == set(KEYS)
    assert window.unanswered is unanswered
