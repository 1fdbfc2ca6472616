"""The index of a history saves reads, and never changes an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefs_gc.engine.explain.history import History
from lakefs_gc.engine.workspace import history_index
from lakefs_gc.engine.workspace.fingerprints import fingerprints
from lakefs_gc.engine.workspace.history_index import HistoryIndex, RunIndex
from lakefs_gc.engine.workspace.range_cache import RangeCache
from lakefs_gc.formats.addresses import spellings
from lakefs_gc.formats.ranges import METARANGE_SCHEMA
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.lake import Lake, LakeRepository

_COMMITS = 4


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[LakeRepository]:
    with Lake(tmp_path / "lake") as lake:
        yield lake.repository()


@pytest.fixture
def keys(repository: LakeRepository) -> list[str]:
    """One object for each commit, each in a range of its own: an object replaces the one before."""
    keys = []
    for number in range(_COMMITS):
        keys.append(repository.put("path", str(number)))
        repository.commit()
    return keys


@pytest.fixture
def index_store(tmp_path: Path) -> ObjectStore:
    (tmp_path / "work").mkdir()
    return open_store(StoreLocation((tmp_path / "work").as_uri()))


Read = Callable[[], tuple[History, Counter[str]]]


@pytest.fixture
def read(repository: LakeRepository, index_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Read the history, and count what is read from the namespace from then on."""
    reads: Counter[str] = Counter()

    def read() -> tuple[History, Counter[str]]:
        store = open_store(repository.location)
        read_many = store.read_many

        def counted(keys: Iterable[str], *, concurrency: int) -> Iterator[tuple[str, bytes]]:
            keys = list(keys)
            reads.update(keys)
            return read_many(keys, concurrency=concurrency)

        monkeypatch.setattr(store, "read_many", counted)
        reads.clear()
        folders = spellings(repository.namespace, repository.location.url)
        known = KnownFolders(repository.namespace, repository.location, folders, (), ())
        index = HistoryIndex.read(index_store, known)
        server = LakeFSClient(repository.lake.credentials)
        return History.read(server, repository.name, store, known, index, 1000), reads

    return read


def files_of(store: ObjectStore) -> list[str]:
    return [key for batch in store.list("_history_index/") for key in batch.column("address").to_pylist()]


def found(history: History, keys: list[str]) -> list[tuple[str, str]]:
    return [(sighting.address, sighting.path) for sighting in history.sightings(keys)]


def test_only_the_ranges_of_an_object_are_read_again(keys: list[str], read: Read) -> None:
    history, reads = read()
    assert found(history, keys[:1]) == [(keys[0], "path")]
    assert len(reads) == 2 * _COMMITS  # each metarange and each range
    history, reads = read()
    assert not reads
    assert found(history, keys[:1]) == [(keys[0], "path")]
    assert len(reads) == 1
    assert found(history, ["data/no/such-object"]) == []
    assert len(reads) == 1
    assert found(history, [*keys, "short"]) == [(key, "path") for key in sorted(keys)]


def test_a_new_commit_is_read(repository: LakeRepository, keys: list[str], read: Read) -> None:
    assert found(read()[0], keys[:1])
    new = repository.put("new")
    repository.commit()
    history, reads = read()
    assert found(history, [new]) == [(new, "new")]
    assert len(reads) == 2


