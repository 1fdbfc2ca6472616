"""Stage 1: what is in the object store.

The executors list: one task discovers the slices, then each slice is listed by whoever is free.  Only places that can
hold candidates are listed (rule 4): ``data/`` at any depth, and the root, one level.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine import schemas
from lakefs_gc.engine.ages import age_measures
from lakefs_gc.engine.dataset import Clock, StageOutput
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.workers import Batches, worker, worker_store
from lakefs_gc.formats.addresses import are_candidate_addresses
from lakefs_gc.storage.base import StoreLocation
from lakefs_gc.storage.fan_out import list_concurrently

_SHARD = pa.schema([pa.field("prefix", pa.string(), nullable=False)])
_SHARDS_PER_BATCH = 10_000
# Tasks a core gets; slices differ in size, so a task more or less evens out.
_TASKS_PER_CORE = 4
_LISTINGS_AT_ONCE = 16
_DATA = "data/"


def store_listing(spark: SparkSession, run: GCRun, clock: Clock, *, cores: int) -> StageOutput:
    """List the store.  Columns: ``schemas.STORE_LISTING``.  ``cores`` is how many tasks run at once."""
    began_at = clock()
    one_row = spark.range(1, numPartitions=1)
    slices = one_row.mapInArrow(_discover_slices(run.store), "prefix string")
    below_slices = slices.repartition(cores * _TASKS_PER_CORE).mapInArrow(
        _list_prefixes(run.store), schemas.STORE_LISTING
    )
    outside_slices = one_row.mapInArrow(_list_level(run.store, ("", _DATA)), schemas.STORE_LISTING)
    return StageOutput(
        dataframe=below_slices.unionByName(outside_slices),
        began_at=began_at,
        facts={"run": run.to_facts()},
        measures={"size_bytes": F.sum("size"), **age_measures(run.started_at)},
    )


@worker
def _discover_slices(batches: Batches, store: StoreLocation) -> Batches:
    for _ in batches:
        prefixes, _ = worker_store(store).list_level(_DATA)
        for begin in range(0, len(prefixes), _SHARDS_PER_BATCH):
            yield pa.record_batch([pa.array(prefixes[begin : begin + _SHARDS_PER_BATCH])], schema=_SHARD)


@worker
def _list_prefixes(batches: Batches, store: StoreLocation) -> Batches:
    prefixes = (prefix for batch in batches for prefix in batch.column("prefix").to_pylist())
    yield from list_concurrently(worker_store(store), prefixes, concurrency=_LISTINGS_AT_ONCE)


@worker
def _list_level(batches: Batches, store: StoreLocation, prefixes: tuple[str, ...]) -> Batches:
    for _ in batches:
        for prefix in prefixes:
            objects = worker_store(store).list_level(prefix)[1]
            # At the root there are also names of lakeFS's own.
            yield objects.filter(are_candidate_addresses(objects.column("address")))
