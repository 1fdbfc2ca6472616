"""Sharded namespaces (``data/!ab/c/<slice>/<id>``): nothing live is marked, and optimized listings gain nothing."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import ListingSettings, SafetyParameters
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.ids import is_shard, new_reversed_id
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.lake import Lake, LakeRepository

SHARDED = re.compile(r"data/![0-9a-f]{2}/[0-9a-f]/[0-9a-v]{20}/[0-9a-v]{20}")


def test_nothing_live_is_marked(spark: SparkSession, s3_namespace: StoreLocation, tmp_path: Path) -> None:
    """Expired, staged, overwritten, deleted, hidden and foreign objects of a server that shards its addresses."""
    with Lake(tmp_path / "lake", s3_namespace, SandboxOptions(sharded_addresses=True)) as lake:
        repository, other = lake.repository(), lake.repository("other")
        repository.keep_days(10)
        expired, kept = repository.put("a", "expired"), repository.put("b")
        repository.commit(age_days=40)
        second = repository.put("a", "active, not shown by any branch")
        repository.commit(age_days=30)
        shown = repository.put("a", "shown")
        repository.commit(age_days=1)
        overwritten, staged = repository.put("c", "overwritten"), repository.put("c", "staged")
        deleted = repository.put("d", "deleted")
        repository.delete("d")
        twin = repository.put("b")  # identical content, so lakeFS sees no change
        stray = repository.put_stray(f"data/!ab/c/{new_reversed_id(utc_now())}/stray")
        foreign = repository.put_stray("data/!ab/c/foreign", b"live")
        other.stage("x", repository.namespace + foreign, size_bytes=4)
        other.commit()
        time.sleep(1.1)  # S3 has whole seconds
        safety = SafetyParameters(min_age_hours=0, allow_min_age_below_grace=True, longest_commit_minutes=0)
        collector = Collector(spark, repository, safety=safety)
        mark = collector.collect_and_mark()
        live = {kept, second, shown, staged, twin, foreign}
        assert all(SHARDED.fullmatch(key) for key in live - {foreign})
        assert live <= collector.addresses("store_listing")
        assert marked(repository, mark) == {expired, overwritten, deleted, stray}
        collector.sweep(mark)
        assert repository.objects() >= live
        assert not repository.objects() & {expired, overwritten, deleted, stray}


@pytest.mark.executors
def test_an_optimized_listing_of_shards_gains_nothing_and_says_so(
    spark: SparkSession, repository: LakeRepository
) -> None:
    def listed(mode: str) -> Collector:
        settings = repository.lake.settings.model_copy(
            update={"listing": ListingSettings.model_validate({"mode": mode, "margin_hours": 1})}
        )
        run = Collector(spark, repository, settings=settings)
        run.collect(until="missing")
        return run

    def because(run: Collector) -> str:
        return str(run.manifest("store_listing").facts["mode_because"])

    old = new_reversed_id(utc_now() - timedelta(hours=200))
    keys = {repository.put_stray(f"data/!{shard}/c/{old}/x") for shard in ("ab", "cd")}
    listed("auto")
    repeated = listed("auto")
    assert because(repeated).startswith("the namespace is sharded: its 2 shards below data/ have slices of every age")
    with pytest.raises(ConfigurationError, match="cannot be optimized: the namespace is sharded"):
        listed("optimized")

    # A namespace that was sharded later has slices, too. Their objects are copied, and the shards are listed.
    legacy = repository.put_stray(f"data/{old}/x")
    listed("clean")
    new = repository.put_stray(f"data/!ab/c/{old}/new")
    mixed = listed("optimized")
    assert because(mixed).endswith("listed the older slices; 2 shards are listed in full in every run")
    assert mixed.addresses("store_listing") == keys | {legacy, new}


def test_names_of_shards() -> None:
    assert [name for name in ("!ab", "!", "ab", "c", new_reversed_id(utc_now())) if is_shard(name)] == [
        "!ab",
        "!",
    ]
