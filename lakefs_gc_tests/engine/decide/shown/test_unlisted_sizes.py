"""A hidden twin of an object whose entry states a wrong size, while the listing does not have that object."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import ListingSettings
from lakefs_gc.engine.decide import missing as stage
from lakefs_gc.engine.decide.matching.unmatched import UNLISTED_WRONG_SIZES
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.formats.ids import new_reversed_id
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.inventory_report import MODIFIED, Report
from lakefs_gc_tests.support.lake import Lake, LakeRepository

TWIN = "data/slice/two"


def show(repository: LakeRepository, key: str) -> None:
    """Have main show an object, whose size and ETag the client states wrongly."""
    repository.stage("p", key, size_bytes=100, checksum="c")


def hide_twin(repository: LakeRepository, committed: str, age_hours: float, twin: str) -> None:
    """Commit an object, and stage another one of the same stated size and ETag at its path: lakeFS sees no change."""
    repository.put_stray(committed, b"12345", age_hours=age_hours)
    show(repository, committed)
    repository.commit()
    show(repository, twin)


def check_twin(run: Collector, repository: LakeRepository, twin: str) -> None:
    shown = run.context.server.shown_address(repository.name, "main", "p")
    assert shown.endswith(twin)
    mark = run.mark()
    assert twin not in marked(repository, mark)
    run.sweep(mark)
    assert twin in repository.objects()


def with_report(spark: SparkSession, lake: Lake, repository: LakeRepository, folder: Path) -> Collector:
    """A collector that lists by a report of five hours ago."""
    report = Report(open_store(StoreLocation(f"{folder.as_uri()}/reports/lake/daily")))
    keys = ["data/q/0", "data/q/1", "data/q/2", TWIN]
    report.write_s3_keys(repository.namespace, keys, utc_now() - timedelta(hours=5))
    listing = ListingSettings(source="inventory", inventory_url=report.store.location.url)
    return Collector(spark, repository, settings=lake.settings.model_copy(update={"listing": listing}))


@pytest.mark.of_ci("10000")
@pytest.mark.parametrize("most_sizes", [10_000, 0])
def test_of_an_object_that_is_newer_than_the_report(
    spark: SparkSession,
    lake: Lake,
    repository: LakeRepository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most_sizes: int,
) -> None:
    repository.put_stray(TWIN, b"123")
    repository.age(TWIN, (utc_now() - MODIFIED).total_seconds() / 3600)
    hide_twin(repository, "data/slice/one", 1, TWIN)
    monkeypatch.setattr(stage, "_MOST_SIZES", most_sizes)
    run = with_report(spark, lake, repository, tmp_path)
    run.collect()
    assert run.manifest("missing").facts[UNLISTED_WRONG_SIZES] == ([100] if most_sizes else None)
    check_twin(run, repository, TWIN)


def test_that_is_shown_only_after_the_mark(
    spark: SparkSession, lake: Lake, repository: LakeRepository, tmp_path: Path
) -> None:
    repository.put_stray(TWIN, b"123")
    repository.age(TWIN, (utc_now() - MODIFIED).total_seconds() / 3600)
    repository.put_stray("data/slice/one", b"12345", age_hours=1)
    show(repository, "data/slice/one")
    repository.commit()
    run = with_report(spark, lake, repository, tmp_path)
    mark = run.collect_and_mark()
    assert TWIN in marked(repository, mark)
    show(repository, TWIN)
    run.sweep(mark)
    assert run.swept[TWIN] == "resurrected"
    assert TWIN in repository.objects()


def test_of_a_late_upload_that_an_optimized_listing_lacks(spark: SparkSession, repository: LakeRepository) -> None:
    folder = f"data/{new_reversed_id(utc_now() - timedelta(days=30))}/"
    repository.put("live", age_hours=24 * 30)
    repository.commit()
    repository.put_stray(f"{folder}two", b"123")
    settings = repository.lake.settings
    Collector(spark, repository).collect()
    hide_twin(repository, f"{folder}one", 48, f"{folder}two")
    optimized = settings.model_copy(update={"listing": ListingSettings(mode="optimized")})
    run = Collector(spark, repository, settings=optimized)
    run.collect()
    assert run.manifest("store_listing").facts["mode"] == "optimized"
    check_twin(run, repository, f"{folder}two")


@pytest.mark.parametrize("returns_on", ["a branch", "no branch"])
def test_of_an_object_that_does_not_exist(spark: SparkSession, repository: LakeRepository, returns_on: str) -> None:
    """A sweep deleted an expired object. Its commit comes back on a branch, where a client uploads the data again.

    Without the branch, the retention becomes longer. Then the sizes of all that is gone must not stop the collector.
    """
    for number in range(10):
        repository.branch(f"a{number}")  # so that the sample of heads does not show the path
    repository.put_stray("data/slice/one", b"12345", age_hours=24 * 60)
    show(repository, "data/slice/one")
    repository.put("other")
    old = repository.commit(age_days=40)
    repository.delete("p")
    repository.commit(age_days=30)
    repository.commit(age_days=25, allow_empty=True)
    repository.keep_days(10)
    first = Collector(spark, repository)
    first.sweep(first.collect_and_mark())
    assert first.swept == {"data/slice/one": "deleted"}
    repository.put_stray(TWIN, b"12345")
    if returns_on == "a branch":
        repository.branch("z", old)
        repository.stage("p", TWIN, size_bytes=100, checksum="c", branch="z")
    else:
        repository.keep_days(365)
    run = Collector(spark, repository)
    run.collect()
    assert run.manifest("missing").rows == 1
    assert run.manifest("missing").facts[UNLISTED_WRONG_SIZES] == ([100] if returns_on == "a branch" else [])
    mark = run.mark()
    assert (TWIN in marked(repository, mark)) == (returns_on == "no branch")
    run.sweep(mark)
    assert (TWIN in repository.objects()) == (returns_on == "a branch")
