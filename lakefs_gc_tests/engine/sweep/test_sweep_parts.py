"""A sweep of one part of a mark: it deletes and counts this part, and leaves the rest to a sweep of its own."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SweepSettings
from lakefs_gc.engine.records import approval
from lakefs_gc.engine.records.ledger import RECORD, LedgerWriter, scope_of, sequence_of
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.stored_marks import Marked
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.sweep.preconditions import approve_if_needed, check_preconditions
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import ApprovalError, ConfigurationError, MarkError, SafetyError
from lakefs_gc_tests.support.collector import Collector, counts, marked
from lakefs_gc_tests.support.lake import LakeRepository, keys_below


def fill(repository: LakeRepository) -> tuple[list[str], list[str]]:
    """Make two expired and three never committed objects, and one that a branch shows."""
    expired = [repository.put(path) for path in ("one", "two")]
    repository.commit(age_days=30)
    for path in ("one", "two"):
        repository.delete(path)
    repository.put("kept")
    repository.commit(age_days=20)
    repository.keep_days(10)
    return expired, [repository.put_stray(f"data/zzz/{name}", b"123") for name in "abc"]


def stored(repository: LakeRepository, *keys: str) -> set[str]:
    return set(repository.store.stat_many(list(keys)))


@pytest.fixture
def collector(spark: SparkSession, repository: LakeRepository) -> Collector:
    return Collector(spark, repository)


@pytest.mark.long(40)
def test_each_part_is_swept_on_its_own(collector: Collector, repository: LakeRepository) -> None:
    expired, never_committed = fill(repository)
    mark = collector.collect_and_mark()
    paths, store = MarkPaths.of(mark.mark_id), repository.store

    # An earlier sweep of the other part failed: neither are its deletes repeated, nor does its failure count here.
    writer = LedgerWriter(store, paths.ledger, 0, sequence_of(collector.run.started_at, 1, Scope.never_committed))
    failed = {"address": never_committed[0], "size": 3, "outcome": "failed", "error": "denied"}
    writer.chunk(0).outcome(pa.RecordBatch.from_pylist([failed], schema=RECORD))
    before = set(keys_below(store, paths.ledger))
    result = collector.sweep(mark, only=Scope.expired, retries=1)
    assert (counts(result), set(collector.swept)) == ({"deleted": 2}, set(expired))
    assert stored(repository, *expired, *never_committed) == set(never_committed)
    assert set(store.stat_many([paths.sweep_summary_of(only) for only in Scope])) == {
        paths.sweep_summary_of(Scope.expired)
    }
    assert {scope_of(key) for key in set(keys_below(store, paths.ledger)) - before} == {Scope.expired}
    assert collector.manifest("sweep").facts["only"] == "expired"

    # The rest has its own second look, and its own account.
    result = collector.sweep(mark, live=never_committed[:1], only=Scope.never_committed)
    assert counts(result) == {"deleted": 2, "resurrected": 1}
    assert stored(repository, *never_committed) == set(never_committed[:1])
    assert counts(collector.sweep(mark, only=Scope.expired)) == {"deleted": 2}

    # A sweep of the whole mark continues with what remains, and accounts for all.
    assert counts(collector.sweep(mark, live=[])) == {"deleted": 5}
    assert stored(repository, *never_committed) == set()


def test_a_mark_of_a_part_holds_only_this_part(collector: Collector, repository: LakeRepository) -> None:
    expired, never_committed = fill(repository)
    collector.only = Scope.expired
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == set(expired)
    assert (mark.only, mark.run["only"], mark.candidates) == (Scope.expired, "expired", 2)
    assert mark.reasons["never_committed"] == {"objects": 0, "size_bytes": 0}
    assert collector.read_mark(mark.mark_id) == mark
    with pytest.raises(MarkError, match="holds no never_committed objects"):
        mark.objects_of(Scope.never_committed)

    collector.approve(mark, Scope.expired)
    marked_here = Marked(mark, repository.store)
    for only in (Scope.all, Scope.never_committed):
        with pytest.raises((ApprovalError, MarkError)):
            check_preconditions(collector.context, collector.run_key, marked_here, only)
    permit = check_preconditions(collector.context, collector.run_key, marked_here, Scope.expired)
    assert (permit.only, permit.approval.only) == (Scope.expired, Scope.expired)
    with pytest.raises(ApprovalError, match="Only a part of mark"):
        approve_if_needed(
            Marked(replace(mark, run=mark.run | {"sweep_policy": "immediately"}), repository.store),
            mark.digest,
            by="nobody",
            via="policy immediately",
            is_repeated=False,
            safety=collector.safety,
            clock=utc_now,
        )
    assert counts(collector.sweep(mark)) == {"deleted": 2}
    assert stored(repository, *expired, *never_committed) == set(never_committed)


def test_a_failed_check_that_the_approval_does_not_override(
    collector: Collector, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody approves such a mark, but its approval may be one of a version that did not have this check."""
    fill(repository)
    repository.store.delete_many([repository.put("lost")])
    mark = collector.collect_and_mark()
    with pytest.raises(SafetyError, match="1 referenced objects do not exist"):
        collector.approve(mark)
    monkeypatch.setattr(approval, "refuse_failed_checks", lambda *_, **__: None)
    collector.approve(mark)
    with pytest.raises(SafetyError, match="1 referenced objects do not exist"):
        check_preconditions(collector.context, collector.run_key, Marked(mark, repository.store))


