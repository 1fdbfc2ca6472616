"""Trees of ranges, compared with plain dictionaries, with ranges small enough to be split often."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefs_gc.formats.entry import AddressType, Entry
from lakefs_gc.sandbox.problems import Conflict, NoChanges
from lakefs_gc.sandbox.state.records import Change, DifferenceType, Record, record_of
from lakefs_gc.sandbox.versions.ranges import Committed, RangeLimits, fnv1a_64
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.golden import golden_file

SMALL = RangeLimits(max_size_bytes=400, raggedness_entries=4)
Tree = dict[str, str]
PATHS = [f"p/{i:02}" for i in range(24)]
trees = st.dictionaries(st.sampled_from(PATHS), st.sampled_from("abc"), max_size=24)


def record(path: str, content: str, address: str = "") -> Record:
    entry = Entry(
        address=address or f"data/{path}/{content}",
        address_type=AddressType.RELATIVE,
        size_bytes=len(content),
        last_modified_ns=0,
        e_tag=content,
    )
    return record_of(path, entry)


def content_of(records: Iterator[Record]) -> Tree:
    return {record.path: record.entry.e_tag for record in records}


def changes(before: Tree, after: Tree) -> Iterator[Change]:
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            yield Change(path.encode(), record(path, after[path]) if path in after else None)


@pytest.fixture(scope="module")
def committed() -> Iterator[Committed]:
    with tempfile.TemporaryDirectory() as folder:
        yield Committed(open_store(StoreLocation(Path(folder).as_uri())), SMALL)


def write(committed: Committed, tree: Tree) -> str:
    return committed.write(record(path, tree[path]) for path in sorted(tree))


@settings(max_examples=40, deadline=None)
@given(before=trees, after=trees)
def test_apply_diff_and_get_agree_with_dictionaries(committed: Committed, before: Tree, after: Tree) -> None:
    old = write(committed, before)
    if before == after:
        with pytest.raises(NoChanges):
            committed.apply(old, changes(before, after))
        return
    new = committed.apply(old, changes(before, after))
    assert content_of(committed.records(new)) == after
    assert [r.path for r in committed.records(new)] == sorted(after)
    for path in PATHS:
        stored = committed.get(new, path.encode())
        assert (stored.entry.e_tag if stored else None) == after.get(path)
    kinds = {
        path: DifferenceType.ADDED
        if path not in before
        else DifferenceType.REMOVED
        if path not in after
        else DifferenceType.CHANGED
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path)
    }
    assert {d.key.decode(): d.type for d in committed.diff(old, new)} == kinds
    middle = b"p/12"
    assert content_of(committed.records(new, middle)) == {p: c for p, c in after.items() if p >= "p/12"}
    assert [d.key for d in committed.diff(old, new, middle)] == sorted(p.encode() for p in kinds if p >= "p/12")


@settings(max_examples=60, deadline=None)
@given(base=trees, ours=trees, theirs=trees, strategy=st.sampled_from(["", "source-wins", "dest-wins"]))
def test_merge_agrees_with_dictionaries(
    committed: Committed, base: Tree, ours: Tree, theirs: Tree, strategy: str
) -> None:
    ids = write(committed, ours), write(committed, theirs), write(committed, base)
    expected: Tree = {}
    conflicts = set()
    for path in PATHS:
        b, o, t = base.get(path), ours.get(path), theirs.get(path)
        if t in (b, o):
            merged = o
        elif o == b:
            merged = t
        else:
            conflicts.add(path)
            merged = t if strategy == "source-wins" else o
        if merged is not None:
            expected[path] = merged
    preview = {d.key.decode() for d in committed.merge_preview(*ids) if d.type is DifferenceType.CONFLICT}
    assert preview == conflicts
    if base == theirs:
        with pytest.raises(NoChanges):
            committed.merge(*ids, strategy=strategy)
    elif conflicts and not strategy:
        with pytest.raises(Conflict):
            committed.merge(*ids)
    else:
        assert content_of(committed.records(committed.merge(*ids, strategy=strategy))) == expected


def test_unchanged_ranges_are_reused(committed: Committed) -> None:
    before = dict.fromkeys(PATHS, "a")
    old = write(committed, before)
    new = committed.apply(old, changes(before, before | {"p/00": "b"}))
    old_ranges, new_ranges = ({info.id for info in committed.ranges(tree)} for tree in (old, new))
    assert len(old_ranges) > 3
    assert len(new_ranges - old_ranges) == 1
    assert sum(info.count for info in committed.ranges(new)) == len(PATHS)


def test_the_same_content_has_the_same_id_regardless_of_its_history(committed: Committed) -> None:
    tree = dict.fromkeys(PATHS, "a")
    in_one_go = write(committed, tree)
    assert write(committed, tree) == in_one_go
    assert committed.exists(in_one_go)
    assert not committed.exists("0" * 64)


def test_a_record_of_the_same_identity_keeps_the_old_address(committed: Committed) -> None:
    # lakeFS's identity excludes the address, so the new object is in no diff, and the commit keeps the old one.
    old = write(committed, {"p/00": "a", "p/01": "a"})
    same = Change(b"p/00", record("p/00", "a", address="data/new"))
    other = Change(b"p/01", record("p/01", "b"))
    new = committed.apply(old, iter([same, other]))
    stored = committed.get(new, b"p/00")
    assert stored is not None
    assert stored.entry.address == "data/p/00/a"
    with pytest.raises(NoChanges):
        committed.apply(old, iter([same]))


def test_the_cache_evicts_and_reads_again() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(StoreLocation(Path(folder).as_uri()))
        small = Committed(store, SMALL, cached_records=5)
        tree = dict.fromkeys(PATHS, "a")
        tree_id = write(small, tree)
        for _ in range(3):
            assert content_of(small.records(tree_id)) == tree
        assert small._cache_size <= 5 + max(info.count for info in small.ranges(tree_id))


@pytest.mark.parametrize(
    ("text", "digest"), [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)]
)
def test_fnv1a_matches_the_test_vectors_of_its_authors(text: bytes, digest: int) -> None:
    assert fnv1a_64(text) == digest


def test_a_real_server_ends_ranges_at_the_same_keys() -> None:
    """Ranges of a real server that a commit did not end early end with a key that hashes to 0."""
    metaranges = json.loads(golden_file("big-ranges", "api/metaranges.json"))
    ends = {info["max_key"] for metarange in metaranges.values() for info in metarange["ranges"][:-1]}
    assert sum(RangeLimits().break_after(key.encode(), 0) for key in ends) == 2
