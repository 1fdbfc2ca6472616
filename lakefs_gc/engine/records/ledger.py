"""The ledger of a sweep: what happened to each object, durable before anyone says so (rule 9).

Files ``lakefs-gc/ledger/<sequence>-<shard>-<attempt>-<chunk>-<kind>.parquet`` in the mark's folder, columns
``RECORD``; ``<sequence>`` orders the passes of all sweeps of the mark.  Before a chunk is deleted, an ``intent`` names
its objects that exist; after it, an ``outcome`` has what the store answered.  It is called ``unanswered`` when a try
ended without an answer: that one the store may still carry out.  A sweep that was killed in between finds the intent,
and counts what is gone by then as its own.
"""

from __future__ import annotations

import io
from datetime import datetime
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.workers import Batches, strings, worker, worker_store
from lakefs_gc.formats.parquet import read_columns
from lakefs_gc.formats.report import MARKS_FOLDER
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.units import EPOCH

INTENT = "intent"
DELETED = "deleted"
ALREADY_GONE = "already_gone"
RESURRECTED = "resurrected"
FAILED = "failed"
LOCKED = "locked"
"""An object lock or a legal hold keeps the object; a later sweep tries again."""
NOT_BACKED_UP = "not_backed_up"
"""The policy demands a backup, and that has no copy: what is left of the object is kept; a later sweep tries again."""
OUTCOMES = (DELETED, ALREADY_GONE, RESURRECTED, LOCKED, NOT_BACKED_UP, FAILED)

SEQUENCE_FORMAT = "%Y%m%dT%H%M%S%f"
"""How the time of a sweep begins the names of its records."""

_OUTCOME = "outcome"
_UNANSWERED = "unanswered"

RECORD = pa.schema(
    [
        pa.field("address", pa.string(), nullable=False),
        pa.field("size", pa.int64()),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
    ]
)
_LEDGER = StructType([*schemas.SWEEP.fields, StructField("recorded", StringType(), False)])
_READS_AT_ONCE = 16
_TASKS_PER_CORE = 4
_RECORD_FILES = r"/lakefs-gc/(ledger|restores)/.*\.parquet$"
_RECORDED_AT = pa.timestamp("us", tz="UTC")
# What is final wins, whichever was written later.  Of all else the latest holds: a later sweep may fail on an object
# that an earlier one spared, or die over one that an earlier one could not delete.
_FINAL = {DELETED: 2, ALREADY_GONE: 1}


class LedgerWriter:
    """Writes the records of one attempt at one shard; for use in a worker."""

    def __init__(self, store: ObjectStore, folder: str, shard: int, sequence: str) -> None:
        self._store = store
        # The time-ordered sequence of the sweep sorts its records; the random part keeps attempts apart.
        self._shard = f"{folder}{sequence}-{shard:05d}-"
        self._prefix = f"{self._shard}{uuid4().hex[:12]}"

    def begun(self) -> set[str]:
        """Addresses that an earlier attempt at this shard, in this sweep, said it would delete."""
        keys = (key for batch in self._store.list(self._shard) for key in batch.column("address").to_pylist())
        files = self._store.read_many(filter(is_intent, keys))
        return {address for key, content in files for address in read_records(key, content)["address"].to_pylist()}

    def chunk(self, number: int) -> ChunkWriter:
        """For the records of one chunk; chunks may be written by several threads."""
        return ChunkWriter(self._store, f"{self._prefix}-{number:06d}-")


