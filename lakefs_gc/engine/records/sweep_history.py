"""What the sweeps of all marks of a repository have recorded in their ledgers, and what restores brought back."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.storage.location import StoreLocation

_TASKS_PER_CORE = 4
_READS_AT_ONCE = 16
_MARKS_FOLDER = "_lakefs/retention/gc/unified/"
_RECORDS = r"/lakefs-gc/(ledger|restores)/.*\.parquet$"
_TIME = pa.timestamp("us", tz="UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def recorded_by_sweeps(spark: SparkSession, store: StoreLocation, cores: int, *, since: datetime = _EPOCH) -> DataFrame:
    """Each record that was written since then.

    Columns: ``address``, ``outcome`` (of a ledger, or ``restores.RESTORED``), ``mark_id``, ``recorded_at``.
    """
    begin = spark.range(1, numPartitions=1)
    files = begin.mapInArrow(_list_records(store, since), "file string, recorded_at timestamp")
    records = "address string, outcome string, mark_id string, recorded_at timestamp"
    return files.repartition(cores * _TASKS_PER_CORE).mapInArrow(_read_records(store), records)


@worker
def _list_records(batches: Batches, store: StoreLocation, since: datetime) -> Batches:
    for _ in batches:
        for listed in worker_store(store).list(_MARKS_FOLDER):
            has_records = pc.match_substring_regex(listed["address"], _RECORDS)
            is_young = pc.greater_equal(listed["last_modified"], pa.scalar(since, listed["last_modified"].type))
            files = listed.filter(pc.and_(has_records, is_young))
            written_at = files["last_modified"].cast(_TIME)
            yield pa.record_batch([files["address"].cast(pa.string()), written_at], names=["file", "recorded_at"])


@worker
def _read_records(batches: Batches, store: StoreLocation) -> Batches:
    for files in batches:
        written_at = dict(zip(files["file"].to_pylist(), files["recorded_at"], strict=True))
        for key, content in worker_store(store).read_many(written_at, concurrency=_READS_AT_ONCE):
            mark_id = key.removeprefix(_MARKS_FOLDER).partition("/")[0]
            for batch in ledger.read_records(key, content).select(["address", "outcome"]).to_batches():
                named = batch.append_column("mark_id", pa.repeat(mark_id, batch.num_rows))
                yield named.append_column("recorded_at", pa.repeat(written_at[key], batch.num_rows))
