"""What is asked before the sweep of a mark that lakeFS's own Spark client made: every marked object must be judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakefs_gc.config import ListingSettings
from lakefs_gc.engine.records.check import NOTHING_NEWER_THAN_CUTOFF, Check
from lakefs_gc.engine.sweep.at_mark import Accepted
from lakefs_gc.engine.sweep.client_marks import ClientMarkChecks
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput, Workspace, utc_now
from lakefs_gc.storage.base import ListingPage, ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.client_marks import UNIFIED, write_client_mark
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.inventory_report import Report
from lakefs_gc_tests.support.lake import LakeRepository


def test_marked_objects_are_listed_with_care(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing only shows how old they are: a young one that it lacks would not be judged."""
    repository.put("a")
    repository.commit()
    write_client_mark(
        repository.store, UNIFIED, [repository.put_stray("data/s/garbage")], cutoff=utc_now() - timedelta(hours=24)
    )
    quick: list[str] = []

    def lacking(store: ObjectStore, prefix: str, **options: Any) -> Iterator[ListingPage]:
        quick.append(prefix)
        return iter(())

    monkeypatch.setattr(ObjectStore, "quick_pages", lacking)
    collector = Collector(spark, repository)
    mark, run = collector.read_mark("m1"), collector.begin()
    ClientMarkChecks(collector.context).evaluate(run, mark, Accepted.of(mark, ()))
    listed = collector.workspace.manifest(f"{run.repository}/checks-of-{mark.mark_id}", "store_listing")
    assert listed.rows == 2
    assert not quick
    collector.materialize("store_listing")
    assert quick, "that of our own mark is quick"


def test_an_inventory_does_not_decide(spark: SparkSession, repository: LakeRepository, tmp_path: Path) -> None:
    """It lacks what is younger than it: an upload that nobody has linked yet would be in no check."""
    repository.put("a")
    repository.commit()
    before = sorted(repository.objects())
    young = repository.put_stray("data/gaaaaaaaaaaaaaaaaaaa/caaaaaaaaaaaaaaaaaaa", age_hours=3)
    report = Report(open_store(StoreLocation(f"file://{tmp_path}/reports/lake/daily")))
    report.write_s3_keys(repository.namespace, before, utc_now() - timedelta(hours=5))
    listing = ListingSettings(source="inventory", inventory_url=report.store.location.url)
    settings = repository.lake.settings.model_copy(update={"listing": listing})
    write_client_mark(repository.store, UNIFIED, [young], cutoff=utc_now() - timedelta(hours=1))
    collector = Collector(spark, repository, settings=settings)
    mark, run = collector.read_mark("m1"), collector.begin()
    found = ClientMarkChecks(collector.context).evaluate(run, mark, Accepted.of(mark, ()))
    assert is_refused(found.checks, NOTHING_NEWER_THAN_CUTOFF)
    listed = collector.workspace.manifest(f"{run.repository}/checks-of-{mark.mark_id}", "store_listing")
    assert listed.facts["source"] == "store"


def test_a_marked_object_that_a_listing_overlooks_is_checked(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.put("a")
    repository.commit()
    young = repository.put_stray("data/gaaaaaaaaaaaaaaaaaaa/caaaaaaaaaaaaaaaaaaa", age_hours=3)
    gone = "data/gaaaaaaaaaaaaaaaaaaa/gone"
    write_client_mark(repository.store, UNIFIED, [young, gone], cutoff=utc_now() - timedelta(hours=1))
    collector = Collector(spark, repository)
    mark, run = collector.read_mark("m1"), collector.begin()
    keep = Workspace.keep

    def overlooking(
        workspace: Workspace, spark: SparkSession, run_key: str, stage: str, output: StageOutput, *schema: Any
    ) -> Dataset:
        dataset = keep(workspace, spark, run_key, stage, output, *schema)
        rows = dataset.dataframe.where(F.col("address") != young) if stage == "store_listing" else None
        return dataset if rows is None else Dataset(lambda: rows, dataset.manifest, dataset.files)

    monkeypatch.setattr(Workspace, "keep", overlooking)
    found = ClientMarkChecks(collector.context).evaluate(run, mark, Accepted.of(mark, ()))
    assert is_refused(found.checks, NOTHING_NEWER_THAN_CUTOFF)
    assert collector.workspace.manifest(f"{run.repository}/checks-of-m1", "candidates").rows == 1


def is_refused(checks: Iterable[Check], name: str) -> bool:
    [check] = [check for check in checks if check.name == name]
    return not check.passed
