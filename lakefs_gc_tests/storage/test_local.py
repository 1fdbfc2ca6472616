"""What is special about a local folder: links, races, half-written files, rights."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest

from lakefs_gc.errors import NamespaceError, ObjectNotFoundError, StorageError
from lakefs_gc.storage import local
from lakefs_gc.storage.base import DeletionOutcome
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "namespace"


@pytest.fixture
def store(folder: Path) -> LocalStore:
    folder.mkdir()
    return LocalStore(StoreLocation(f"file://{folder}"))


def keys_of(batches: Iterator[pa.RecordBatch]) -> list[str]:
    return sorted(key for batch in batches for key in batch["address"].to_pylist())


def test_a_file_being_written_is_no_object(store: LocalStore, folder: Path) -> None:
    seen: list[list[str]] = []

    class Source(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            seen.append(keys_of(store.list()) + store.list_level("data/")[1]["address"].to_pylist())
            return super().read(size)

    store.put("data/old", b"")
    store.put_stream("data/new", Source(b"content"))
    assert seen
    assert all(keys == ["data/old", "data/old"] for keys in seen)
    assert keys_of(store.list()) == ["data/new", "data/old"]
    assert sorted(path.name for path in (folder / "data").iterdir()) == ["new", "old"]


@pytest.mark.parametrize("slow_read_s", [1000.0, 0.0])
def test_only_files_of_a_slow_disk_are_read_in_threads(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, slow_read_s: float
) -> None:
    monkeypatch.setattr(local, "_SLOW_READ_S", slow_read_s)
    contents = {f"data/{number:02}": str(number).encode() for number in range(3 * local._FIRST_READS)}
    for key, content in contents.items():
        store.put(key, content)
    read, threads = LocalStore._read, []

    def noting(self: LocalStore, key: str) -> bytes:
        threads.append(threading.current_thread() is threading.main_thread())
        return read(self, key)

    monkeypatch.setattr(LocalStore, "_read", noting)
    found = list(store.read_many(contents, concurrency=4))
    assert len(found) == len(contents)
    assert dict(found) == contents
    here = local._FIRST_READS if slow_read_s == 0 else len(contents)
    assert threads == [True] * here + [False] * (len(contents) - here)
    assert list(store.read_many([])) == []
    with pytest.raises(ObjectNotFoundError, match="none"):
        list(store.read_many([*contents, "none"]))


def test_names_of_files_being_written_are_refused(store: LocalStore) -> None:
    with pytest.raises(NamespaceError):
        store.put(f"data/.lakefs-gc-{'0' * 32}.tmp", b"")


def test_links_out_of_the_folder_are_not_followed(store: LocalStore, folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    store.put("data/s/a", b"")
    (folder / "data/s/link").symlink_to(outside / "secret")
    (folder / "data/linked").symlink_to(outside)
    for key in ("data/s/link", "data/linked/secret", "data/linked/x/y"):
        with pytest.raises(NamespaceError, match=r"/data/(s/link|linked) is a symbolic link"):
            store.stat_many(["data/s/a", key])
    assert store.stat_many(["data/s/a", "data/s/a/b", "data/none/x"]).keys() == {"data/s/a"}
    with pytest.raises(NamespaceError):
        store.read("data/s/link")
    with pytest.raises(ObjectNotFoundError):
        store.read("data/linked/secret")
    with pytest.raises(StorageError):
        store.put("data/linked/new", b"")
    store.delete_many(["data/s/link", "data/linked/secret"])
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "secret"


@pytest.mark.parametrize("leads_to", ["a file", "a folder", "nothing", "itself"])
@pytest.mark.parametrize("link", ["_lakefs/moved", "data/s/moved", "data/moved", "data", "_lakefs", "moved"])
def test_a_link_below_the_folder_fails_each_listing(folder: Path, tmp_path: Path, link: str, leads_to: str) -> None:
    cold = tmp_path / "cold"
    (cold / "folder").mkdir(parents=True)
    (cold / "file").write_text("moved")
    store = LocalStore(StoreLocation(f"file://{folder}"))
    store.put("other/s/a", b"")
    (folder / link).parent.mkdir(parents=True, exist_ok=True)
    target = {"a file": cold / "file", "a folder": cold / "folder", "nothing": cold / "gone", "itself": folder / link}
    (folder / link).symlink_to(target[leads_to])
    level = f"{link.rpartition('/')[0]}/".lstrip("/")
    for look in (
        lambda: list(store.list()),
        lambda: list(store.list(level)),
        lambda: store.list_level(level),
        lambda: list(store.list(f"{link}/")),
        lambda: store.list_level(f"{link}/"),
    ):
        with pytest.raises(NamespaceError, match=f"{link} is a symbolic link"):
            look()
    assert keys_of(store.list("other/")) == ["other/s/a"]


def test_the_folder_itself_may_be_a_link(store: LocalStore, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    other = LocalStore(StoreLocation(f"file://{tmp_path}/link/"))
    other.put("data/s/a", b"1")
    assert store.read("data/s/a") == b"1"
    assert keys_of(other.list()) == ["data/s/a"]


def test_emptied_folders_go_but_never_the_stores_own(store: LocalStore, folder: Path) -> None:
    for key in ("data/s/t/a", "data/s/b", "data/u/c"):
        store.put(key, b"")
    store.delete_many(["data/s/t/a"])
    assert not (folder / "data/s/t").exists()
    assert (folder / "data/s").exists()
    store.delete_many(["data/s/b", "data/u/c"])
    assert folder.exists()
    assert list(folder.iterdir()) == []


def test_puts_while_deletes_remove_the_folder(store: LocalStore) -> None:
    """Each put makes the folder that the delete before it removed, or is removing."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def delete() -> None:
        try:
            while not stop.is_set():
                store.delete_many(["a/b/c/deleted"])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=delete) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(60):
            store.put("a/b/c/deleted", b"x")
            store.put("a/b/c/kept", b"%d" % number)
            assert store.read("a/b/c/kept") == b"%d" % number
            store.delete_many(["a/b/c/kept"])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []


