"""A restore and the sweeps of its mark: one of them sees the other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.records.approval import VIA_DAGSTER, VIA_SWEEP_COMMAND, read_approval
from lakefs_gc.engine.records.backups.location import find_backup
from lakefs_gc.engine.records.ledger import INTENT, RECORD, ChunkWriter, LedgerWriter
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.mark_history import state_of
from lakefs_gc.engine.records.restore_log import (
    begin_restore,
    ended_late,
    is_stopped,
    notes,
    read_restore_end,
    swept_since,
)
from lakefs_gc.engine.records.stored_marks import Marked
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.spark.witness import write_witness
from lakefs_gc.engine.sweep.deletion import DELETE, DeleteTask, Pacing, delete_objects
from lakefs_gc.engine.sweep.preconditions import approve_if_needed
from lakefs_gc.engine.sweep.store_clock import Deadline
from lakefs_gc.engine.undo.restore import RestoreResult, restore
from lakefs_gc.engine.undo.restore_source import RestoreSource
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import ApprovalError, RestoreIncompleteError, StorageError
from lakefs_gc.storage.base import Deletion
from lakefs_gc.storage.delete_window import (
    DEAD_AFTER_SECONDS,
    DELETE_DEADLINE_SECONDS,
    READ_TIMEOUT_SECONDS,
    DeleteWindow,
)
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector, counts
from lakefs_gc_tests.support.lake import LakeRepository

KEYS = tuple(f"data/s/{number}" for number in range(6))
RESTORED = "A restore of mark .* has begun"


class HalfSwept:
    """A backed up and approved mark whose sweep was killed when two of its objects were left."""

    def __init__(self, spark: SparkSession, repository: LakeRepository, folder: Path) -> None:
        self.spark, self.repository, self.store = spark, repository, repository.store
        (folder / "backups").mkdir()
        self.place = Backups(StoreLocation((folder / "backups").as_uri()))
        for key in KEYS:
            repository.put_stray(key, key.encode())
        self.collector = Collector(spark, repository)
        self.mark: Mark = self.collector.mark_objects(*KEYS)
        self.place.back_up(spark, self.collector, self.mark)
        self.collector.approve(self.mark)
        looks = iter([(), ()])

        def look(suspects: DataFrame) -> DataFrame:
            for addresses in looks:
                return self.nothing(*addresses)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.collector.sweep(self.mark, look=look, objects_per_look=2)
        self.left = self.there()
        if not 0 < len(self.left) < len(KEYS):
            raise ValueError("the sweep was not killed half way")

    def nothing(self, *addresses: str) -> DataFrame:
        return self.spark.createDataFrame([(address,) for address in addresses], "address string")

    def there(self) -> set[str]:
        return self.repository.objects() & {*KEYS}

    def restore(self, sleep: Callable[[float], None] = time.sleep, *, prefix: str = "") -> RestoreResult:
        return restore(
            self.collector.context,
            RestoreSource(
                find_backup(self.place.store, self.mark.mark_id), self.place.location, self.repository.location
            ),
            prefix=prefix,
            sleep=sleep,
        )

    def intent(self) -> tuple[Callable[[], None], str]:
        """Begin a delete, as another sweep would; gives what ends it, and the file of its intent."""
        folder = MarkPaths.of(self.mark.mark_id).ledger
        before = {*self.store_keys(folder)}
        chunk = LedgerWriter(self.store, folder, 0, "20200101T000000000000-00001").chunk(0)
        row = {"address": KEYS[0], "size": 1, "outcome": INTENT, "error": ""}
        records = pa.RecordBatch.from_pylist([row], schema=RECORD)
        chunk.intent(records)
        [key] = {*self.store_keys(folder)} - before
        return lambda: chunk.outcome(records), key

    def store_keys(self, folder: str) -> list[str]:
        return [key for batch in self.store.list(folder) for key in batch["address"].to_pylist()]


class Ledger:
    """The ledger of one mark in a folder, without Spark; ``now`` is the store's clock as the test moves it."""

    MARK_ID = "m1"

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.now, self.chunks = folder, utc_now(), 0
        self.store = open_store(StoreLocation(folder.as_uri()))
        self.waited = 0
        monkeypatch.setattr(self.store, "now", lambda: self.now)

    def begin_delete(self, *, age_seconds: float = 0) -> ChunkWriter:
        """A chunk whose intent was written so long ago."""
        self.chunks += 1
        prefix = f"{MarkPaths.of(self.MARK_ID).ledger}1-00000-{self.chunks:06d}-"
        chunk = ChunkWriter(self.store, prefix)
        chunk.intent(self.rows(INTENT))
        written = (self.now - timedelta(seconds=age_seconds)).timestamp()
        os.utime(self.folder / f"{prefix}{INTENT}.parquet", (written, written))
        return chunk

    @staticmethod
    def rows(outcome: str) -> pa.RecordBatch:
        row = {"address": KEYS[0], "size": 1, "outcome": outcome, "error": ""}
        return pa.RecordBatch.from_pylist([row], schema=RECORD)

    def begin(self, meanwhile: Callable[[], None] = lambda: None) -> frozenset[str]:
        """Begin a restore; the intents whose end is unknown.  ``meanwhile`` happens in each pause."""

        def sleep(seconds: float) -> None:
            self.waited += 1
            self.now += timedelta(seconds=seconds)
            meanwhile()

        return begin_restore(self.store, self.MARK_ID, "", self.now, sleep).dead


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    return Ledger(tmp_path, monkeypatch)


