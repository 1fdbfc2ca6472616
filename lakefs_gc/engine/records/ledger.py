"""The ledger of a sweep: the outcome of each object, durable before it is reported (rule 9).

Files ``lakefs-gc/ledger/<sequence>-<shard>-<attempt>-<chunk>-<kind>.parquet`` in the mark's folder, with the columns
``RECORD``. ``<sequence>`` orders the passes of all sweeps of the mark, and names the part that a sweep is of. Before a
chunk is deleted, an ``intent`` names its objects that exist. After the delete, an ``outcome`` has the store's answers.
It is an ``unanswered`` instead if an attempt ended without an answer, because the store may still execute that attempt.
If a sweep was killed in between, the next one finds the intent, and counts the objects that no longer exist as deleted
by the sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from lakefs_gc.engine.scope import PARTS, Scope
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.scale import in_arrow, spread
from lakefs_gc.engine.spark.workers import Batches, strings, worker, worker_store
from lakefs_gc.errors import CorruptFileError
from lakefs_gc.formats.parquet import parquet_bytes, read_columns
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
"""An object lock or a legal hold prevents the delete; a later sweep tries again."""
NOT_BACKED_UP = "not_backed_up"
"""The policy requires a backup, and the backup has no copy of the object: it is kept, and a later sweep tries again."""
OUTCOMES = (DELETED, ALREADY_GONE, RESURRECTED, LOCKED, NOT_BACKED_UP, FAILED)

SEQUENCE_FORMAT = "%Y%m%dT%H%M%S%f"
"""The time of a sweep, as the names of its records begin."""

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
_NO_RECORDS = pa.Table.from_batches(  # pa.array would import pandas: 0.4 s of each command
    [], pa.schema([("address", pa.string()), ("size", pa.int64()), ("order", pa.int64())])
)
# A final outcome wins over all others, even later ones. Of all other outcomes the latest counts: a later sweep may fail
# on an object that an earlier one kept, or be killed while it deletes one that an earlier one could not delete.
_FINAL = {DELETED: 2, ALREADY_GONE: 1}


class LedgerWriter:
    """Writes, in a worker, the records of one attempt at one shard."""

    def __init__(self, store: ObjectStore, folder: str, shard: int, sequence: str) -> None:
        self._store = store
        # The sequence sorts the records of sweeps by time; the random part distinguishes attempts.
        self._shard = f"{folder}{sequence}-{shard:05d}-"
        self._prefix = f"{self._shard}{uuid4().hex[:12]}"

    def begun(self) -> set[str]:
        """Return the addresses in the intents of earlier attempts at this shard in this sweep."""
        keys = (key for batch in self._store.list(self._shard) for key in batch.column("address").to_pylist())
        files = self._store.read_many(filter(is_intent, keys))
        return {address for key, content in files for address in read_records(key, content)["address"].to_pylist()}

    def chunk(self, number: int) -> ChunkWriter:
        """Return a writer for the records of one chunk. Several threads may write chunks at once."""
        return ChunkWriter(self._store, f"{self._prefix}-{number:06d}-")


class ChunkWriter:
    """Writes the records of one chunk."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix
        self._has_intent = False

    def intent(self, records: pa.RecordBatch) -> None:
        """Record the objects that the chunk is about to delete.

        Without records, the chunk only deletes versions of objects whose current version does not exist.
        """
        self._write(records, INTENT)
        self._has_intent = True

    def retract(self) -> None:
        """Record that nothing of the chunk was sent, if its intent was written.

        Otherwise a later loss of its objects would look like a delete by this sweep, and a restore would wait for one.
        """
        if self._has_intent:
            nothing = pa.RecordBatch.from_pylist([], schema=RECORD)
            self._write(nothing, INTENT)
            self._write(nothing, _OUTCOME)

    def outcome(self, records: pa.RecordBatch, *, answered: bool = True) -> None:
        """Record the outcomes of the chunk.

        Unless the store ``answered`` each attempt, the deletes count as in progress for a while.
        """
        if records.num_rows:
            self._write(records, _OUTCOME if answered else _UNANSWERED)

    def _write(self, records: pa.RecordBatch, kind: str) -> None:
        self._store.put(f"{self._prefix}{kind}.parquet", parquet_bytes(records, compression="zstd"))


def sequence_of(started_at: datetime, look: int, only: Scope) -> str:
    """Return the sequence of one pass of a sweep that started at a time, of the whole mark or of one part."""
    return f"{started_at:{SEQUENCE_FORMAT}}-{look:05d}{only.suffix}"


def scope_of(key: str) -> Scope:
    """Return what the sweep that wrote a file of a ledger was of: the whole mark, or one part."""
    after_look = key.rpartition("/")[2].split("-")[2:3]
    return next((only for only in PARTS if after_look == [only.value]), Scope.all)


