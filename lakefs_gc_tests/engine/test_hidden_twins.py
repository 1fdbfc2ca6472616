"""What a branch shows is kept, although lakeFS's uncommitted list leaves it out."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.hidden_twins import TwinSearch, find_twins
from lakefs_gc.storage.base import StoreLocation
from lakefs_gc_tests.collector import Collector, Lake, LakeRepository


def twin(repository: LakeRepository, path: str, *, branch: str = "main", content: str = "") -> str:
    """Overwrite a committed path with identical content; the key of the new object."""
    return repository.put(path, content, branch=branch)


def kept(collector: Collector) -> dict[str, str]:
    return {row["address"]: row["why"] for row in collector.dataset("kept").dataframe.collect()}


def test_what_a_branch_shows_is_kept(spark: SparkSession, repository: LakeRepository) -> None:
    for path in ("a", "b", "c"):
        repository.put(path)
    repository.commit()
    repository.branch("dev")
    repository.keep_days(10)
    first, second = twin(repository, "a"), twin(repository, "b", branch="dev")
    undone = twin(repository, "c")
    replaced = twin(repository, "c")
    repository.delete("c", branch="dev")
    same_size, other_size = repository.put_stray("data/s/x", b"x"), repository.put_stray("data/s/long", b"long")

    collector = Collector(spark, repository)
    collector.collect()
    assert not {first, second, replaced} & collector.addresses("uncommitted"), "the sandbox leaves them out, as lakeFS"
    assert kept(collector) == dict.fromkeys((first, second, replaced), "shown_by_a_branch")
    assert collector.addresses("candidates") == {undone, same_size, other_size}
    assert collector.manifest("kept").facts["shielded"] == 0


def test_a_branch_that_moves_while_the_run_is_under_way(spark: SparkSession, repository: LakeRepository) -> None:
    """The list left the object out by the old head; by the new one, of another size, nothing would look for it."""
    repository.put("a", "old")
    repository.commit()
    repository.keep_days(10)
    repository.put("moves")
    staged = twin(repository, "a", content="old")

    def move() -> None:
        repository.commit()
        repository.put("a", "of another size")
        repository.commit()

    collector = Collector(spark, repository)
    collector.collect(before={"kept": move})
    assert staged in collector.addresses("candidates"), "a commit leaves out what is no change, and it is gone"
    assert repository.read("a") == b"of another size"


def test_a_staged_object_outlives_the_head_that_hid_it(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a", "old")
    first = repository.commit()
    repository.branch("dev")
    repository.keep_days(10)
    staged = twin(repository, "a", content="old", branch="dev")
    collector = Collector(spark, repository)
    collector.collect(until="unmatched")
    search = TwinSearch(collector.run, "twins", collector.work_place, collector.server, 100, collector.clock, cores=1)
    suspects = collector.dataset("unmatched").dataframe
    repository.delete_branch("dev")
    # Not at any head now, but it was when the server made its list.
    repository.branch("dev", first)
    other = twin(repository, "a", content="old", branch="dev")
    assert {row["address"] for row in find_twins(spark, suspects, {"dev": first}, search).collect()} == set()
    suspects = spark.createDataFrame([(staged, 3), (other, 3)], "address string, size long")
    assert {row["address"] for row in find_twins(spark, suspects, {}, search).collect()} == {other}


@pytest.mark.parametrize("where", ["local", "s3"])
def test_too_many_to_look_up(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, where: str) -> None:
    """By content first; what is still too much is kept, and counted."""
    store: StoreLocation | None = request.getfixturevalue("s3_namespace") if where == "s3" else None
    with Lake(tmp_path / "lake", store) as lake:
        repository = lake.repository()
        for number in range(6):
            repository.put(f"same/{number}", "123456")
        for number in range(10, 20):
            repository.put(f"other/{number}", f"size{number}")
        repository.commit()
        repository.keep_days(10)
        staged = [twin(repository, f"same/{number}", content="123456") for number in range(3)]
        garbage = repository.put_stray("data/s/of-other-content", b"abcdef")
        gone = repository.put("same/0", "654321")
        repository.delete("same/0")
        repository.put("same/0", "123456", age_hours=0)

        time.sleep(1.1)  # S3 tells whole seconds

        def collect(max_lookups: int) -> Collector:
            safety = SafetyParameters(max_twin_lookups=max_lookups, min_age_hours=0, allow_min_age_below_grace=True)
            collector = Collector(spark, repository, safety=safety)
            collector.collect()
            return collector

        # Sixteen paths have the size, six of them the content.
        narrowed = collect(6)
        assert narrowed.manifest("twins_paths").rows == 16
        assert narrowed.manifest("twins_paths_of_same_content").rows == 6
        assert set(kept(narrowed).values()) == {"shown_by_a_branch"}
        shown = set(kept(narrowed))
        assert set(staged[1:]) < shown
        assert len(shown) == 3
        assert narrowed.addresses("candidates") == {garbage, gone, staged[0]}
        too_many = collect(5)
        assert kept(too_many) == dict.fromkeys({*shown, staged[0]}, "shielded")
        assert too_many.addresses("candidates") == {garbage, gone}
        facts = too_many.manifest("kept").facts
        assert (facts["shielded"], facts["shielded_bytes"]) == (4, 24)