class ChunkWriter:
    """Writes the records of one chunk."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix

    def intent(self, records: pa.RecordBatch) -> None:
        """Say what is about to be deleted; without records, that versions of what seems to be gone are."""
        self._write(records, INTENT)

    def outcome(self, records: pa.RecordBatch, *, answered: bool = True) -> None:
        """Say what happened; unless each try was ``answered``, the deletes count as under way for a while."""
        if records.num_rows:
            self._write(records, _OUTCOME if answered else _UNANSWERED)

    def _write(self, records: pa.RecordBatch, kind: str) -> None:
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_batches([records], RECORD), buffer, compression="zstd")
        self._store.put(f"{self._prefix}{kind}.parquet", buffer.getvalue())


def is_intent(key: str) -> bool:
    """Whether this file of a ledger is an intent."""
    return key.endswith(f"-{INTENT}.parquet")


def outcome_of(intent: str) -> str:
    """The file in which the outcome of an intent is, once the store has answered each of its tries."""
    return f"{intent.removesuffix(f'{INTENT}.parquet')}{_OUTCOME}.parquet"


def unanswered_of(intent: str) -> str:
    """The file in which the outcome is when the store has left a try unanswered."""
    return f"{intent.removesuffix(f'{INTENT}.parquet')}{_UNANSWERED}.parquet"


def read_ledger(spark: SparkSession, store: StoreLocation, folder: str, cores: int, *, after: str = "") -> DataFrame:
    """One row for each address that a sweep of this mark has recorded.  Columns: ``schemas.SWEEP``.

    ``outcome`` is ``intent`` for an object whose deletion was begun and whose end is not known.  With ``after`` only
    files whose keys sort after it count.
    """
    files = spark.range(1, numPartitions=1).mapInArrow(_list_files(store, folder, after), "file string")
    records = files.repartition(cores).mapInArrow(_read_files(store), _LEDGER)
    rank = F.coalesce(*(F.when(F.col("outcome") == o, F.lit(rank)) for o, rank in _FINAL.items()), F.lit(0))
    best = F.max_by(F.struct("outcome", "error"), F.struct(rank, F.col("recorded")))
    # Not every record has the size: a mark may not say it, and what is gone cannot be asked.
    found = records.groupBy("address").agg(F.max("size").alias("size"), best.alias("best"))
    return found.select("address", "size", "best.*")


@worker
def _list_files(batches: Batches, store: StoreLocation, folder: str, after: str) -> Batches:
    for _ in batches:
        for listed in worker_store(store).list(folder, start_after=after):
            records = listed.filter(pc.ends_with(listed["address"], ".parquet"))
            yield pa.record_batch([records["address"]], names=["file"])


@worker
def _read_files(batches: Batches, store: StoreLocation) -> Batches:
    for key, content in worker_store(store).read_many(strings(batches, "file"), concurrency=_READS_AT_ONCE):
        for batch in read_records(key, content).to_batches():
            yield batch.append_column("recorded", pa.repeat(key, batch.num_rows))


def read_records(key: str, content: bytes) -> pa.Table:
    """The records of one file of a ledger, as ``RECORD``.  Raises ``CorruptFileError``."""
    return read_columns(content, RECORD, key)


def recorded_by_sweeps(spark: SparkSession, store: StoreLocation, cores: int, *, since: datetime = EPOCH) -> DataFrame:
    """Each record that was written since then.

    Columns: ``address``, ``outcome`` (of a ledger, or ``restores.RESTORED``), ``mark_id``, ``recorded_at``.
    """
    begin = spark.range(1, numPartitions=1)
    files = begin.mapInArrow(_list_all_records(store, since), "file string, recorded_at timestamp")
    records = "address string, outcome string, mark_id string, recorded_at timestamp"
    return files.repartition(cores * _TASKS_PER_CORE).mapInArrow(_read_all_records(store), records)


@worker
def _list_all_records(batches: Batches, store: StoreLocation, since: datetime) -> Batches:
    for _ in batches:
        for listed in worker_store(store).list(MARKS_FOLDER):
            has_records = pc.match_substring_regex(listed["address"], _RECORD_FILES)
            is_young = pc.greater_equal(listed["last_modified"], pa.scalar(since, listed["last_modified"].type))
            files = listed.filter(pc.and_(has_records, is_young))
            written_at = files["last_modified"].cast(_RECORDED_AT)
            yield pa.record_batch([files["address"].cast(pa.string()), written_at], names=["file", "recorded_at"])


@worker
def _read_all_records(batches: Batches, store: StoreLocation) -> Batches:
    for files in batches:
        written_at = dict(zip(files["file"].to_pylist(), files["recorded_at"], strict=True))
        for key, content in worker_store(store).read_many(written_at, concurrency=_READS_AT_ONCE):
            mark_id = key.removeprefix(MARKS_FOLDER).partition("/")[0]
            for batch in read_records(key, content).select(["address", "outcome"]).to_batches():
                named = batch.append_column("mark_id", pa.repeat(mark_id, batch.num_rows))
                yield named.append_column("recorded_at", pa.repeat(written_at[key], batch.num_rows))