def is_intent(key: str) -> bool:
    """Return whether a file of a ledger is an intent."""
    return key.endswith(f"-{INTENT}.parquet")


def outcome_of(intent: str) -> str:
    """Return the file with the outcome of an intent, for the case that the store answered each attempt."""
    return f"{intent.removesuffix(f'{INTENT}.parquet')}{_OUTCOME}.parquet"


def unanswered_of(intent: str) -> str:
    """Return the file with the outcome of an intent, for the case that the store left an attempt unanswered."""
    return f"{intent.removesuffix(f'{INTENT}.parquet')}{_UNANSWERED}.parquet"


def read_ledger(spark: SparkSession, store: StoreLocation, folder: str, cores: int, *, after: str = "") -> DataFrame:
    """Return one row for each address that the sweeps of a mark recorded. Columns: ``schemas.SWEEP``.

    ``outcome`` is ``intent`` for an object whose delete began and whose result is unknown. With ``after``, only files
    whose keys sort after it count.
    """
    files = in_arrow(spark.range(1, numPartitions=1), _list_files(store, folder, after), "file string")
    records = in_arrow(spread(files, cores, "file"), _read_files(store), _LEDGER)
    rank = F.coalesce(*(F.when(F.col("outcome") == o, F.lit(rank)) for o, rank in _FINAL.items()), F.lit(0))
    best = F.max_by(F.struct("outcome", "error"), F.struct(rank, F.col("recorded")))
    # Not every record has the size: some marks do not record it, and a deleted object cannot be looked up.
    outcomes = records.groupBy("address").agg(F.max("size").alias("size"), best.alias("best"))
    return outcomes.select("address", "size", "best.*")


def count_outcomes(store: ObjectStore, files: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the ``objects`` and ``size_bytes`` of each outcome in files of a ledger, by the rules of ``read_ledger``.

    ``intent`` counts objects whose delete began and whose result is unknown. Works in this process, without Spark, with
    some 100 bytes of memory for each record. Raises ``CorruptFileError``.
    """
    codes = pa.array([*OUTCOMES, INTENT])
    number = {key: index for index, key in enumerate(sorted(files))}
    tables = [_NO_RECORDS]
    for key, content in store.read_many(files, concurrency=_READS_AT_ONCE):
        records = read_records(key, content)
        code = pc.index_in(records["outcome"], value_set=codes)
        if code.null_count:
            raise CorruptFileError(key, "a record has an unknown outcome")
        ranks = pa.array([_FINAL.get(outcome, 0) for outcome in codes.to_pylist()], pa.int64())
        # One number that sorts by rank, then by file. Its remainder is the outcome.
        order = pc.add(pc.multiply(pc.take(ranks, code), len(number)), number[key])
        order = pc.add(pc.multiply(order, len(codes)), code.cast(pa.int64()))
        tables.append(pa.table([records["address"], records["size"], order], schema=_NO_RECORDS.schema))
    last = pa.concat_tables(tables).group_by("address").aggregate([("order", "max"), ("size", "max")])
    orders, sizes = last["order_max"].to_numpy(), pc.fill_null(last["size_max"], 0).to_numpy()
    counted = {}
    for code, outcome in enumerate(codes.to_pylist()):
        has_outcome = orders % len(codes) == code
        counted[outcome] = {"objects": int(has_outcome.sum()), "size_bytes": int(sizes[has_outcome].sum())}
    return counted


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


def rank_of(outcome: str) -> int:
    """Return the rank of an outcome: a record of a higher rank wins over all others, also over later ones."""
    return _FINAL.get(outcome, 0)


def read_records(key: str, content: bytes) -> pa.Table:
    """Return the records of one file of a ledger, with the columns ``RECORD``. Raise ``CorruptFileError``."""
    return read_columns(content, RECORD, key)


def recorded_by_sweeps(spark: SparkSession, store: StoreLocation, cores: int, *, since: datetime = EPOCH) -> DataFrame:
    """Return the records of all sweeps and restores in a namespace that were written at ``since`` or later.

    Columns: ``address``, ``outcome`` (of a ledger, or ``restore_log.RESTORED``), ``mark_id``, ``recorded_at``.
    """
    begin = spark.range(1, numPartitions=1)
    files = in_arrow(begin, _list_all_records(store, since), "file string, recorded_at timestamp")
    records = "address string, outcome string, mark_id string, recorded_at timestamp"
    return in_arrow(spread(files, cores * _TASKS_PER_CORE, "file"), _read_all_records(store), records)


@worker
def _list_all_records(batches: Batches, store: StoreLocation, since: datetime) -> Batches:
    for _ in batches:
        for listed in worker_store(store).list(MARKS_FOLDER):
            has_records = pc.match_substring_regex(listed["address"], _RECORD_FILES)
            is_recent = pc.greater_equal(listed["last_modified"], pa.scalar(since, listed["last_modified"].type))
            files = listed.filter(pc.and_(has_records, is_recent))
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
