"""What a listing holds."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.ages import bytes_by_age
from lakefs_gc.errors import ObjectNotFoundError
from lakefs_gc_tests.collector import Collector, LakeRepository

LISTED = ["data/s1/a", "data/s1/b,signature", "data/s2/deep/er/c", "data/direct", "old-layout", "_lakefs.txt", "a b%20"]
NOT_LISTED = ["dummy", "other/x", "_lakefs/y", "_lakefs/retention/z", "database/x", "Data/x"]


def test_lists_data_at_any_depth_and_the_root_one_level(spark: SparkSession, repository: LakeRepository) -> None:
    for number, key in enumerate([*LISTED, *NOT_LISTED]):
        repository.put_stray(key, b"x" * number, age_hours=24 * (10 + number))
    collector = Collector(spark, repository)
    collector.materialize("store_listing")
    rows = collector.dataset("store_listing").dataframe.collect()
    assert sorted(row["address"] for row in rows) == sorted(LISTED)
    assert {row["address"]: row["size"] for row in rows} == {key: number for number, key in enumerate(LISTED)}
    info = repository.store.stat_many(LISTED)
    for row in rows:
        listed_at = datetime.fromtimestamp(row["last_modified"].timestamp(), UTC)
        assert abs(listed_at - info[row["address"]].last_modified) < timedelta(microseconds=2)
    facts = collector.manifest("store_listing").facts
    assert facts["size_bytes"] == sum(range(len(LISTED)))
    ages = bytes_by_age(facts)
    assert ages["7 to 30 days"] == facts["size_bytes"]
    assert sum(ages.values()) == facts["size_bytes"]


def test_a_store_that_is_not_there_is_not_empty(spark: SparkSession, repository: LakeRepository) -> None:
    collector = Collector(spark, repository)
    output = collector.output("store_listing")
    shutil.rmtree(repository.folder)
    with pytest.raises(ObjectNotFoundError, match="does not exist"):
        collector.work_place.write(spark, collector.run_key, "store_listing", output)