def test_a_restore_waits_until_a_delete_without_an_end_is_dead(kept: Ledger) -> None:
    kept.begin_delete(age_seconds=DEAD_AFTER_SECONDS + 100)
    chunk = kept.begin_delete(age_seconds=20)
    dead = kept.begin()
    assert len(dead) == 2
    assert kept.waited * 2 == pytest.approx(DEAD_AFTER_SECONDS - 20, abs=3), "the youngest counts"
    assert not ended_late(kept.store, kept.MARK_ID, dead)
    chunk.outcome(kept.rows("deleted"))
    assert ended_late(kept.store, kept.MARK_ID, dead)


def test_a_restore_refuses_a_list_of_before_its_note(kept: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache answers, so a delete that is under way is not in it."""
    before = list(kept.store.list(MarkPaths.of(kept.MARK_ID).folder))
    kept.begin_delete()
    monkeypatch.setattr(kept.store, "list", lambda *_, **__: iter(before))
    with pytest.raises(StorageError, match="which was written before: it is of an earlier time"):
        kept.begin()


def test_a_delete_that_ended_with_an_answer_is_not_waited_for(kept: Ledger) -> None:
    kept.begin_delete().outcome(kept.rows("deleted"))
    assert kept.begin() == set()
    chunk = kept.begin_delete()
    assert kept.begin(lambda: chunk.outcome(kept.rows("deleted"))) == set()
    assert kept.waited == 1


@pytest.mark.parametrize("outcome", ["deleted", "failed"])
def test_a_try_without_an_answer_is_waited_for_although_its_delete_has_ended(kept: Ledger, outcome: str) -> None:
    """The store may carry it out after the client gave up."""
    kept.begin_delete().outcome(kept.rows(outcome), answered=False)
    dead = kept.begin()
    assert kept.waited * 2 == pytest.approx(DEAD_AFTER_SECONDS, abs=3)
    assert dead == set(), "it has ended before: it cannot end late"
    kept.waited = 0
    assert kept.begin() == set()
    assert kept.waited == 0


def test_a_dead_delete_that_ends_without_an_answer_has_ended_late(kept: Ledger) -> None:
    chunk = kept.begin_delete(age_seconds=DEAD_AFTER_SECONDS + 1)
    dead = kept.begin()
    chunk.outcome(kept.rows("failed"), answered=False)
    assert ended_late(kept.store, kept.MARK_ID, dead)


def test_a_delete_that_was_retracted_does_not_count_as_one_since_the_restore_began(kept: Ledger) -> None:
    chunk = kept.begin_delete(age_seconds=DEAD_AFTER_SECONDS + 1)
    kept.begin()
    seen = {key for batch in kept.store.list(MarkPaths.of(kept.MARK_ID).ledger) for key in batch["address"].to_pylist()}
    assert not swept_since(kept.store, kept.MARK_ID, seen)
    kept.begin_delete().retract()
    assert not swept_since(kept.store, kept.MARK_ID, seen), "its sweep has read the note of the restore"
    chunk.outcome(kept.rows("deleted"))
    assert not swept_since(kept.store, kept.MARK_ID, seen), "it had begun before"
    kept.begin_delete()
    assert swept_since(kept.store, kept.MARK_ID, seen)


def test_a_list_that_lacks_the_newest_restore_stops_sweeps(kept: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache may have the list of before the restore: the sweep itself has asked for it."""
    folder = MarkPaths.of(kept.MARK_ID).restores
    kept.begin()
    known = frozenset(notes(kept.store, kept.MARK_ID))
    assert not is_stopped(kept.store, folder, "1-00001", known)
    old = list(kept.store.list(folder))
    kept.now += timedelta(seconds=1)
    kept.begin()
    assert is_stopped(kept.store, folder, "1-00001", known)
    monkeypatch.setattr(kept.store, "list", lambda prefix: iter(old))
    with pytest.raises(StorageError, match="it is of an earlier time"):
        is_stopped(kept.store, folder, "1-00001", known)
    with pytest.raises(StorageError, match="it is of an earlier time"):
        notes(kept.store, kept.MARK_ID)


@pytest.fixture
def half_swept(spark: SparkSession, repository: LakeRepository, tmp_path: Path) -> HalfSwept:
    return HalfSwept(spark, repository, tmp_path)


def test_what_a_sweep_had_left_stays_once_it_was_restored(half_swept: HalfSwept) -> None:
    result = half_swept.restore()
    assert result.objects["already_there"] == len(half_swept.left)
    assert result.objects["restored"] == len(KEYS) - len(half_swept.left)

    with pytest.raises(ApprovalError, match=RESTORED):
        read_approval(half_swept.store, half_swept.mark)
    with pytest.raises(ApprovalError, match=RESTORED):
        half_swept.collector.sweep(half_swept.mark, live=[])
    assert half_swept.there() == {*KEYS}

    # Nor does a policy approve it again; a person may.
    found = Marked(half_swept.mark, half_swept.store)
    digest, safety = half_swept.mark.digest, SafetyParameters()
    with pytest.raises(ApprovalError, match=RESTORED):
        approve_if_needed(found, digest, by="", via="policy after", is_repeated=False, safety=safety, clock=utc_now)
    # Nor does a run that is executed again in the name of the person who started it before the restore.
    with pytest.raises(ApprovalError, match=RESTORED):
        approve_if_needed(found, digest, by="ann", via=VIA_DAGSTER, is_repeated=True, safety=safety, clock=utc_now)
    # Nor does the sweep command: a script may repeat it.
    with pytest.raises(ApprovalError, match=RESTORED):
        approve_if_needed(
            found, digest, by="ann", via=VIA_SWEEP_COMMAND, is_repeated=False, safety=safety, clock=utc_now
        )
    time.sleep(0.01)  # the clock of the files has moved on
    approve_if_needed(found, digest, by="ann", via=VIA_DAGSTER, is_repeated=False, safety=safety, clock=utc_now)
    read_approval(half_swept.store, half_swept.mark)
    with pytest.raises(ApprovalError, match="has the digest"):
        approve_if_needed(found, "sha256:0", by="ann", via=VIA_DAGSTER, is_repeated=False, safety=safety, clock=utc_now)
    known = frozenset(notes(half_swept.store, half_swept.mark.mark_id))
    # A restore that is killed has restored objects and recorded none.
    restores = MarkPaths.of(half_swept.mark.mark_id).restores
    records = [key for key in half_swept.store_keys(restores) if key.endswith(".parquet")]
    half_swept.store.delete_many(records)
    assert records
    swept = half_swept.collector.sweep(half_swept.mark, live=[], known_restores=known)
    assert half_swept.there() == {*KEYS} - half_swept.left
    # What exists is not counted as deleted.
    assert counts(swept) == {"deleted": len(half_swept.left), "resurrected": len(KEYS) - len(half_swept.left)}


def test_a_sweep_that_has_looked_deletes_nothing_once_a_restore_has_begun(half_swept: HalfSwept) -> None:
    def look(suspects: DataFrame) -> DataFrame:
        begin_restore(half_swept.store, half_swept.mark.mark_id, "", utc_now(), time.sleep)
        return half_swept.nothing()

    with pytest.raises(ApprovalError, match=RESTORED):
        half_swept.collector.sweep(half_swept.mark, look=look)
    assert half_swept.there() == half_swept.left


def test_a_restore_waits_for_deletes_that_are_under_way(half_swept: HalfSwept, monkeypatch: pytest.MonkeyPatch) -> None:
    end, _ = half_swept.intent()
    waited: list[float] = []

    def end_meanwhile(seconds: float) -> None:
        waited.append(seconds)
        end()

    half_swept.restore(end_meanwhile).raise_if_incomplete()
    assert len(waited) == 1

    # But not for those of a sweep that was killed; one that was not dead after all is told.
    end, key = half_swept.intent()
    half_swept.repository.age(key, 1)
    real = begin_restore

    def begin(*arguments: object) -> object:
        begun = real(*arguments)  # type: ignore[arg-type]
        end()
        return begun

    monkeypatch.setattr("lakefs_gc.engine.undo.restore.begin_restore", begin)
    with pytest.raises(RestoreIncompleteError, match="ended a delete during this restore"):
        half_swept.restore(end_meanwhile)
    assert len(waited) == 1
    newest = max(notes(half_swept.store, half_swept.mark.mark_id))
    assert read_restore_end(half_swept.store, newest) is None, "the history would say that all is restored"


def test_a_delete_that_the_store_carries_out_late_does_not_undo_a_restore(
    half_swept: HalfSwept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's last try had no answer, and the store carries it out while the restore waits."""
    late, paths, at = sorted(half_swept.left), MarkPaths.of(half_swept.mark.mark_id), utc_now()
    columns = {"address": late, "size": [len(late[0])] * len(late), "last_modified": [at] * len(late)}
    plan = pa.RecordBatch.from_pydict({**columns, "verdict": [DELETE] * len(late), "begun": [False] * len(late)})

    def lose(store: LocalStore, keys: list[str], window: DeleteWindow) -> list[Deletion]:
        window.unanswered = True
        return [Deletion.of(key, "ReadTimeoutError") for key in keys]

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "delete_many", lose)
        task = DeleteTask(
            store=half_swept.repository.location,
            mark_file=paths.summary,
            ledger_folder=paths.ledger,
            sequence=f"{at:%Y%m%dT%H%M%S%f}-00001",
            objects_per_request=10,
            cutoff=at,
            delete_versions=False,
            deadline=Deadline(time.time(), time.time() + 600),
            pacing=Pacing(1, 0.0),
            restores_folder=paths.restores,
            witness=write_witness(half_swept.repository.store, MarkPaths.of(half_swept.mark.mark_id).passes),
        )
        sweep = delete_objects(task)
        assert [batch["done"].to_pylist() for batch in sweep(iter([plan]))] == [[len(late)]]
    assert half_swept.there() == {*late}

    real, passed = LocalStore.now, [0.0]
    monkeypatch.setattr(LocalStore, "now", lambda store: real(store) + timedelta(seconds=sum(passed)))

    def store_carries_it_out(seconds: float) -> None:
        passed.append(seconds)
        if sum(passed) > DELETE_DEADLINE_SECONDS + READ_TIMEOUT_SECONDS:
            half_swept.store.delete_many(late)

    half_swept.restore(store_carries_it_out).raise_if_incomplete()
    assert half_swept.there() == {*KEYS}


def test_what_a_killed_sweep_deleted_after_a_restore_is_not_restored(
    half_swept: HalfSwept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wrote no summary. Only its intents show that what was restored before does not count any more."""
    half_swept.restore().raise_if_incomplete()
    assert state_of(half_swept.store, half_swept.mark)["state"] == "restored"
    half_swept.collector.approve(half_swept.mark)
    known = frozenset(notes(half_swept.store, half_swept.mark.mark_id))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("lakefs_gc.engine.sweep.sweep._Passes.keep_recorded", die)
        with pytest.raises(KeyboardInterrupt):
            half_swept.collector.sweep(half_swept.mark, live=[], known_restores=known)
    gone = sorted({*KEYS} - half_swept.there())
    assert len(gone) > 1
    half_swept.restore(prefix=gone[0]).raise_if_incomplete()
    assert half_swept.there() == {*KEYS} - {*gone[1:]}
    assert state_of(half_swept.store, half_swept.mark)["state"] == f"partly restored (1 of {len(KEYS)})"


@pytest.mark.of_ci
@pytest.mark.long(40)
def test_a_restore_counts_what_the_sweeps_of_a_part_deleted(
    spark: SparkSession, repository: LakeRepository, tmp_path: Path
) -> None:
    for key in KEYS:
        repository.put_stray(key, key.encode())
    (tmp_path / "backups").mkdir()
    place = Backups(StoreLocation((tmp_path / "backups").as_uri()))
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*KEYS)
    place.back_up(spark, collector, mark)

    def restored(prefix: str) -> int:
        backup = find_backup(place.store, mark.mark_id)
        source = RestoreSource(backup, place.location, repository.location)
        restore(collector.context, source, prefix=prefix).raise_if_incomplete()
        end = read_restore_end(repository.store, max(notes(repository.store, mark.mark_id)))
        assert end
        return end.objects

    collector.sweep(mark, live=KEYS[:5], only=Scope.never_committed)
    assert restored(KEYS[0]) == 0, "it existed"
    assert restored("") == 1
    time.sleep(1.1)  # the times of summaries have whole seconds
    known = frozenset(notes(repository.store, mark.mark_id))
    collector.sweep(mark, live=[], only=Scope.never_committed, known_restores=known)
    assert restored(KEYS[5]) == 1, "the first restores were before the last sweep"
