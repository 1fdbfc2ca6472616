"""A small listing is counted without Spark, as Spark counts a large one."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.collect.listing.age_buckets import AGE_BUCKETS_DAYS
from lakefs_gc.engine.collect.listing.listing_counts import FIRST_SLICE, count_files, count_listing, listing_measures
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import rows_of
from lakefs_gc.storage.base import LISTING_SCHEMA
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository

NAMES = ["data/a/x", "data/a!/x", "data/a", "data/b/y/z", "data/c/", "root", "database/x/y", "data/b/a"]


@pytest.fixture
def run(spark: SparkSession, repository: LakeRepository) -> GCRun:
    run = Collector(spark, repository).begin()
    return replace(run, cutoff=run.started_at - timedelta(days=20))


@pytest.mark.parametrize("seed", range(4))
def test_both_count_the_same(spark: SparkSession, run: GCRun, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    borders = [days for _, _, days in AGE_BUCKETS_DAYS[:-1]]
    ages = [timedelta(days=days, seconds=second) for days in (*borders, 20) for second in (-1, 0, 1)]
    ages += [timedelta(days=chance.uniform(-1, 500)) for _ in range(20)]
    rows = [(chance.choice(NAMES), chance.randrange(10**6), run.started_at - age) for age in ages]
    if seed == 0:
        rows = [row for row in rows if not row[0].startswith("data/")]
    columns = [
        pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), LISTING_SCHEMA, strict=True)
    ]
    table = pa.Table.from_arrays(columns, schema=LISTING_SCHEMA)
    measures = [column.alias(name) for name, column in listing_measures(run).items()]
    [by_spark] = rows_of(spark, table, schemas.STORE_LISTING).agg(*measures).collect()
    counted = count_listing(table, run)
    assert counted == {name: value or (None if name == FIRST_SLICE else 0) for name, value in by_spark.asDict().items()}
    for n in range(5):
        pq.write_table(table.slice(n * 8, 8 if n < 4 else None), tmp_path / f"{n}.parquet")
    store = open_store(StoreLocation(f"{tmp_path.as_uri()}/"))
    assert count_files(store, [f"{n}.parquet" for n in range(5)], run, readers=2) == counted
    assert (counted[FIRST_SLICE] is None) == (seed == 0)
    assert sum(value for name, value in counted.items() if name != FIRST_SLICE) == sum(size for _, size, _ in rows)


def test_an_empty_listing_counts_nothing(run: GCRun) -> None:
    assert set(count_listing(LISTING_SCHEMA.empty_table(), run).values()) == {0, None}
    store: Any = None
    assert count_files(store, [], run, readers=1) == count_listing(LISTING_SCHEMA.empty_table(), run)