def test_what_is_no_regular_file_is_not_deleted(store: LocalStore, folder: Path) -> None:
    store.put("data/s/a", b"")
    os.mkfifo(folder / "data/pipe")
    answers = store.delete_many(["data/s", "data/pipe", "data/s/a/below"])
    assert [a.outcome for a in answers] == [
        DeletionOutcome.FAILED,
        DeletionOutcome.FAILED,
        DeletionOutcome.DELETED,
    ]
    assert keys_of(store.list()) == ["data/s/a"]
    with pytest.raises(ObjectNotFoundError):
        store.read("data/pipe")


def test_a_folder_where_an_object_should_go(store: LocalStore) -> None:
    store.put("data/s/a", b"")
    for if_absent in (True, False):
        with pytest.raises(StorageError):
            store.put("data/s", b"", if_absent=if_absent)
        with pytest.raises(StorageError, match="must be a folder"):
            store.put("data/s/a/b", b"", if_absent=if_absent)
    assert keys_of(store.list()) == ["data/s/a"]


@pytest.mark.parametrize("code", ["ENOSYS", "ENOTSUP", "EOPNOTSUPP", "EPERM", "EMLINK"])
def test_a_file_system_without_hard_links(
    code: str, store: LocalStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as gcsfuse's and blobfuse's: a restore to it is possible, and does not overwrite what it sees there."""
    store.put("backup", b"copy")
    _no_links(monkeypatch, getattr(errno, code))
    assert store.put("data/s/put", b"new", if_absent=True) is True
    assert store.put_stream("data/s/stream", BytesIO(b"new"), if_absent=True) is True
    assert store.copy_to("backup", store, "data/s/copy", if_absent=True) is True
    assert [store.read(f"data/s/{name}") for name in ("put", "stream", "copy")] == [b"new", b"new", b"copy"]
    assert store.put("data/s/put", b"newer", if_absent=True) is False
    assert store.copy_to("backup", store, "data/s/put", if_absent=True) is False
    assert store.read("data/s/put") == b"new"
    (folder / "data/s/link").symlink_to("put")
    for taken in ("data/s", "data/s/link"):
        with pytest.raises(StorageError):
            store.put(taken, b"", if_absent=True)
    assert (folder / "data/s/link").is_symlink()
    assert sorted(path.name for path in (folder / "data/s").iterdir()) == ["copy", "link", "put", "stream"]


def test_other_failures_of_a_link_are_failures(
    store: LocalStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _no_links(monkeypatch, errno.ENOSPC)
    with pytest.raises(StorageError, match="No space"):
        store.put("data/s/a", b"", if_absent=True)
    assert list((folder / "data/s").iterdir()) == []


def _no_links(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", link)


def test_a_name_that_is_not_utf8_stops_the_listing(store: LocalStore, folder: Path) -> None:
    """Left out silently, it would be an object that nobody ever sees."""
    store.put("data/a", b"")
    (folder / "data" / os.fsdecode(b"\xff\xfe")).touch()
    with pytest.raises(StorageError, match="not valid UTF-8"):
        keys_of(store.list())


@pytest.mark.parametrize("key", ["a//b", "a/", "a\0b"])
def test_keys_that_are_no_file_names(store: LocalStore, key: str) -> None:
    with pytest.raises(NamespaceError):
        store.put(key, b"")


def test_long_listings_come_in_batches(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "BATCH_ROWS", 4)
    for number in range(10):
        store.put(f"data/{number % 3}/{number}", b"")
    assert [batch.num_rows for batch in store.list()] == [4, 4, 2]
