"""What the checks of a mark are evaluated from, on a real repository."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import Protections, SafetyParameters
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.workspace.workspace import StageOutput
from lakefs_gc.errors import InputOrderError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.collector import STAGES, Collector, marked
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lakefs_proxy import LakeFSProxy, refusal


def on(mark: Mark) -> set[str]:
    return {check.name for check in mark.checks if not check.passed}


@pytest.mark.long(60)
def test_looser_rules_are_looked_at_until_somebody_sweeps_by_them(
    spark: SparkSession, repository: LakeRepository
) -> None:
    repository.put("a")
    repository.commit(age_days=40)
    repository.delete("a")
    repository.put("b")
    repository.commit(age_days=20)
    repository.commit(age_days=12, allow_empty=True)
    repository.keep_days(30)
    assert on(Collector(spark, repository).collect_and_mark()) == set(), "nothing was before"
    repository.keep_days(10)
    assert on(Collector(spark, repository).collect_and_mark()) == {"rules_not_looser"}
    collector = Collector(spark, repository)
    again = collector.collect_and_mark()
    assert on(again) == {"rules_not_looser"}, "a second try is no look"
    assert collector.read_mark(again.mark_id) == again
    # Whoever sweeps what was never committed has not agreed to the rules.
    never_committed = Collector(spark, repository)
    never_committed.only = Scope.never_committed
    of_a_part = never_committed.collect_and_mark()
    assert on(of_a_part) == {"rules_not_looser"}
    never_committed.sweep(of_a_part)
    again = collector.collect_and_mark()
    assert on(again) == {"rules_not_looser"}
    collector.sweep(again, only=Scope.expired)
    assert on(Collector(spark, repository).collect_and_mark()) == set()


def test_protections_that_a_run_does_not_have(spark: SparkSession, repository: LakeRepository) -> None:
    """A run that does not find the configuration marks what was protected: a person looks first."""
    protected = repository.put("audit/a")
    repository.tag("release-1", repository.commit(age_days=40))
    repository.delete("audit/a")
    repository.put("b")
    repository.commit(age_days=20)
    repository.commit(age_days=12, allow_empty=True)
    repository.keep_days(10)
    protect = Protections(tags=("release-*",), path_prefixes=("audit/",))
    first = Collector(spark, repository, safety=SafetyParameters(protect=protect))
    mark = first.collect_and_mark()
    assert (marked(repository, mark), on(mark)) == (set(), set())
    assert first.read_mark(mark.mark_id) == mark
    time.sleep(1)  # the id of a mark has whole seconds, and of two in the same second either may count as the newer
    without = Collector(spark, repository)
    mark = without.collect_and_mark()
    assert (marked(repository, mark), on(mark)) == ({protected}, {"rules_not_looser"})
    [said] = [check.message for check in mark.checks if not check.passed]
    assert "tags release-*; paths audit/" in said
    by_paths = Protections(path_prefixes=("a",))
    again = Collector(spark, repository, safety=SafetyParameters(protect=by_paths)).collect_and_mark()
    assert (marked(repository, again), on(again)) == (set(), {"rules_not_looser"}), "the tag, of two marks before"
    without.sweep(mark)
    assert on(Collector(spark, repository).collect_and_mark()) == set(), "somebody has swept without"


def test_an_audit_of_what_was_before_is_no_evidence(spark: SparkSession, repository: LakeRepository) -> None:
    """Everything up to ``missing`` is materialized again, after an object was lost."""
    live = repository.put("a")
    repository.commit()
    repository.put_stray("data/x")
    collector = Collector(spark, repository)
    collector.collect()
    assert collector.manifest("missing").facts["lost"] == 0
    repository.store.delete_many([live])
    collector.materialize(*STAGES[: STAGES.index("kept")])
    with pytest.raises(InputOrderError, match="candidates and missing were made from different materializations"):
        collector.mark()
    collector.materialize("kept", "candidates")
    assert on(collector.mark()) == {"live_objects_exist"}
    collector.materialize("missing")
    with pytest.raises(InputOrderError, match="kept was made from another materialization of missing"):
        collector.mark()


def test_rules_that_the_candidates_do_not_go_by_are_no_evidence(
    spark: SparkSession, repository: LakeRepository
) -> None:
    repository.put("a")
    repository.commit(age_days=20)
    repository.delete("a")
    repository.commit(age_days=10)
    repository.commit(age_days=9, allow_empty=True)
    repository.keep_days(30)
    assert on(Collector(spark, repository).collect_and_mark()) == set()
    repository.keep_days(1)
    collector = Collector(spark, repository)
    collector.collect()
    assert collector.manifest("candidates").rows == 1
    repository.keep_days(30)
    collector.materialize("active_ranges")
    with pytest.raises(InputOrderError, match=r"committed of .* began .* before active_ranges had ended"):
        collector.mark()


def test_a_marked_object_that_a_branch_shows(spark: SparkSession, repository: LakeRepository) -> None:
    """Whatever went wrong before: here the candidates themselves are spoiled."""
    live = repository.put("a")
    repository.commit()
    repository.put_stray("data/x")
    repository.keep_days(10)
    collector = Collector(spark, repository)
    collector.collect()
    spoil(collector, "data/x", live)
    mark = collector.mark()
    assert on(mark) == {"no_head_object_marked"}
    assert replace(mark, checks=()) != mark


def spoil(collector: Collector, address: str, instead: str) -> None:
    """Replace an address of the candidates, as if an earlier stage were wrong."""
    candidates = collector.dataset("candidates")
    rows = [
        (row.address.replace(address, instead), row.size, row.last_modified, row.reason)
        for row in candidates.dataframe.collect()
    ]
    output = StageOutput(
        collector.spark.createDataFrame(rows, candidates.dataframe.schema),
        candidates.manifest.began_at,
        candidates.manifest.facts,
        inputs=candidates.manifest.inputs,
    )
    collector.workspace.write(collector.spark, collector.run_key, "candidates", output)


def import_objects(repository: LakeRepository, *paths: str) -> None:
    for path in paths:
        repository.stage(path, f"local:///elsewhere/{path}")


def test_imports_do_not_fill_the_sample(spark: SparkSession, repository: LakeRepository) -> None:
    """The first objects that the branch lists are all imports: an object of this namespace is still compared."""
    import_objects(repository, "a", "b")
    live = repository.put("z")
    repository.commit()
    repository.put_stray("data/x")
    repository.keep_days(10)
    collector = Collector(spark, repository, safety=SafetyParameters(head_sample_objects=1))
    collector.collect()
    spoil(collector, "data/x", live)
    assert on(collector.mark()) == {"no_head_object_marked"}


def test_a_head_of_imports_alone_has_nothing_to_compare(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("own")
    repository.commit()
    repository.delete("own")
    import_objects(repository, "a", "b")
    repository.commit()
    repository.put_stray("data/x")
    repository.keep_days(10)
    mark = Collector(spark, repository).collect_and_mark()
    assert (mark.candidates, on(mark)) == (1, set())


def test_committed_objects_that_no_branch_shows_are_unknown(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    import_objects(repository, "a")
    repository.put("z")
    repository.commit()
    repository.put_stray("data/x")
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    collector = Collector(spark, repository, server=server, safety=SafetyParameters(head_sample_objects=1))
    collector.collect()
    repository.delete("z")
    mark = collector.mark()
    [failed_check] = [check for check in mark.checks if not check.passed]
    assert (failed_check.name, failed_check.blocks_sweep) == ("no_head_object_marked", True)
    assert "could not be compared with any" in failed_check.message
    repository.put("z")
    again = Collector(spark, repository, server=server, safety=SafetyParameters(head_sample_objects=1))
    again.collect()
    proxy.spoil.append(lambda asked, real: refusal(403) if asked.is_for("/objects/stat") else None)
    [failed_check] = [check for check in again.mark().checks if not check.passed]
    assert "was not checked" in failed_check.message


@pytest.mark.parametrize("status", [403, 404])
def test_branches_that_do_not_say_what_they_show(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy, status: int
) -> None:
    """Nobody looked, or every branch is said to be gone: no sample is no proof."""
    repository.put("a")
    repository.commit()
    repository.branch("gone")
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    collector = Collector(spark, repository, server=server)
    collector.collect()
    repository.delete_branch("gone")
    proxy.spoil.append(lambda asked, real: refusal(status) if asked.is_for("/objects/ls") else None)
    mark = collector.mark()
    [failed_check] = [check for check in mark.checks if not check.passed]
    assert (failed_check.name, failed_check.blocks_sweep) == ("no_head_object_marked", True)
    assert "was not checked" in failed_check.message
    assert "injected by the test" in failed_check.message


def test_a_branch_that_was_deleted_since_is_no_failure(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a")
    repository.commit()
    repository.branch("gone")
    collector = Collector(spark, repository)
    collector.collect()
    repository.delete_branch("gone")
    assert on(collector.mark()) == set()
