"""A large slice in Azure's and Google's stores is cut into ranges, listed in parallel and in several rounds."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import ListingSettings, SafetyParameters
from lakefs_gc.engine.spark.scale import is_small
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc_tests.support.collector import Collector, counts, marked
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.paging_proxy import PAGE, paged_namespace

_PAGES = 30
_MIN_AGE_SECONDS = 2
_LISTING = ListingSettings(requests_at_once=8, cut_after_pages=2, pages_per_range=8)


@pytest.mark.of_ci  # outside CI, storage/listing cuts ranges of each protocol, and test_store_listing a large slice
@pytest.mark.long(90)
@pytest.mark.executors
@pytest.mark.parametrize("kind", ["azure", "gcs"])
def test_ranges_of_a_large_slice_are_listed_in_parallel(
    kind: str, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The mark and the sweep are of exactly the objects that a plain listing has."""
    with (
        paged_namespace(kind, request) as (proxy, location),
        Lake(tmp_path / "lake", location, SandboxOptions(grace_period_seconds=1)) as lake,
    ):
        repository = lake.repository()
        live = repository.put("live")
        repository.commit()
        garbage = {f"data/big/{number:04x}" for number in range(PAGE * _PAGES)} | {f"data/s{n}/x" for n in range(5)}
        written = map_unordered(lambda key: repository.store.put(key, b"garbage"), sorted(garbage), 8)
        assert all(done for _, done in written)
        time.sleep(_MIN_AGE_SECONDS + 1)
        safety = SafetyParameters(longest_commit_minutes=0, min_age_hours=_MIN_AGE_SECONDS / 3600)
        settings = lake.settings.model_copy(update={"listing": _LISTING, "safety": safety})
        plain = lake.settings.model_copy(
            update={"listing": ListingSettings(requests_at_once=1, cut_after_pages=0, pages_per_range=0)}
        )
        one_by_one = Collector(spark, repository, settings=plain)
        one_by_one.materialize("store_listing")
        assert not proxy.starts
        collector = Collector(spark, repository, settings=settings)

        mark = collector.collect_and_mark()

        ranges = {start for start in proxy.starts if "/data/big/" in start}
        # How often it is cut depends on how fast the pages arrive.
        assert len(ranges) >= 2, "the slice was cut into ranges"
        assert proxy.most_at_once >= 2, "they were listed at the same time"
        assert collector.addresses("store_listing") == one_by_one.addresses("store_listing") == garbage | {live}
        assert collector.manifest("store_listing").rows == len(garbage) + 1, "each once"
        assert not is_small(spark), "executors listed it"
        assert marked(repository, mark) == garbage
        assert counts(collector.sweep(mark)) == {"deleted": len(garbage)}
        assert repository.objects() == {live}
