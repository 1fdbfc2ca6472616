"""Workers of Spark whose environment leads to a copy of the store, which has the same bucket and objects."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.errors import ConfigurationError, MarkError, StorageError
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.other_server import Copy

pytestmark = pytest.mark.executors


def garbage_of(repository: LakeRepository) -> str:
    repository.put("live")
    repository.commit()
    return repository.put_stray("data/s/garbage")


@pytest.mark.long(30)
def test_a_sweep_deletes_nothing_there(spark: SparkSession, in_s3: LakeRepository, copy: Copy) -> None:
    garbage, collector = garbage_of(in_s3), Collector(spark, in_s3)
    mark = collector.collect_and_mark()
    assert marked(in_s3, mark) == {garbage}
    copy.lead_workers_here()
    there = set(copy.server.objects)
    with pytest.raises(ConfigurationError, match="A worker of Spark sends the requests about S3 to"):
        collector.sweep(mark)
    assert (set(copy.server.objects), garbage in in_s3.objects()) == (there, True)


@pytest.mark.long(30)
def test_a_sweep_finds_out_where_a_user_states_that_both_are_one(
    spark: SparkSession, in_s3: LakeRepository, copy: Copy
) -> None:
    """So it does if a name leads elsewhere from another machine."""
    garbage, collector = garbage_of(in_s3), Collector(spark, in_s3)
    mark = collector.collect_and_mark()
    copy.lead_workers_here()
    copy.state_that_both_are_one()
    there = set(copy.server.objects)
    with pytest.raises(StorageError, match="finds another store at s3://bucket/lakes/"):
        collector.sweep(mark)
    assert (set(copy.server.objects), garbage in in_s3.objects()) == (there, True)
    # If they are one, the sweep goes on.
    copy.server.objects = copy.store.server.objects
    collector.sweep(mark)
    assert collector.swept == {garbage: "deleted"}


@pytest.mark.long(20)
def test_a_mark_lists_nothing_there(spark: SparkSession, in_s3: LakeRepository, copy: Copy) -> None:
    garbage_of(in_s3)
    copy.lead_workers_here()
    with pytest.raises(ConfigurationError, match="A worker of Spark sends the requests about S3 to"):
        Collector(spark, in_s3).collect_and_mark()
    assert not copy.server.requests


@pytest.mark.long(30)
def test_a_mark_is_complete_only_with_its_parts(spark: SparkSession, in_s3: LakeRepository, copy: Copy) -> None:
    garbage_of(in_s3)
    collector = Collector(spark, in_s3)
    collector.collect()
    copy.lead_workers_here()
    copy.state_that_both_are_one()
    with pytest.raises(MarkError, match=r"1 of 1 files of mark .* were written, but s3://bucket/lakes/"):
        collector.mark()
    assert "summary.json" not in "".join(copy.store.server.objects)