def test_a_damaged_index_changes_no_answer(keys: list[str], read: Read, index_store: ObjectStore) -> None:
    found(read()[0], keys)
    [file] = files_of(index_store)
    content = bytearray(index_store.read(file))
    content[len(content) // 3] ^= 1
    index_store.put(file, bytes(content))
    history, reads = read()
    assert not history.index.prints
    assert found(history, keys) == [(key, "path") for key in sorted(keys)]
    assert len(reads) == 2 * _COMMITS


def test_many_files_are_merged(
    repository: LakeRepository, read: Read, index_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_index, "_MOST_FILES", 3)
    keys = []
    for number in range(5):
        keys.append(repository.put(f"path-{number}"))
        repository.commit()
        found(read()[0], keys[:1])
    assert len(files_of(index_store)) == 2
    history, reads = read()
    assert not reads
    assert [address for address, _ in found(history, keys)] == sorted(keys)


def test_only_the_ranges_that_may_have_a_path_are_read(
    repository: LakeRepository, read: Read, index_store: ObjectStore
) -> None:
    at = {f"{folder}/{name}": repository.put(f"{folder}/{name}") for folder in "ac" for name in "xy"}
    repository.commit()
    for path in at:
        repository.delete(path)
    b = repository.put("b/z")
    repository.commit()
    history, reads = read()
    metaranges = len(reads)
    assert found(history, [b]) == [(b, "b/z")]
    before = len(reads)
    assert [sighting.address for sighting in history.objects_at(["a/x"])] == [at["a/x"]]
    assert (len(reads), history.ranges_not_read) == (before, 1), "the same file, which also has c/y, and nothing else"
    history, reads = read()
    assert not reads
    assert (history.objects_at(["d", "0/", "c/z"]), dict(reads)) == ([], {})
    assert [sighting.path for sighting in history.objects_at(["b/"])] == ["b/z"]
    assert [sighting.path for sighting in history.objects_at(["a/", "c/y"])] == ["a/x", "a/y", "c/y"]
    # Without the index, the metaranges are read again, and the answer is the same.
    index_store.delete_many(files_of(index_store))
    history, reads = read()
    assert (len(reads), [sighting.path for sighting in history.objects_at(["b/"])]) == (metaranges, ["b/z"])


_KEYS = st.text("ab/\u00ff", min_size=1, max_size=4)


@given(st.sets(_KEYS, min_size=1), st.sets(_KEYS, min_size=1))
def test_bounds_exclude_only_what_is_not_there(keys: set[str], paths: set[str]) -> None:
    encoded = sorted(key.encode() for key in keys)
    index = HistoryIndex(open_store(StoreLocation("file:///tmp")), "")
    index.add_metarange("metarange", {"range": (encoded[0], encoded[-1])})
    wanted = [path.encode() for path in paths]
    there = [key for key in encoded for path in wanted if key == path or (path.endswith(b"/") and key.startswith(path))]
    assert index.may_have_path("range", wanted) or not there
    assert index.may_have_path("another", wanted)
    # Nothing after the last key, or before the first, can be in it.
    assert not index.may_have_path("range", [encoded[-1] + b"x"])
    # A metarange that states otherwise makes it more likely to be read, never less.
    index.add_metarange("wrong", {"range": (b"b", b"b")})
    assert index.may_have_path("range", wanted) or not there


def test_a_task_adds_what_it_read_from_the_store_alone(index_store: ObjectStore, repository: LakeRepository) -> None:
    known = KnownFolders(repository.namespace, repository.location, (repository.namespace,), (), ())
    rows = [pa.record_batch([pa.array(addresses)], names=["address"]) for addresses in (["data/a/b"], ["c" * 20])]
    for max_bytes in (0, 1):
        task = RunIndex(RangeCache(index_store.location, max_bytes), known)
        task.add({"range_id": "cached", "pack": "p"}, rows)
        task.add({"range_id": "read", "pack": None}, rows)
        task.add({"range_id": "metarange", "pack": None}, [])
        task.write()
        index = HistoryIndex.read(index_store, known)
        assert index.prints.keys() == ({"read", "metarange"} if max_bytes else set())
    assert index.may_have("read", fingerprints(pa.array(["c" * 20])))
    assert index.may_have("cached", fingerprints(pa.array(["other"])))
    assert not index.may_have("read", fingerprints(pa.array(["other"])))
    assert not index.may_have("metarange", fingerprints(pa.array([f"other-{number}" for number in range(9)])))


def test_a_task_adds_metaranges_with_the_bounds_of_their_ranges(
    index_store: ObjectStore, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = KnownFolders(repository.namespace, repository.location, (repository.namespace,), (), ())

    def metarange(*ranges: tuple[str, bytes, bytes]) -> pa.RecordBatch:
        rows = [
            {"range_id": name, "min_key": first, "max_key": last, "entries": 1, "estimated_size": 1}
            for name, first, last in ranges
        ]
        return pa.RecordBatch.from_pylist(rows, schema=METARANGE_SCHEMA)

    monkeypatch.setattr(history_index, "_MOST_NAMES", 3)
    task = RunIndex(RangeCache(index_store.location, 1), known)
    task.add({"range_id": "b", "pack": None}, [])
    task.add_metarange({"range_id": "cached", "pack": "p"}, metarange(("a", b"0", b"9")))
    task.add_metarange({"range_id": "m1", "pack": None}, metarange(("b", b"1", b"2"), ("a", b"3", b"4")))
    task.add_metarange({"range_id": "empty", "pack": None}, metarange())
    task.add_metarange({"range_id": "m2", "pack": None}, metarange(("c", b"0", b"1"), ("b", b"1", b"5")))
    task.add_metarange(
        {"range_id": "m3", "pack": None},
        metarange(
            ("b", b"0", b"2"),
        ),
    )
    task.write()
    assert len(files_of(index_store)) == 2, "a task holds only so many names"
    index = HistoryIndex.read(index_store, known)
    named = {each: [index.ranges.names[number] for number in numbers] for each, numbers in index.ranges_of.items()}
    assert named == {"m1": ["b", "a"], "empty": [], "m2": ["c", "b"], "m3": ["b"]}
    assert index.bounds == {"a": (b"3", b"4"), "b": (b"0", b"5"), "c": (b"0", b"1")}, "the widest that any states"
    assert index.prints.keys() == {"b"}
    # Many files become one, without what the namespace no longer has.
    monkeypatch.setattr(history_index, "_MOST_FILES", 1)
    index.write({"m2", "b"})
    merged = HistoryIndex.read(index_store, known)
    assert [merged.ranges.names[number] for number in merged.ranges_of.pop("m2")] == ["c", "b"]
    assert not merged.ranges_of
    assert merged.bounds == {"b": (b"0", b"5")}
    assert merged.prints.keys() == {"b"}
