"""What every store promises when it fails, or asks to slow down: on a folder, a real S3 server and two emulators.

A proxy before the server or emulator fails, and before the folder a stand-in for its disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from io import BytesIO
from pathlib import Path

import pytest

from lakefs_gc.errors import LakeFSGCError, StorageError, StoreUnavailableError
from lakefs_gc.storage.azure import client as azure_client
from lakefs_gc.storage.base import Deletion, DeletionOutcome, ObjectStore, VersionedTarget
from lakefs_gc.storage.delete_window import DeleteWindow
from lakefs_gc.storage.gcs import client as gcs_client
from lakefs_gc.storage.s3 import client as s3_client
from lakefs_gc_tests.support.contract import FAULTS, KINDS, QUICK, REMOTE, SLOW_DOWN, Fault, Place, hanging, place_of
from lakefs_gc_tests.support.store_proxy import StoreAnswer, StoreRequest

CONTENTS = {"data/s/a": b"first", "data/s/b": b"second", "data/t/c": b"third"}
KEYS = sorted(CONTENTS)
BIG = bytes(range(256)) * 36 * 1024  # 9 MiB, more than one part of an upload

every_store = pytest.mark.parametrize("place", KINDS, indirect=True)
every_remote_store = pytest.mark.parametrize("place", REMOTE, indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with place_of(request.param, request, tmp_path, monkeypatch) as place:
        yield place


def fill(store: ObjectStore) -> None:
    for key, content in CONTENTS.items():
        store.put(key, content)
    store.delete_many(["data/new"])


def present(store: ObjectStore) -> dict[str, bytes]:
    """Return all objects with their content."""
    keys = [key for batch in store.list() for key in batch["address"].to_pylist()]
    return dict(store.read_many(keys))


def levels(store: ObjectStore) -> object:
    sub_prefixes, objects = store.list_level("data/s/")
    return sorted(sub_prefixes), sorted(objects["address"].to_pylist())


def opened(store: ObjectStore) -> bytes:
    with store.open_read(KEYS[0]) as stream:
        return stream.read()


def outcomes(deletions: list[Deletion]) -> object:
    return [(deletion.key, deletion.outcome) for deletion in deletions]


def unchanged(store: ObjectStore, window: DeleteWindow | None = None) -> list[Deletion]:
    seen = store.stat_many(KEYS[:2])
    targets = [VersionedTarget(key, seen[key], seen[key].last_modified) for key in KEYS[:2]]
    return store.delete_unchanged(targets, window)


Call = Callable[[ObjectStore], object]
READS: dict[str, Call] = {
    "list": lambda store: sorted(key for batch in store.list("data/") for key in batch["address"].to_pylist()),
    "list_level": levels,
    "stat_many": lambda store: {key: info.size_bytes for key, info in store.stat_many([*KEYS, "data/none"]).items()},
    "content_md5": lambda store: store.content_md5(KEYS),
    "content_facts": lambda store: store.content_facts(KEYS[0]),
    "read": lambda store: store.read(KEYS[0]),
    "read_end": lambda store: store.read_end(KEYS[0], 3),
    "open_read": opened,
    "now": lambda store: abs(store.now() - datetime.now(UTC)) < timedelta(seconds=30),
    "space_not_freed": lambda store: store.space_not_freed(),
}
WRITES: dict[str, Call] = {
    "put": lambda store: store.put("data/new", b"new"),
    "put if absent": lambda store: store.put("data/new", b"new", if_absent=True),
    "put, and it exists": lambda store: store.put(KEYS[0], b"new", if_absent=True),
    "put_stream": lambda store: store.put_stream("data/new", BytesIO(BIG), size_bytes=len(BIG)),
    "copy_to": lambda store: store.copy_to(KEYS[0], store, "data/new", if_absent=True),
    "copy_to, and it exists": lambda store: store.copy_to(KEYS[0], store, KEYS[1], if_absent=True),
    "delete_many": lambda store: outcomes(store.delete_many(KEYS[:2])),
    "delete_many, one": lambda store: outcomes(store.delete_many(KEYS[:1])),
    "delete_unchanged": lambda store: outcomes(unchanged(store)),
}
CALLS = {**READS, **WRITES}
MAY_RAISE_AT_ONCE = {"open_read", "put_stream"}
"""Calls with a stream, which is read once: their callers begin anew."""

TEMPORARY = [pytest.param(kind, fault, id=f"{kind}-{name}") for kind in KINDS for name, fault in FAULTS[kind].items()]
SLOW = [pytest.param(kind, fault, id=f"{kind}-{name}") for kind in REMOTE for name, fault in SLOW_DOWN[kind].items()]
ALL = [*TEMPORARY, *SLOW]
FEW = [
    case if str(case.id).endswith(("EIO", "500")) else pytest.param(*case.values, id=case.id, marks=pytest.mark.of_ci)
    for case in ALL
]
"""One fault of each store, and the others in CI: to look at what each write leaves takes long."""


@pytest.mark.parametrize(("place", "fault"), ALL, indirect=["place"])
def test_a_read_that_fails_once(place: Place, fault: Fault) -> None:
    """Each request of each call fails in its turn. The result is right all the same; a folder does not try again."""
    store = place.open()
    fill(store)
    for name, call in READS.items():
        expected = call(store)
        for number in range(1, place.requests_of(lambda: call(store)) + 1):  # noqa: B023 - called at once
            with place.failing(fault, number, number), may_raise(place, name):
                assert call(store) == expected, (name, number)


@pytest.mark.parametrize(("place", "fault"), FEW, indirect=["place"])
def test_a_write_that_fails_once(place: Place, fault: Fault) -> None:
    """As for reads. A write that raises has changed nothing, or everything."""
    store = place.open()
    for name, call in WRITES.items():
        fill(store)
        expected: list[object] = []
        count = place.requests_of(lambda: expected.append(call(store)))  # noqa: B023 - called at once
        after = present(store)
        if name == "put_stream" and place.kind == "gcs":
            count = 1  # the emulator ends an upload that asks what has arrived; for the rest see gcs/test_content.py
        for number in range(1, count + 1):
            fill(store)
            result: object = None
            with place.failing(fault, number, number), may_raise(place, name):
                result = call(store)
            if place.kind == "local" and isinstance(result, list):  # some of the deletes may have failed
                gone = {key for key, outcome in result if outcome is DeletionOutcome.DELETED}
                assert present(store) == {key: text for key, text in CONTENTS.items() if key not in gone}, number
                continue
            assert result in (None, expected[0]), (name, number)
            assert present(store) in ([after] if result is not None else [after, CONTENTS]), (name, number)


@contextmanager
def may_raise(place: Place, name: str) -> Iterator[None]:
    """Accept an error of a folder, and of a call with a stream. No other call may raise."""
    try:
        yield
    except StorageError as error:
        if place.kind != "local" and not (name in MAY_RAISE_AT_ONCE and error.transient):
            raise


@pytest.mark.parametrize(("place", "fault"), ALL, indirect=["place"])
def test_a_store_that_fails_for_good(place: Place, fault: Fault) -> None:
    """No call takes it for an empty store, an object that does not exist, or a delete that succeeded."""
    fill(place.open())
    for name, call in CALLS.items():
        store = place.open()
        window = DeleteWindow()
        with place.failing(fault):
            if name == "space_not_freed" and place.kind == "local":
                continue
            if name.startswith("delete_many"):
                keys = KEYS[:1] if "one" in name else KEYS[:2]
                with suppress(StorageError):
                    assert {answer.outcome for answer in store.delete_many(keys, window)} == {DeletionOutcome.FAILED}
            else:
                with pytest.raises(StorageError) as caught:
                    call(store)
                assert caught.value.transient or place.kind == "local", name
    assert present(place.open()) == CONTENTS


@pytest.mark.parametrize(("place", "fault"), SLOW, indirect=["place"])
def test_a_store_that_asks_to_slow_down(place: Place, fault: Fault) -> None:
    """It is given more tries than a store that fails, the asks are counted, and no delete of it is left in the air."""
    store = place.open()
    fill(store)
    assert READS["list"](store) == KEYS
    before = store.slow_downs
    with place.failing(fault, 1, QUICK.tries_when_slow - 1):
        assert READS["list"](store) == KEYS
    assert store.slow_downs == before + QUICK.tries_when_slow - 1
    window = DeleteWindow()
    with place.failing(fault, 1, QUICK.tries_when_slow - 1):
        assert outcomes(store.delete_many(KEYS, window)) == [(key, DeletionOutcome.DELETED) for key in KEYS]
    assert place.kind == "gcs" or not window.unanswered


@pytest.mark.of_ci("azure", "gcs")
@every_remote_store
def test_a_store_that_does_not_answer_in_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for client in (s3_client, azure_client, gcs_client):
        monkeypatch.setattr(client, "READ_TIMEOUT_SECONDS", 1.5)
    store = place.open()
    fill(store)
    for name in ("list", "stat_many"):
        expected = CALLS[name](store)
        with place.failing(hanging(2), 1, 1):
            assert CALLS[name](store) == expected
    window = DeleteWindow()
    with place.failing(hanging(2)), suppress(StoreUnavailableError):
        assert {answer.outcome for answer in store.delete_many(KEYS, window)} == {DeletionOutcome.FAILED}
    assert window.unanswered, "the store may still execute it"
    assert present(store) == CONTENTS


LOST: dict[str, Call] = {
    name: WRITES[name] for name in ("put", "put if absent", "copy_to", "delete_many", "delete_many, one")
}


@every_remote_store
@pytest.mark.parametrize("name", [*LOST, "delete_unchanged"])
def test_a_write_whose_answer_is_lost(place: Place, name: str) -> None:
    """The store has done it, so what the second try finds is the first one's."""
    store = place.open()
    fill(store)
    window = DeleteWindow()
    lost: list[StoreRequest] = []

    def lose(request: StoreRequest, answer: StoreAnswer) -> StoreAnswer:
        if lost or request.operation[0] not in ("PUT", "POST", "DELETE"):
            return answer
        lost.append(request)
        return StoreAnswer(0)

    place.proxy().changes.append(lose)
    if name == "delete_unchanged":
        result = outcomes(unchanged(store, window))
    elif name.startswith("delete"):
        result = outcomes(store.delete_many(KEYS[: 1 if "one" in name else 2], window))
    else:
        assert LOST[name](store) is True
        assert store.read("data/new") == (CONTENTS[KEYS[0]] if name == "copy_to" else b"new")
        return
    assert lost
    assert result == [(key, DeletionOutcome.DELETED) for key in KEYS[: 1 if "one" in name else 2]]
    assert window.unanswered
    assert sorted(present(store)) == KEYS[1 if "one" in name else 2 :]


