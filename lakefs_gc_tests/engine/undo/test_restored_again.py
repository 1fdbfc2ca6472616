"""What the history says of a mark that was restored more than once, or while a sweep went on."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.records.approval import POLICY
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_history import history_of, state_of
from lakefs_gc.engine.records.restore_log import notes
from lakefs_gc.engine.records.stored_marks import Marked
from lakefs_gc.engine.sweep import sweep as sweeping
from lakefs_gc.engine.sweep.outcomes import read_result
from lakefs_gc.engine.sweep.preconditions import approve_if_needed
from lakefs_gc.engine.undo import restore as stage
from lakefs_gc.engine.undo.restore import restore
from lakefs_gc.engine.undo.restore_source import RestoreSource
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import ApprovalError
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.pruning import KEYS, backed_up


class Restored:
    """A mark that was swept and restored."""

    def __init__(self, spark: SparkSession, repository: LakeRepository, place: Backups) -> None:
        self.repository, self.place = repository, place
        self.collector, self.mark = backed_up(spark, repository, place)
        self.collector.approve(self.mark)
        self.collector.sweep(self.mark, live=[])
        self.restore(self.collector)

    def restore(self, collector: Collector, prefix: str = "") -> None:
        source = RestoreSource(self.place.manifest_of(self.mark), self.place.location, self.repository.location)
        restore(collector.context, source, prefix=prefix).raise_if_incomplete()

    def state(self, mark: Mark) -> str:
        state: str = state_of(self.repository.store, mark)["state"]
        return state


@pytest.fixture
def restored(spark: SparkSession, repository: LakeRepository, place: Backups) -> Restored:
    return Restored(spark, repository, place)


def test_what_a_sweep_of_another_mark_deleted_is_not_restored(spark: SparkSession, restored: Restored) -> None:
    """The ordinary course: they come back, nothing refers to them, and the next run marks them."""
    assert restored.state(restored.mark) == "restored"
    other = Collector(spark, restored.repository)
    later = other.mark_objects(*KEYS)
    other.approve(later)
    other.sweep(later, live=[])
    assert not {*KEYS} & restored.repository.objects()
    restored.restore(Collector(spark, restored.repository), KEYS[0])
    assert restored.state(restored.mark) == f"partly restored (1 of {len(KEYS)})"


def test_the_clock_of_another_machine_is_behind(
    spark: SparkSession, restored: Restored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its restore, which was killed, is not shown as the one that ended before."""
    collector, mark, repository = restored.collector, restored.mark, restored.repository
    collector.approve(mark)
    repository.store.delete_many(KEYS)
    known = frozenset(notes(repository.store, mark.mark_id))
    Collector(spark, repository).sweep(mark, live=[], known_restores=known)
    behind = Collector(spark, repository, clock=lambda: utc_now() - timedelta(minutes=30))

    monkeypatch.setattr(stage, "write_witness", _killed)
    with pytest.raises(KeyboardInterrupt):
        restored.restore(behind)
    assert restored.state(mark) == "restored, number of objects unknown"


@pytest.mark.parametrize("how", ["prefix", "lost copies"])
def test_what_a_killed_sweep_deleted_counts_as_deleted(
    how: str, spark: SparkSession, repository: LakeRepository, place: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The summary of the first sweep counts one half, the second sweep deleted the other one, and that comes back."""
    kept = [key.replace("data/s/", "data/kept/") for key in KEYS]
    for key in (*KEYS, *kept):
        repository.put_stray(key)
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*sorted((*KEYS, *kept)))
    place.back_up(spark, collector, mark)
    collector.approve(mark)
    collector.sweep(mark, live=kept)
    with monkeypatch.context() as patched:
        patched.setattr(sweeping, "read_result", _killed)
        with pytest.raises(KeyboardInterrupt):
            Collector(spark, repository).sweep(mark, live=[])
    assert repository.objects() == set()
    manifest = place.manifest_of(mark)
    if how == "lost copies":
        place.store.delete_many([manifest.paths.objects + key for key in KEYS])
    source = RestoreSource(manifest, place.location, repository.location)
    restore(Collector(spark, repository).context, source, prefix="data/kept/" if how == "prefix" else "")
    assert repository.objects() == set(kept)
    assert state_of(repository.store, mark)["state"] == f"partly restored ({len(kept)} of {len(kept) * 2})"


def test_a_restore_while_a_sweep_counts_is_in_the_history(
    spark: SparkSession, repository: LakeRepository, place: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its summary would be newer than the note of the restore."""
    collector, mark = backed_up(spark, repository, place)
    collector.approve(mark)

    def count(*arguments: object) -> object:
        source = RestoreSource(place.manifest_of(mark), place.location, repository.location)
        restore(Collector(spark, repository).context, source).raise_if_incomplete()
        return read_result(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(sweeping, "read_result", count)
    with pytest.raises(ApprovalError, match="A restore of mark"):
        collector.sweep(mark, live=[])
    assert set(KEYS) <= repository.objects()
    assert state_of(repository.store, mark)["state"] == "restored"


def test_the_history_has_the_other_marks_if_the_restores_of_one_are_hidden(
    restored: Restored, spark: SparkSession
) -> None:
    later = Collector(spark, restored.repository).mark_objects(*KEYS)
    restored.repository.store.delete_many([*notes(restored.repository.store, restored.mark.mark_id)])
    found = history_of(restored.repository.store, "lake", restored.repository.namespace)
    states = {facts["mark_id"]: facts["state"] for facts in found}
    assert states[later.mark_id] == "marked"
    assert states[restored.mark.mark_id].startswith("unreadable: A list of ")


def test_no_policy_approves_what_may_have_been_restored(restored: Restored, spark: SparkSession) -> None:
    """A mark of the same objects, of before the restore. What the restore found there is not newer than it."""
    repository, safety = restored.repository, restored.collector.safety
    later = Collector(spark, repository).mark_objects(*KEYS)
    restored.restore(Collector(spark, repository))
    with pytest.raises(ApprovalError, match=f"Mark {restored.mark.mark_id} was restored since mark {later.mark_id}"):
        _approve_by_policy(repository, later, safety)
    time.sleep(1.1)
    _approve_by_policy(repository, Collector(spark, repository).mark_objects(*KEYS), safety)


def _approve_by_policy(repository: LakeRepository, mark: Mark, safety: SafetyParameters) -> None:
    allowed = replace(mark, run=mark.run | {"sweep_policy": "automatic", "sweep_delay_hours": 0.0}).sealed()
    approve_if_needed(
        Marked(allowed, repository.store),
        allowed.digest,
        by="policy",
        via=f"{POLICY}automatic",
        is_repeated=False,
        safety=safety,
        clock=utc_now,
    )


def _killed(*_: object) -> None:
    raise KeyboardInterrupt
