"""Stores that list a live object under another name than the one by which lakeFS reads it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.decide import missing
from lakefs_gc.engine.records.check import Answer
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc_tests.support import faulty_s3
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.faulty_s3 import Answer as HTTPAnswer
from lakefs_gc_tests.support.faulty_s3 import Request
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository

NO_AGE = SafetyParameters(min_age_hours=0, allow_min_age_below_grace=True)
GARBAGE = "data/s/garbage"


def put_at(repository: LakeRepository, *keys: str) -> None:
    """Put an object at each key, and stage it."""
    for key in keys:
        repository.store.put(key, key.encode())
        repository.stage(f"path of {key}", key, size_bytes=len(key))


@pytest.mark.parametrize("store", ["s3", "azure"])
def test_a_live_object_is_kept_where_the_store_converts_backslashes(
    spark: SparkSession, tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    """A client on Windows may build addresses with them. SeaweedFS and Azure list slashes."""
    with Lake(tmp_path / "lake", request.getfixturevalue(f"{store}_namespace")) as lake:
        repository = lake.repository()
        repository.put("first")
        put_at(repository, r"data/tables\a.parquet", r"data/deep\er\b.parquet")
        repository.commit()
        put_at(repository, r"data/tables\c.parquet", r"data\d.parquet")
        live = {"data/tables/a.parquet", "data/deep/er/b.parquet", "data/tables/c.parquet", "data/d.parquet"}
        repository.put_stray(GARBAGE)
        assert live < set(repository.objects()), "the store converts them"
        time.sleep(1.1)  # HEAD and listings have whole seconds
        collector = Collector(spark, repository, safety=NO_AGE)
        mark = collector.collect_and_mark()
        assert marked(repository, mark) == {GARBAGE}
        assert not any(check.blocks_sweep for check in mark.checks)
        facts = collector.manifest("missing").facts
        # Not even many of them keep a mark from being swept.
        assert (facts["lost"], facts["unlisted_objects"]) == (0, [])
        collector.sweep(mark)
        assert live < set(repository.objects())


@pytest.fixture
def keeping(store_in_s3: StoreInS3, tmp_path: Path) -> Iterator[LakeRepository]:
    """A repository in a store that keeps each character of a key. All of its objects are old."""
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        repository = lake.repository()
        repository.put("first")
        repository.commit()
        repository.put_stray(GARBAGE)
        yield repository


def test_the_other_reading_is_not_lost_where_the_store_keeps_backslashes(
    spark: SparkSession, keeping: LakeRepository
) -> None:
    put_at(keeping, r"data/tables\a.parquet")
    keeping.stage("lost", r"data/tables\lost.parquet")
    keeping.commit()
    put_at(keeping, r"data/tables\c.parquet")
    collector = Collector(spark, keeping)
    collector.collect()
    lost = {row["address"] for row in collector.dataset("missing").dataframe.collect()}
    # Where neither name has an object, both are reported.
    assert lost == {r"data/tables\lost.parquet", "data/tables/lost.parquet"}
    assert collector.addresses("candidates") == {GARBAGE}


@pytest.mark.parametrize("most", [1000, 0])
def test_a_mark_of_what_may_be_a_live_object_under_another_name_needs_a_person(
    spark: SparkSession, keeping: LakeRepository, store_in_s3: StoreInS3, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """As on a file system that ignores case. With too many such objects, none is compared."""
    server = store_in_s3.server

    def ignore_case(request: Request) -> HTTPAnswer | None:
        if request.operation == "ListObjectsV2" or request.keys[0] in server.objects:
            return None
        return server.right_answer(replace(request, keys=(request.keys[0].lower(),)))

    server.faults.append(ignore_case)
    # Younger than what an upload in parts may take: only a check of the names notices it.
    monkeypatch.setattr(faulty_s3, "_OLD", utc_now() - timedelta(days=3))
    keeping.store.put("data/tables/part", b"live")
    keeping.store.put("data/tables/part-2", b"not the same size")
    keeping.stage("path", "data/Tables/PART", size_bytes=4)
    keeping.commit()
    monkeypatch.setattr(missing, "_MOST_UNLISTED", most)
    mark = Collector(spark, keeping).collect_and_mark()
    assert "data/tables/part" in marked(keeping, mark)
    [check] = [check for check in mark.checks if check.blocks_sweep]
    assert check.name == "live_objects_exist"
    if most:
        assert "1 marked objects may be live: data/Tables/PART is referenced" in check.message
        assert "data/tables/part has its size and time" in check.message
    else:
        assert check.answer is Answer.UNKNOWN


def test_objects_where_the_listing_does_not_look_are_not_counted(spark: SparkSession, keeping: LakeRepository) -> None:
    put_at(keeping, "elsewhere/x", "data//y")
    keeping.commit()
    collector = Collector(spark, keeping)
    collector.collect()
    facts = collector.manifest("missing").facts
    assert collector.manifest("unmatched").facts["not_in_store"]
    assert facts["unlisted_objects"] == []
