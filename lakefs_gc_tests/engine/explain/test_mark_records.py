"""What marks and ledgers record about an object is found with few reads."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakefs_gc.engine.explain.mark_records import Marking, Outcome, find_markings
from lakefs_gc.engine.records.ledger import RECORD, ChunkWriter, LedgerWriter, sequence_of
from lakefs_gc.engine.records.mark import MarkPart, MarkPaths
from lakefs_gc.engine.records.mark_parts import PART_SCHEMA, part_content
from lakefs_gc.engine.scope import Scope
from lakefs_gc.formats.report import Summary
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.client_marks import COMMITTED, UNCOMMITTED, UNIFIED, write_client_mark
from lakefs_gc_tests.support.sample_mark import MARK, NOW

PATHS = MarkPaths.of("m1")
PARTS, SHARDS, CHUNKS, ROWS = 4, 4, 40, 5


def key_of(number: int) -> str:
    return f"data/s/{number:06}"


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """The namespace with a mark of ``PARTS`` parts."""
    store = open_store(StoreLocation(tmp_path.as_uri()))
    count = SHARDS * CHUNKS * ROWS
    parts = []
    for number in range(PARTS):
        rows = [
            {"address": key_of(each), "size": 1, "last_modified": NOW, "reason": "expired"}
            for each in range(number * count // PARTS, (number + 1) * count // PARTS)
        ]
        content = part_content(pa.Table.from_pylist(rows, PART_SCHEMA))
        key = f"{PATHS.report.deleted}part-{number:05d}.snappy.parquet"
        store.put(key, content)
        parts.append(MarkPart(key, len(rows), len(rows), hashlib.sha256(content).hexdigest()))
    mark = replace(MARK, parts=tuple(parts), candidates=count, candidate_bytes=count).sealed()
    store.put(PATHS.manifest, mark.to_json())
    store.put(PATHS.summary, Summary("m1", True, "", NOW, NOW, count, "lakefs-gc").to_json())
    return store


def records(numbers: Iterable[int], outcome: str) -> pa.RecordBatch:
    rows = [{"address": key_of(each), "size": 1, "outcome": outcome, "error": ""} for each in numbers]
    return pa.RecordBatch.from_pylist(rows, RECORD)


def sweep(store: ObjectStore, look: int, outcome: str, *, skip: frozenset[int] = frozenset()) -> None:
    """Write the ledger of one pass, sorted by address as Spark's tasks write it. ``skip``: shards that were killed."""
    first = 0
    for shard in range(SHARDS):
        writer = LedgerWriter(store, PATHS.ledger, shard, sequence_of(NOW, look, Scope.all))
        for chunk in range(CHUNKS):
            numbers = range(first, first + ROWS)
            first += ROWS
            writer.chunk(chunk).intent(records(numbers, "intent"))
            if shard not in skip:
                writer.chunk(chunk).outcome(records(numbers, outcome))


def marking(store: ObjectStore, number: int) -> Marking:
    [found] = find_markings(store, "lake", MARK.namespace, [key_of(number)]).of[key_of(number)]
    return found


def outcome_of(found: Marking) -> str:
    assert isinstance(found.outcome, Outcome)
    return found.outcome.outcome


def test_a_mark_that_is_not_swept(store: ObjectStore) -> None:
    found = find_markings(store, "lake", MARK.namespace, [key_of(3), "data/s/other"])
    assert found.of == {key_of(3): [Marking("m1", NOW, "expired")], "data/s/other": []}
    assert found.of[key_of(3)][0].is_pending
    assert found.unread == ()


def test_a_long_ledger_is_searched(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(store, 1, "failed")
    sweep(store, 2, "deleted", skip=frozenset({3}))
    reads: Counter[str] = Counter()
    read_one = store.read

    def counted(key: str) -> bytes:
        reads[key] += 1
        return read_one(key)

    monkeypatch.setattr(store, "read", counted)
    last = SHARDS * CHUNKS * ROWS - 1
    expected = {0: "deleted", 301: "deleted", last // 2: "deleted", last: "intent"}
    for number, outcome in expected.items():
        reads.clear()
        assert outcome_of(marking(store, number)) == outcome
        assert len(reads) < 50  # of 1,120 files of the ledger
        assert sum("/deleted/" in key for key in reads) == 1  # of 4 parts
    assert marking(store, 0).is_deleted
    assert not marking(store, 0).is_pending


def test_a_chunk_without_records_hides_nothing(store: ObjectStore) -> None:
    sweep(store, 1, "failed")
    for shard in range(SHARDS):
        for chunk in range(0, CHUNKS, 2):
            sequence = sequence_of(NOW, 2, Scope.all)
            writer = LedgerWriter(store, PATHS.ledger, shard, sequence).chunk(chunk)
            writer.intent(records([], "intent"))
    LedgerWriter(store, PATHS.ledger, 1, sequence_of(NOW, 2, Scope.all)).chunk(1).intent(records([7], "intent"))
    assert outcome_of(marking(store, 7)) == "intent"
    assert outcome_of(marking(store, 8)) == "failed"


def test_a_later_record_counts_unless_an_outcome_is_final(store: ObjectStore) -> None:
    sweep(store, 1, "resurrected")
    assert (outcome_of(marking(store, 9)), marking(store, 9).is_pending) == ("resurrected", True)
    sweep(store, 2, "already_gone")
    sweep(store, 3, "failed")
    assert outcome_of(marking(store, 9)) == "already_gone"


def test_a_restore_after_the_sweep(store: ObjectStore) -> None:
    sweep(store, 1, "deleted")
    ChunkWriter(store, f"{PATHS.restores}20260701T130000000000-00000-000000-").outcome(records([9], "restored"))
    assert marking(store, 9).restored_at is not None
    assert not marking(store, 9).is_deleted
    assert marking(store, 10).is_deleted


def test_a_mark_that_cannot_be_read_is_named(store: ObjectStore) -> None:
    key = f"{PATHS.report.deleted}part-00001.snappy.parquet"
    content = store.read(key)
    store.put(key, content[:100] + b"x" + content[101:])
    changed = find_markings(store, "lake", MARK.namespace, [key_of(300)])
    assert changed.of[key_of(300)] == []
    assert "was changed after the mark was made" in changed.unread[0]
    store.put("_lakefs/retention/gc/addresses/mark_id=old/part-0.parquet", b"")
    assert any("before 0.10" in each for each in find_markings(store, "lake", MARK.namespace, []).unread)
    store.delete_many([PATHS.manifest])
    assert find_markings(store, "lake", MARK.namespace, [key_of(300)]).unread[0].startswith("mark m1")


@pytest.mark.parametrize("layout", [UNIFIED, UNCOMMITTED, COMMITTED])
def test_a_mark_of_lakefs_client_is_read_in_each_layout(tmp_path: Path, layout: str) -> None:
    """Its records are where those of all marks are. Without the mark, they are those of a run that was killed."""
    store = open_store(StoreLocation(tmp_path.as_uri()))
    LedgerWriter(store, PATHS.ledger, 0, sequence_of(NOW, 1, Scope.all)).chunk(0).outcome(records([9], "deleted"))
    assert find_markings(store, "lake", MARK.namespace, [key_of(9)]).of[key_of(9)] == []
    write_client_mark(store, layout, [key_of(8), key_of(9)])
    assert marking(store, 9).is_deleted
    assert marking(store, 8).is_pending
