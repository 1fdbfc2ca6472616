"""Stores that list a live object under another name than the one by which lakeFS reads it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import ListingSettings, SafetyParameters
from lakefs_gc.engine.decide import missing
from lakefs_gc.engine.records.check import Answer
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.formats.ids import new_reversed_id
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


def ignore_case(store: StoreInS3, request: Request) -> HTTPAnswer | None:
    if request.operation == "ListObjectsV2" or not request.keys or request.keys[0] in store.server.objects:
        return None
    return store.server.right_answer(replace(request, keys=(request.keys[0].lower(),)))


@pytest.mark.parametrize("most", [1000, 0])
def test_a_mark_of_what_may_be_a_live_object_under_another_name_needs_a_person(
    spark: SparkSession, keeping: LakeRepository, store_in_s3: StoreInS3, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """As on a file system that ignores case. With too many such objects, none is compared."""
    store_in_s3.server.faults.append(partial(ignore_case, store_in_s3))
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


def test_what_a_url_may_also_mean_is_not_lost(spark: SparkSession, keeping: LakeRepository) -> None:
    """The list of what is staged does not say whether lakeFS decodes an address; a Hive partition may have a time."""
    put_at(keeping, "data/tables/at=00%3A00/part", "data/tables/a?b")
    keeping.stage("lost", "data/tables/at=01%3A00/part", size_bytes=1)
    decoded = "data/tables/at=02:00/part"
    keeping.store.put(decoded, b"decoded")
    keeping.stage("url", "data/tables/at=02%3A00/part", size_bytes=len(b"decoded"))
    other_size = "data/tables/at=03:00/part"
    keeping.store.put(other_size, b"of another object")
    keeping.stage("committed", "data/tables/at=03%3A00/part", size_bytes=1)
    keeping.commit()
    put_at(keeping, "data/tables/at=04%3A00/part")
    collector = Collector(spark, keeping)
    collector.collect()
    lost = {row["address"] for row in collector.dataset("missing").dataframe.collect()}
    # Nothing exists for the first by either reading, and for the second only another object does.
    assert {"data/tables/at=01%3A00/part", "data/tables/at=03%3A00/part"} <= lost
    assert lost <= {"data/tables/at=01%3A00/part", "data/tables/at=01:00/part", "data/tables/at=03%3A00/part"}


@pytest.mark.parametrize("lists", [["clean", "auto"], ["auto", "clean", "auto"]])
def test_no_listing_is_taken_over_that_lacks_what_exists(
    spark: SparkSession,
    store_in_s3: StoreInS3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lists: list[Literal["clean", "auto"]],
) -> None:
    """An optimized one could not tell that the store lists a live object under another name."""
    monkeypatch.setattr("lakefs_gc.engine.collect.listing.earlier_listing.SMALL_RUN_OBJECTS", 0)
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        repository = lake.repository()
        repository.put("first")
        repository.commit()
        store_in_s3.server.faults.append(partial(ignore_case, store_in_s3))
        monkeypatch.setattr(faulty_s3, "_OLD", utc_now() - timedelta(days=30))
        live = f"data/{new_reversed_id(utc_now() - timedelta(days=30))}/part"
        repository.store.put(live, b"live")
        repository.put_stray(GARBAGE)
        repository.stage("path", live.replace("part", "PART"), size_bytes=4)
        repository.commit()
        for mode in lists:
            settings = lake.settings.model_copy(update={"listing": ListingSettings(mode=mode)})
            collector = Collector(spark, repository, settings=settings)
            mark = collector.collect_and_mark()
            assert live in marked(repository, mark)
            assert [check.name for check in mark.checks if check.blocks_sweep] == ["live_objects_exist"]
            facts = collector.manifest("store_listing").facts
            assert facts["mode"] == "clean"
        assert "lacks objects that exist" in facts["mode_because"]


def test_an_optimized_listing_lacks_what_is_new_under_another_name(
    spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists the new slices whole."""
    monkeypatch.setattr("lakefs_gc.engine.collect.listing.earlier_listing.SMALL_RUN_OBJECTS", 0)
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        repository = lake.repository()
        store_in_s3.server.faults.append(partial(ignore_case, store_in_s3))
        monkeypatch.setattr(faulty_s3, "_OLD", utc_now() - timedelta(days=30))
        old = f"data/{new_reversed_id(utc_now() - timedelta(days=30))}/part"
        put_at(repository, old)
        repository.commit()
        settings = lake.settings.model_copy(update={"listing": ListingSettings(mode="auto")})
        Collector(spark, repository, settings=settings).collect_and_mark()
        monkeypatch.setattr(faulty_s3, "_OLD", utc_now() - timedelta(days=3))
        live = "data/tables/part"
        repository.store.put(live, b"live")
        repository.stage("path", "data/Tables/PART", size_bytes=4)
        repository.commit()
        collector = Collector(spark, repository, settings=settings)
        mark = collector.collect_and_mark()
        assert collector.manifest("store_listing").facts["mode"] == "optimized"
        assert live in marked(repository, mark)
        assert [check.name for check in mark.checks if check.blocks_sweep] == ["live_objects_exist"]


def test_what_was_too_young_to_be_missed_is_not_taken_over(
    spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a move to another store: the slices are old, and their objects have the time of the move."""
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        repository = lake.repository()
        store_in_s3.server.faults.append(partial(ignore_case, store_in_s3))
        monkeypatch.setattr(faulty_s3, "_OLD", utc_now() - timedelta(days=5))
        live = f"data/{new_reversed_id(utc_now() - timedelta(days=30))}/part"
        repository.store.put(live, b"live")
        repository.put_stray(GARBAGE)
        repository.stage("path", live.replace("part", "PART"), size_bytes=4)
        repository.commit()
        modes: tuple[tuple[Literal["clean", "optimized"], float], ...] = (("clean", 168.0), ("optimized", 24.0))
        for mode, min_age_hours in modes:
            safety = lake.settings.safety.model_copy(update={"min_age_hours": min_age_hours})
            listing = ListingSettings(mode=mode)
            settings = lake.settings.model_copy(update={"listing": listing, "safety": safety})
            collector = Collector(spark, repository, settings=settings)
            mark = collector.collect_and_mark()
        assert collector.manifest("store_listing").facts["mode"] == "optimized"
        assert marked(repository, mark) == {GARBAGE}