@every_remote_store
def test_the_clock_is_the_store_s(place: Place) -> None:
    store = place.open()
    fill(store)
    later = datetime.now(UTC) + timedelta(hours=2)

    def with_date(text: str) -> Callable[[StoreRequest, StoreAnswer], StoreAnswer]:
        def change(_: StoreRequest, answer: StoreAnswer) -> StoreAnswer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() != "date"}
            return replace(answer, headers={**kept, **({"Date": text} if text else {})})

        return change

    proxy = place.proxy()
    proxy.changes.append(with_date(format_datetime(later, usegmt=True)))
    assert abs(store.now() - later) < timedelta(minutes=1)
    for text in ("", "yesterday"):
        proxy.changes[:] = [with_date(text)]
        with pytest.raises(StorageError, match="Date"):
            store.now()


@every_store
def test_checksums_are_those_of_the_whole_content(place: Place) -> None:
    store = place.open()
    store.put("data/s/small", b"content")
    store.put_stream("data/s/big", BytesIO(BIG), size_bytes=len(BIG))
    store.copy_to("data/s/big", store, "data/s/copy")
    for key, content in (("data/s/small", b"content"), ("data/s/big", BIG), ("data/s/copy", BIG)):
        md5 = hashlib.md5(content).hexdigest()
        facts = store.content_facts(key)
        assert facts is not None
        assert facts.size_bytes == len(content)
        assert facts.checksums.get("md5", md5) == md5
        assert store.content_md5([key, "data/s/none"]).get(key, md5) == md5
        assert store.content_md5([key]).keys() == ({key} if place.kind == "local" or facts.checksums else set())
    assert store.content_md5(["data/s/small"]), "each of these stores has the MD5 of an object that was written whole"
    assert store.content_facts("data/s/none") is None


@pytest.mark.parametrize("place", ["azure", "gcs"], indirect=True)  # the S3 server of the tests does not check it
@pytest.mark.parametrize("name", ["put", "put_stream"])
def test_content_that_is_damaged_on_its_way_is_not_stored(place: Place, name: str) -> None:
    store = place.open()
    fill(store)
    place.proxy().damages.append(lambda request: request.body.replace(b"content", b"contenT"))
    with pytest.raises(LakeFSGCError):
        store.put("data/new", b"content") if name == "put" else store.put_stream("data/new", BytesIO(b"content"))
    place.server.heal()
    assert present(store) == CONTENTS
