"""What every store promises, on a folder and on a real S3 server."""

from __future__ import annotations

import multiprocessing
import os
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pyarrow as pa
import pytest

from lakefs_gc.errors import NamespaceError, ObjectNotFoundError
from lakefs_gc.storage.azure.store import AzureStore
from lakefs_gc.storage.base import LISTING_SCHEMA, DeletionOutcome, ObjectStore
from lakefs_gc.storage.delete_window import DeleteWindow
from lakefs_gc.storage.fan_out import list_concurrently
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

ODD_KEYS = [
    "data/s/plain",
    "data/s/id,signature_with-43.characters",
    "data/s/space here",
    "data/s/plus+plus",
    "data/s/percent%25",
    "data/s/percent%2C",
    "data/s/100%",
    "data/s/tab\there",
    "data/s/line\nfeed",
    "data/s/carriage\rreturn",
    "data/s/control\x01",
    "data/s/<&>'\"",
    "data/s/" + unicodedata.normalize("NFD", "é"),
    "data/s/" + unicodedata.normalize("NFC", "é"),
    "data/s/😀",
    "data/s/~!()*?:;=@$[]{}|^`#",
    "data/s/.hidden",
    "data/s/...",
]

_start: Barrier  # of the process that writes, see _put_lock


@pytest.fixture(params=["local", "s3", "azure", "gcs"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    if request.param == "local":
        return StoreLocation(f"file://{tmp_path}/namespace")
    found: StoreLocation = request.getfixturevalue(f"{request.param}_namespace")
    return found


def opened(location: StoreLocation) -> ObjectStore:
    return AzureStore(location) if location.url.startswith("https://") else open_store(location)


def writable(store: ObjectStore, keys: list[str]) -> list[str]:
    """Azurite answers 500 to a listing with a control character; Azure encodes the name."""
    return [key for key in keys if not (isinstance(store, AzureStore) and "\x01" in key)]


@pytest.fixture
def store(location: StoreLocation) -> ObjectStore:
    store = opened(location)
    store.put("dummy", b"")
    return store


def keys_of(batches: Iterator[pa.RecordBatch]) -> list[str]:
    return [key for batch in batches for key in batch["address"].to_pylist()]


def fill(store: ObjectStore, keys: list[str]) -> None:
    for key in keys:
        store.put(key, key.encode())


def test_odd_keys_come_out_byte_for_byte(store: ObjectStore) -> None:
    odd_keys = writable(store, ODD_KEYS)
    fill(store, odd_keys)
    batches = list(store.list("data/"))
    assert all(batch.schema.equals(LISTING_SCHEMA) for batch in batches)
    listed = {row["address"]: row["size"] for batch in batches for row in batch.to_pylist()}
    assert listed == {key: len(key.encode()) for key in odd_keys}
    assert dict(store.read_many(odd_keys, concurrency=3)) == {key: key.encode() for key in odd_keys}
    assert set(store.stat_many(odd_keys)) == set(odd_keys)
    assert sorted(store.list_level("data/s/")[1]["address"].to_pylist()) == sorted(odd_keys)
    assert [(d.key, d.outcome, d.error) for d in store.delete_many(odd_keys)] == [
        (key, DeletionOutcome.DELETED, "") for key in odd_keys
    ]
    assert keys_of(store.list()) == ["dummy"]


def test_times_are_the_stores_own_and_in_utc(store: ObjectStore) -> None:
    store.put("data/s/a", b"1")
    (batch,) = store.list("data/")
    modified = batch["last_modified"][0].as_py()
    now = store.now()
    assert now.tzinfo is UTC
    # The clock of a store may be in whole seconds, and the time of an object exact.
    assert timedelta(seconds=-1) < now - modified < timedelta(seconds=10)
    assert abs(now - datetime.now(UTC)) < timedelta(seconds=10)
    info = store.stat_many(["data/s/a"])["data/s/a"]
    assert info.size_bytes == 1
    assert abs(info.last_modified - modified) < timedelta(seconds=1)


def test_listing_by_prefix_and_start(store: ObjectStore) -> None:
    fill(store, ["data/a/1", "data/a/2", "data/ab/1", "data/b/1", "database/1", "_lakefs/x"])
    assert sorted(keys_of(store.list("data/a/"))) == ["data/a/1", "data/a/2"]
    assert sorted(keys_of(store.list("data/a"))) == ["data/a/1", "data/a/2", "data/ab/1"]
    assert sorted(keys_of(store.list("data/"))) == ["data/a/1", "data/a/2", "data/ab/1", "data/b/1"]
    assert sorted(keys_of(store.list("data/", start_after="data/a/1"))) == ["data/a/2", "data/ab/1", "data/b/1"]
    assert keys_of(store.list("data/a/", start_after="data/a/2")) == []
    assert keys_of(store.list("nothing/")) == []
    assert list(store.list("data/a/1/")) == []


def test_a_level(store: ObjectStore) -> None:
    fill(store, ["data/a/1", "data/b/deep/er", "data/loose", "root object", "_lakefs/x"])
    sub_prefixes, objects = store.list_level()
    assert sorted(sub_prefixes) == ["_lakefs/", "data/"]
    assert sorted(objects["address"].to_pylist()) == ["dummy", "root object"]
    sub_prefixes, objects = store.list_level("data/")
    assert sorted(sub_prefixes) == ["data/a/", "data/b/"]
    assert objects.to_pylist()[0]["address"] == "data/loose"
    assert objects.schema.equals(LISTING_SCHEMA)
    assert store.list_level("nothing/")[0] == []


def test_sub_prefixes_and_what_lies_between_them_are_everything(store: ObjectStore) -> None:
    keys = [f"data/slice{number}/{name}" for number in range(5) for name in "ab"] + ["data/loose"]
    fill(store, keys)
    prefixes, objects = store.list_level("data/")
    assert len(prefixes) == 5
    below = keys_of(list_concurrently(store, prefixes, 3))
    assert sorted(below + objects["address"].to_pylist()) == sorted(keys)


def test_reading_what_is_not_there(store: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError, match="data/s/none"):
        store.read("data/s/none")
    fill(store, ["data/s/a"])
    with pytest.raises(ObjectNotFoundError, match="none"):
        list(store.read_many(["data/s/a", "none"]))
    with pytest.raises(ObjectNotFoundError), store.open_read("none"):
        pass
    assert list(store.stat_many(["none", "data/s/a"])) == ["data/s/a"]


def test_reading_the_end(store: ObjectStore) -> None:
    store.put("data/s/a", b"0123456789")
    assert store.read_end("data/s/a", 4) == b"6789"
    assert store.read_end("data/s/a", 10) == store.read_end("data/s/a", 11) == b"0123456789"
    assert store.read_end("dummy", 4) == b"", "of nothing there is no end"
    with pytest.raises(ObjectNotFoundError, match="none"):
        store.read_end("data/s/none", 4)


def test_put_replaces_but_not_if_absent(store: ObjectStore) -> None:
    assert store.put("a/b", b"1")
    assert store.put("a/b", b"2")
    assert store.put("a/b", b"3", if_absent=True) is False
    assert store.read("a/b") == b"2"
    assert store.put("a/c", b"4", if_absent=True) is True
    assert store.read("a/c") == b"4"


# A fork of the tests' own process, full of other threads, would sometimes hang: both tests start from a fresh one.


def test_one_of_many_writers_wins(location: StoreLocation, store: ObjectStore) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(4)
    with context.Pool(4, initializer=_set_start, initargs=(start,)) as pool:
        waiting = pool.starmap_async(_put_lock, [(location, b"writer %d" % number) for number in range(4)], chunksize=1)
        won = waiting.get(120)
        # To be ended by SIGTERM, as the pool does it, they must not ignore it: in tests that run in the background they
        # do, because Dagster makes SIGTERM what SIGINT is.
        pool.close()
        pool.join()
    assert won.count(True) == 1
    assert store.read("locks/lock") == b"writer %d" % won.index(True)


def _set_start(barrier: Barrier) -> None:
    global _start
    _start = barrier


def _put_lock(location: StoreLocation, data: bytes) -> bool:
    store = opened(location)
    _start.wait(60)  # so each writer is a process of its own, and all write at once
    return store.put("locks/lock", data, if_absent=True)


def test_a_store_works_on_in_a_forked_child(location: StoreLocation, store: ObjectStore) -> None:
    fill(store, ["data/s/a"])
    parent = multiprocessing.get_context("spawn").Process(target=_fork_with_open_connections, args=(location,))
    parent.start()
    parent.join(120)
    assert parent.exitcode == 0
    assert store.read("data/s/from child") == b"child"
    assert keys_of(store.list("data/s/")) == ["data/s/from child"]


def _fork_with_open_connections(location: StoreLocation) -> None:
    store = opened(location)
    assert store.read("data/s/a")
    child = multiprocessing.get_context("fork").Process(target=_use_in_child, args=(store,))
    child.start()
    child.join(20)
    if child.exitcode is None:
        child.kill()
    assert child.exitcode == 0, "the child hangs or failed"


def _use_in_child(store: ObjectStore) -> None:
    works = keys_of(store.list("data/")) == ["data/s/a"] and store.read("data/s/a") == b"data/s/a"
    store.put("data/s/from child", b"child")
    store.delete_many(["data/s/a"])
    os._exit(0 if works else 1)


def test_deleting_twice_and_what_is_not_there(store: ObjectStore) -> None:
    fill(store, ["data/s/a", "data/s/b"])
    for _ in range(2):
        answers = store.delete_many(["data/s/a", "data/never/there"])
        assert [(a.key, a.outcome) for a in answers] == [
            ("data/s/a", DeletionOutcome.DELETED),
            ("data/never/there", DeletionOutcome.DELETED),
        ]
    assert keys_of(store.list("data/")) == ["data/s/b"]
    window = DeleteWindow()
    assert [answer.outcome for answer in store.delete_many(["data/s/b"], window)] == [DeletionOutcome.DELETED]
    assert not window.unanswered, "otherwise a restore waits for minutes"
    assert store.delete_many([]) == []


def test_more_keys_than_one_request_takes(store: ObjectStore) -> None:
    fill(store, ["data/s/first", "data/s/last"])
    keys = ["data/s/first", *(f"data/s/{number}" for number in range(1100)), "data/s/last"]
    answers = store.delete_many(keys)
    assert [answer.key for answer in answers] == keys
    assert all(answer.outcome is DeletionOutcome.DELETED for answer in answers)
    assert keys_of(store.list("data/")) == []


@pytest.mark.parametrize("key", ["", "/etc/passwd", "../x", "data/../../x", "data/./x", "..", "data/s/..", "\ud800"])
def test_keys_that_leave_the_folder_are_refused(store: ObjectStore, key: str) -> None:
    fill(store, ["data/s/a"])
    for call in (
        lambda: store.read(key),
        lambda: store.put(key, b""),
        lambda: store.delete_many(["data/s/a", key]),
        lambda: store.stat_many([key]),
        lambda: store.copy_to(key, store, "data/s/b"),
        lambda: store.copy_to("data/s/a", store, key),
    ):
        with pytest.raises(NamespaceError):
            call()
    if key:
        with pytest.raises(NamespaceError):
            list(store.list(key))
    assert store.read("data/s/a")  # nothing was deleted


def test_a_neighbour_with_the_same_start_is_another_folder(location: StoreLocation, store: ObjectStore) -> None:
    neighbour = opened(StoreLocation(location.url + "2"))
    neighbour.put("data/s/theirs", b"")
    store.put("data/s/ours", b"")
    assert keys_of(store.list("data/")) == ["data/s/ours"]
    assert [d.outcome for d in store.delete_many(["data/s/theirs"])] == [DeletionOutcome.DELETED]
    assert keys_of(neighbour.list()) == ["data/s/theirs"]


def test_copies_within_and_between_stores(store: ObjectStore, tmp_path: Path, s3_namespace: StoreLocation) -> None:
    content = os.urandom(9 * 1024 * 1024)  # more than one part of a multipart upload
    key = "data/s/big 50%+é"
    store.put_stream(key, BytesIO(content))
    others = [store, opened(StoreLocation(f"file://{tmp_path}/backup")), opened(s3_namespace)]
    for number, other in enumerate(others):
        store.copy_to(key, other, f"backup/{number} 50%+é")
        assert other.read(f"backup/{number} 50%+é") == content
    with pytest.raises(ObjectNotFoundError):
        store.copy_to("data/s/none", others[1], "backup/none")
    assert others[1].stat_many(["backup/none"]) == {}


@pytest.mark.parametrize("size_bytes", [0, 100, 20 * 1024 * 1024], ids=["empty", "small", "in parts"])
def test_a_stream_overwrites_nothing_that_was_written_meanwhile(store: ObjectStore, size_bytes: int) -> None:
    class Interrupted(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() == size_bytes:  # when it has been read
                store.put("data/s/there", b"of another writer")
            return super().read(size)

    content = os.urandom(size_bytes)
    assert store.put_stream("data/s/there", Interrupted(content), if_absent=True, size_bytes=size_bytes) is False
    assert store.read("data/s/there") == b"of another writer"
    assert store.put_stream("data/s/new", BytesIO(content), if_absent=True, size_bytes=size_bytes) is True
    assert store.read("data/s/new") == content
    assert store.put_stream("data/s/new", BytesIO(b"again"), if_absent=True) is False
    assert store.read("data/s/new") == content


def test_a_broken_source_leaves_nothing(store: ObjectStore) -> None:
    class Broken(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() >= 9 * 1024 * 1024:
                raise ValueError("the source broke")
            return super().read(size)

    for if_absent in (False, True):
        with pytest.raises(ValueError, match="the source broke"):
            store.put_stream("data/s/half", Broken(bytes(20 * 1024 * 1024)), if_absent=if_absent)
        assert keys_of(store.list("data/")) == []


def test_the_place_must_exist(location: StoreLocation) -> None:
    url = {
        "file": location.url + "/nowhere",
        "s3": "s3://no-such-bucket/x",
        "gs": "gs://no-such-bucket/x",
        "https": "https://devstoreaccount1.blob.core.windows.net/no-such-container/x",
    }[location.url.partition("://")[0]]
    store = opened(StoreLocation(url))
    for call in (
        lambda: list(store.list()),
        lambda: store.list_level("data/"),
        lambda: store.stat_many(["a"]),
        lambda: store.delete_many(["a"]),
        lambda: store.now(),
    ):
        with pytest.raises(ObjectNotFoundError):
            call()
