"""What the sweeps of all marks of a repository have recorded in their ledgers."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.engine import ledger
from lakefs_gc.engine.workers import Batches, strings, worker, worker_store
from lakefs_gc.storage.base import StoreLocation

_TASKS_PER_CORE = 4
_READS_AT_ONCE = 16
_MARKS_FOLDER = "_lakefs/retention/gc/unified/"
_LEDGER_FOLDER = "/lakefs-gc/ledger/"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def recorded_by_sweeps(spark: SparkSession, store: StoreLocation, cores: int, *, since: datetime = _EPOCH) -> DataFrame:
    """Each record of the ledgers that were written since then.  Columns: ``address``, ``outcome``, ``mark_id``."""
    files = spark.range(1, numPartitions=1).mapInArrow(_list_ledgers(store, since), "file string")
    return files.repartition(cores * _TASKS_PER_CORE).mapInArrow(
        _read_ledgers(store), "address string, outcome string, mark_id string"
    )


@worker
def _list_ledgers(batches: Batches, store: StoreLocation, since: datetime) -> Batches:
    for _ in batches:
        for listed in worker_store(store).list(_MARKS_FOLDER):
            is_ledger = pc.match_substring(listed["address"], _LEDGER_FOLDER)
            is_young = pc.greater_equal(listed["last_modified"], pa.scalar(since, listed["last_modified"].type))
            files = listed["address"].filter(pc.and_(is_ledger, is_young))
            yield pa.record_batch([files], names=["file"])


@worker
def _read_ledgers(batches: Batches, store: StoreLocation) -> Batches:
    for key, content in worker_store(store).read_many(strings(batches, "file"), concurrency=_READS_AT_ONCE):
        mark_id = key.removeprefix(_MARKS_FOLDER).partition("/")[0]
        for batch in ledger.read_records(key, content).select(["address", "outcome"]).to_batches():
            yield batch.append_column("mark_id", pa.repeat(mark_id, batch.num_rows))
