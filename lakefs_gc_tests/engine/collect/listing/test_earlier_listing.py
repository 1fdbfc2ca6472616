"""An optimized listing has the same candidates as a full listing, and lists only new slices."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import ListingSettings
from lakefs_gc.engine.workspace.workspace import Dataset, Workspace, utc_now
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.ids import new_reversed_id
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.faulty_s3 import FaultyS3
from lakefs_gc_tests.support.faulty_store import LevelledS3, StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository

pytestmark = pytest.mark.executors  # of a small run the whole listing is made anew

DAY_HOURS = 24.0


def slice_of(age_hours: float) -> str:
    return f"data/{new_reversed_id(utc_now() - timedelta(hours=age_hours))}/"


def collector(spark: SparkSession, repository: LakeRepository, mode: str, **settings: float) -> Collector:
    listing = ListingSettings.model_validate({"mode": mode, **settings})
    of_lake = repository.lake.settings
    return Collector(spark, repository, settings=of_lake.model_copy(update={"listing": listing}))


def collected(spark: SparkSession, repository: LakeRepository, mode: str) -> tuple[Collector, str]:
    """Run up to the candidates, and return the mode of the listing."""
    run = collector(spark, repository, mode)
    run.collect()
    return run, run.manifest("store_listing").facts["mode"]


def rows_of(run: Collector, stage: str) -> set[tuple[object, ...]]:
    return {tuple(row) for row in run.dataset(stage).dataframe.collect()}


def test_an_optimized_listing_has_the_candidates_of_a_full_listing(
    spark: SparkSession, repository: LakeRepository
) -> None:
    """After sweeps, with a late upload, new slices, and deleted slices."""
    live = repository.put("a")
    repository.commit()
    slices = [slice_of(number * DAY_HOURS) for number in range(1, 31)]
    for folder in slices:
        for name in "xyz":
            repository.put_stray(f"{folder}{name}", age_hours=48)
    repository.put_stray("data/outside-of-slices", age_hours=48)
    first, mode = collected(spark, repository, "auto")
    assert mode == "clean"
    assert first.manifest("store_listing").facts["mode_because"] == "no earlier run exists"
    first.sweep(first.mark(), live=[f"{folder}{name}" for folder in slices for name in "xy"])

    repository.put_stray(f"{slices[2]}late", age_hours=48)
    repository.put_stray(f"{slice_of(0)}new", age_hours=48)
    repository.put_stray(f"{slice_of(30 * DAY_HOURS)}odd/below", age_hours=48)
    repository.store.delete_many([f"{slices[0]}x", f"{slices[0]}y"])
    optimized, mode = collected(spark, repository, "auto")
    facts = optimized.manifest("store_listing").facts
    assert mode == "optimized"
    # The newest of these slices were newer than a week when the first run listed them.
    assert facts["slices_taken_over"] >= len([age for age in range(1, 31) if age > 7])
    clean, mode = collected(spark, repository, "clean")
    assert mode == "clean"
    assert rows_of(optimized, "candidates") == rows_of(clean, "candidates") - {
        row for row in rows_of(clean, "candidates") if "/odd/" in str(row[0])
    }
    assert live in {row[0] for row in rows_of(optimized, "store_listing")}


def test_only_new_slices_are_listed(spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        repository = lake.repository()
        repository.put("a")
        repository.commit()
        for number in range(200):
            repository.put_stray(f"{slice_of((10 + number) * DAY_HOURS)}x")

        def lists_of_slices() -> int:
            lists = [r.query["prefix"] for r in store_in_s3.server.requests if r.operation == "ListObjectsV2"]
            store_in_s3.server.requests.clear()
            return sum("/data/" in prefix and not prefix.endswith("/data/") for prefix in lists)

        lists_of_slices()
        collector(spark, repository, "auto").collect(until="missing")
        in_clean = lists_of_slices()
        repository.put_stray(f"{slice_of(1)}x")
        collector(spark, repository, "auto").collect(until="missing")
        in_optimized = lists_of_slices()
        assert in_clean >= 200
        assert in_optimized <= in_clean / 20


def test_the_facts_say_why_a_listing_is_full(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put_stray(f"{slice_of(30 * DAY_HOURS)}x")

    def because(mode: str, **settings: float) -> str:
        run = collector(spark, repository, mode, **settings)
        run.collect(until="missing")
        facts = run.manifest("store_listing").facts
        return f"{facts['mode']}: {facts['mode_because']}"

    with pytest.raises(ConfigurationError, match="cannot be optimized: no earlier run exists"):
        because("optimized")
    unfinished = collector(spark, repository, "auto")
    unfinished.materialize("store_listing")
    assert because("auto").startswith("clean: "), "what is missing from a listing is unknown until it is looked for"
    assert because("clean") == "clean: the settings require a full listing"
    assert because("auto", margin_hours=24 * 60) == "clean: no slice is old enough"
    assert because("auto", optimized_runs=1).startswith("optimized: run lake/")
    assert because("auto", optimized_runs=1) == "clean: 1 consecutive listings were optimized"
    assert because("optimized", optimized_runs=1).startswith("optimized: run lake/")


@pytest.mark.of_ci
def test_what_is_restored_is_not_taken_for_a_gap_in_the_listing(
    spark: SparkSession, repository: LakeRepository
) -> None:
    """An optimized listing has what a sweep deleted and somebody restored only after the next full listing."""
    key = f"{slice_of(30 * DAY_HOURS)}x"
    repository.put("live", age_hours=30 * DAY_HOURS)
    repository.commit()
    repository.put_stray(key, age_hours=29 * DAY_HOURS)
    first, _ = collected(spark, repository, "auto")
    first.sweep(first.mark(), live=[])
    repository.put_stray(key, age_hours=9 * DAY_HOURS)
    repository.stage("again", key)
    second, mode = collected(spark, repository, "optimized")
    assert mode == "optimized"
    assert second.manifest("unmatched").facts["not_in_store"]
    assert second.manifest("missing").facts["unlisted"] == 0


def test_nothing_is_taken_over_from_another_installation(
    spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy has the same names, and its runs are in the same workspace. Its store has other garbage."""
    work = {"listing": ListingSettings(mode="auto"), "work_url": (tmp_path / "work").as_uri()}

    def lead_to(server: FaultyS3) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
        monkeypatch.setitem(spark.sparkContext.environment, "AWS_ENDPOINT_URL_S3", server.endpoint)

    def collected_from(lake: Lake, namespace: str, until: str = "candidates") -> tuple[Collector, str]:
        of_lake = LakeRepository(lake, "lake", namespace)
        run = Collector(spark, of_lake, settings=lake.settings.model_copy(update=work))
        run.collect(until=until)
        facts = run.manifest("store_listing").facts
        return run, f"{facts['mode']}: {facts['mode_because']}"

    with LevelledS3() as other_store, Lake(tmp_path / "original", store_in_s3.location) as original:
        repository = original.repository()
        repository.put("a")
        repository.commit()
        shutil.copytree(tmp_path / "original", tmp_path / "copy")
        other_store.objects.update(store_in_s3.server.objects)
        other_store.written_at.update(store_in_s3.server.written_at)
        garbage = {repository.put_stray(f"{slice_of(10 * DAY_HOURS)}x")}
        with Lake(tmp_path / "copy", store_in_s3.location) as copy:
            lead_to(other_store)
            of_copy, _ = collected_from(copy, repository.namespace)
            assert of_copy.addresses("candidates") == set()
            url = copy.credentials.endpoint_url
        lead_to(store_in_s3.server)
        run, because = collected_from(original, repository.namespace)
        assert because.startswith(
            f"clean: run {of_copy.run_key} listed for another lakeFS server or repository, {url} ("
        )
        assert run.addresses("candidates") == garbage
        optimized, because = collected_from(original, repository.namespace)
        assert because == f"optimized: run {run.run_key} listed the older slices"
        assert optimized.addresses("candidates") == garbage
        lead_to(other_store)
        _, because = collected_from(original, repository.namespace, until="store_listing")
        assert because == f"clean: run {optimized.run_key} listed at another endpoint of the store"


@pytest.mark.parametrize("fact", ["endpoints", "server"])
def test_nothing_is_taken_over_from_a_listing_that_does_not_tell_where_it_was_made(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch, fact: str
) -> None:
    repository.put_stray(f"{slice_of(30 * DAY_HOURS)}x")
    first, _ = collected(spark, repository, "auto")
    read = Workspace.read

    def of_older_version(workspace: Workspace, *arguments: Any) -> Dataset:
        listing = read(workspace, *arguments)
        facts = dict(listing.manifest.facts)
        if listing.manifest.run_key == first.run_key:
            (facts if fact == "endpoints" else facts["run"]).pop(fact)
        return replace(listing, manifest=replace(listing.manifest, facts=facts))

    monkeypatch.setattr(Workspace, "read", of_older_version)
    run, mode = collected(spark, repository, "auto")
    assert mode == "clean"
    because = {"endpoints": "did not record the endpoint", "server": "was written by another version of lakefs-gc"}
    assert because[fact] in run.manifest("store_listing").facts["mode_because"]