def test_versions_that_cannot_be_deleted_are_refused_before_the_wait(
    collector: Collector, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(repository)
    mark = collector.collect_and_mark()
    collector.approve(mark)
    here = Marked(mark, repository.store)

    def refuse(_: object) -> None:
        raise ConfigurationError("lakefs-gc does not delete versions here", remedy="Set it to false")

    monkeypatch.setattr(repository.store, "find_versions", refuse)
    assert check_preconditions(collector.context, collector.run_key, here)
    asked = collector.context_with(sweep=SweepSettings(delete_versions=True))
    with pytest.raises(ConfigurationError, match="does not delete versions here"):
        check_preconditions(asked, collector.run_key, here)


def test_a_run_of_all_objects_records_no_part(collector: Collector) -> None:
    """The digests of marks stay as they are."""
    collector.materialize("store_listing")
    run = collector.run
    assert (run.only, "only" in run.to_facts()) == (Scope.all, False)
    part = replace(run, only=Scope.expired)
    facts = collector.manifest("store_listing").facts | {"run": part.to_facts()}
    assert GCRun.of(replace(collector.manifest("store_listing"), facts=facts)) == part


def counted_as(mark: Mark, expired: int, never_committed: int) -> Mark:
    objects = {"expired": expired, "never_committed": never_committed}
    return replace(mark, reasons={only: {"objects": count, "size_bytes": 0} for only, count in objects.items()})


def test_files_that_do_not_fit_the_counts_of_the_parts_are_refused(
    collector: Collector, repository: LakeRepository
) -> None:
    keys = [repository.put_stray(f"data/s/{name}", b"123") for name in "abc"]
    mark = collector.mark_objects(*keys)
    for expired, never_committed in ((1, 2), (0, 2), (3, 0), (1, 3)):
        for only in (Scope.expired, Scope.never_committed):
            with pytest.raises(MarkError, match="hold 0 expired and 3 never committed objects, but its manifest"):
                collector.sweep(counted_as(mark, expired, never_committed), live=[], only=only)
    assert stored(repository, *keys) == set(keys)
    assert counts(collector.sweep(mark, live=[], only=Scope.expired)) == {}
    assert stored(repository, *keys) == set(keys)
    assert counts(collector.sweep(mark, live=[], only=Scope.never_committed)) == {"deleted": 3}
