"""Copy what a mark says to a place outside the namespace, and prove each copy.

The executors go through the mark chunk by chunk: copy (by the store itself where it can), compare, write down what
happened.  A backup that was killed goes on from there; what was copied and not written down is compared, and not
copied again.  The manifest, which makes it a backup, is written last, and only when every object is accounted for.
"""

from __future__ import annotations

import hashlib
import io
import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefs_gc import __version__
from lakefs_gc.config import BackupSettings
from lakefs_gc.engine.records import backup as backups
from lakefs_gc.engine.records.backup import ALREADY_GONE, COPIED, FAILED, OUTCOMES, Backup, BackupPaths
from lakefs_gc.engine.records.mark import Mark, MarkPart
from lakefs_gc.engine.records.mark_objects import read_marked
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.workers import Batches, driver_errors, strings, worker, worker_store
from lakefs_gc.engine.undo.same_content import Proof, same_content
from lakefs_gc.engine.workspace.workspace import Clock, StageOutput, Workspace
from lakefs_gc.errors import (
    BackupIncompleteError,
    CorruptFileError,
    LakeFSGCError,
    MarkError,
    ObjectNotFoundError,
    StoreUnavailableError,
)
from lakefs_gc.formats.addresses import CANDIDATE_ADDRESS_REGEX
from lakefs_gc.formats.parquet import read_columns
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

logger = logging.getLogger(__name__)

_PLAN = "address string, size long, recorded string"
RECORD = pa.schema(
    [
        pa.field("address", pa.string(), nullable=False),
        pa.field("size", pa.int64()),
        *(pa.field(name, pa.string(), nullable=False) for name in ("outcome", "proof", "checksum", "error")),
    ]
)
_OBJECTS_PER_RECORD = 200  # what a kill costs at most, in comparisons
_ROWS_PER_PART = 250_000
_TASKS_PER_CORE = 2
_READS_AT_ONCE = 16
_ERRORS_SHOWN = 10


@dataclass(frozen=True)
class BackupResult:
    """What happened to the objects of a mark: objects and bytes by outcome (every outcome is there), and how proved.

    ``backup`` is the manifest; None when the backup is not complete.
    """

    mark_id: str
    objects: dict[str, int]
    size_bytes: dict[str, int]
    proofs: dict[str, int]
    backup: Backup | None

    def raise_if_incomplete(self) -> None:
        """Raise ``BackupIncompleteError`` when an object could not be copied, or its copy not be proved."""
        if self.objects[FAILED]:
            raise BackupIncompleteError(
                f"{self.objects[FAILED]} of {sum(self.objects.values())} objects of mark {self.mark_id} could not be "
                "backed up",
                remedy="see their errors, or the records in the place of the backups; mend the cause, and back it up "
                "again: it goes on with what is left",
                mark_id=self.mark_id,
                outcomes={
                    name: {"objects": objects, "size_bytes": self.size_bytes[name]}
                    for name, objects in self.objects.items()
                },
                proofs=self.proofs,
            )


def backup(
    spark: SparkSession,
    store: StoreLocation,
    mark: Mark,
    place: StoreLocation,
    settings: BackupSettings,
    *,
    workspace: Workspace,
    run_key: str,
    clock: Clock,
    cores: int,
) -> tuple[StageOutput, BackupResult]:
    """Copy the objects of a mark.  Columns of the result: ``schemas.BACKUP``, a row for each marked object.

    ``store`` is the namespace; ``place`` was looked at (``backups.open_place``).  Raises ``MarkError`` before anything
    is copied when the mark's parts do not hold what the mark says.
    """
    began_at = clock()
    paths = BackupPaths(mark.repository, mark.mark_id)
    target = open_store(place)
    backups.began(target, mark, clock)
    recorded = _read_records(spark, place, paths, cores)
    _keep_plan(spark, store, mark, recorded, workspace, run_key, clock)
    plan = workspace.read(spark, run_key, "backup_plan", _PLAN).dataframe
    with driver_errors():
        # The sum needs every row of every task: this is what makes the copies.
        (
            plan.repartitionByRange(cores * _TASKS_PER_CORE, "address")
            .sortWithinPartitions("address")
            .mapInArrow(_copy(store, place, paths, settings.copies_at_once), "objects long")
            .agg(F.sum("objects"))
            .collect()
        )
        # What the mark holds now: a place may have records of a mark of the same id that was made again.
        outcomes = _read_records(spark, place, paths, cores).join(plan.select("address"), "address", "left_semi")
        result = _result(mark, outcomes)
        if not result.objects[FAILED]:
            parts = _write_contents(place, paths, outcomes, mark.candidates)
            made = _manifest(mark, parts, result, clock)
            target.put(paths.manifest, made.to_json())
            result = BackupResult(result.mark_id, result.objects, result.size_bytes, result.proofs, made)
            logger.info("backup of mark %s of %s: %d objects", mark.mark_id, mark.repository, made.objects)
    facts = {"mark_id": mark.mark_id, "digest": mark.digest, "place": f"{place.folder_url}{paths.folder}"}
    return StageOutput(outcomes, began_at, facts), result


def _keep_plan(
    spark: SparkSession,
    store: StoreLocation,
    mark: Mark,
    recorded: DataFrame,
    workspace: Workspace,
    run_key: str,
    clock: Clock,
) -> None:
    plan = read_marked(spark, store, mark).join(
        recorded.select("address", F.col("size").alias("recorded_size"), F.col("outcome").alias("recorded")),
        "address",
        "left",
    )
    plan = plan.withColumn("size", F.coalesce("recorded_size", "size"))
    manifest = workspace.write(
        spark,
        run_key,
        "backup_plan",
        StageOutput(
            plan.select("address", "size", "recorded"),
            clock(),
            {"mark_id": mark.mark_id},
            {"misplaced": F.count_if(~F.col("address").rlike(CANDIDATE_ADDRESS_REGEX))},
        ),
    )
    if manifest.rows != mark.candidates or manifest.facts["misplaced"]:
        raise MarkError(
            f"mark {mark.mark_id} says {mark.candidates} objects; it holds {manifest.rows} different ones, "
            f"{manifest.facts['misplaced']} of them in places that are never collected",
            remedy="do not sweep it; mark again",
        )


# -- in the workers -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Planned:
    address: str
    size: int | None
    recorded: str | None


@dataclass(frozen=True)
class _Record:
    address: str
    size: int | None
    outcome: str
    proof: str = ""
    checksum: str = ""
    error: str = ""


@worker
def _copy(batches: Batches, store: StoreLocation, place: StoreLocation, paths: BackupPaths, at_once: int) -> Batches:
    namespace, target = worker_store(store), worker_store(place)
    context = TaskContext.get()
    shard = context.partitionId() if context else 0
    for chunk in _chunks(batches):
        copies = map_unordered(lambda planned: _copy_one(namespace, target, paths, planned), chunk, at_once)
        outcomes = [(record, error) for _, (record, error) in copies]
        records = [asdict(record) for record, _ in outcomes if record]
        if records:
            # Sorted by time, so that the last word about an object is the one that holds.
            key = f"{paths.records}{time.time_ns():020d}-{shard:05d}-{uuid4().hex[:12]}.parquet"
            target.put(key, _parquet(pa.RecordBatch.from_pylist(records, schema=RECORD)))
        down = [error for _, error in outcomes if isinstance(error, StoreUnavailableError)]
        if len(down) == len(chunk):
            raise down[0]  # a store that is down: no use in asking for each of a million objects
        yield pa.record_batch({"objects": [len(chunk)]})


def _chunks(batches: Batches) -> Iterator[list[_Planned]]:
    for batch in batches:
        for start in range(0, batch.num_rows, _OBJECTS_PER_RECORD):
            yield [_Planned(**row) for row in batch.slice(start, _OBJECTS_PER_RECORD).to_pylist()]


def _copy_one(
    namespace: ObjectStore, target: ObjectStore, paths: BackupPaths, planned: _Planned
) -> tuple[_Record | None, LakeFSGCError | None]:
    """The record of an object (None when what is recorded still holds), and the error if it failed with one."""
    address, copy = planned.address, paths.objects + planned.address
    try:
        if planned.recorded == COPIED:
            facts = target.content_facts(copy)
            if facts is not None and planned.size in (None, facts.size_bytes):
                return None, None
            if namespace.content_facts(address) is None:
                lost = "the original is gone, and so is the copy that was made"
                return _Record(address, planned.size, FAILED, error=lost), None
        proof, original, _ = same_content(namespace, address, target, copy)
        if original is None:
            return _Record(address, planned.size, ALREADY_GONE), None
        if proof is None:
            namespace.copy_to(address, target, copy)
            proof, original, _ = same_content(namespace, address, target, copy)
        if original is None:
            return _Record(address, planned.size, ALREADY_GONE), None
        return _proved(address, original.size_bytes, proof), None
    except ObjectNotFoundError as error:
        return _not_found(namespace, planned, error)
    except LakeFSGCError as error:
        return _Record(address, planned.size, FAILED, error=error.message), error


def _proved(address: str, size_bytes: int, proof: Proof | None) -> _Record:
    if proof is None:
        return _Record(address, size_bytes, FAILED, error="the copy is not the same as the original")
    return _Record(address, size_bytes, COPIED, str(proof), f"{proof.algorithm}:{proof.checksum}")


def _not_found(namespace: ObjectStore, planned: _Planned, error: LakeFSGCError) -> tuple[_Record, LakeFSGCError | None]:
    """Gone while it was copied, or something else is not there, such as the bucket of the backups."""
    try:
        gone = namespace.content_facts(planned.address) is None
    except LakeFSGCError:
        gone = False
    if gone:
        return _Record(planned.address, planned.size, ALREADY_GONE), None
    return _Record(planned.address, planned.size, FAILED, error=error.message), error


def _parquet(batch: pa.RecordBatch) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_batches([batch], RECORD), buffer, compression="zstd")
    return buffer.getvalue()


# -- the records ----------------------------------------------------------------------------------------------


def _read_records(spark: SparkSession, place: StoreLocation, paths: BackupPaths, cores: int) -> DataFrame:
    """The last record of each address.  Columns: ``schemas.BACKUP``."""
    files = spark.range(1, numPartitions=1).mapInArrow(_list_files(place, paths.records), "file string")
    fields = schemas.BACKUP.fieldNames()
    records = files.repartition(cores).mapInArrow(
        _read_files(place), f"{', '.join(f'{f.name} {f.dataType.simpleString()}' for f in schemas.BACKUP)}, file string"
    )
    last = records.groupBy("address").agg(F.max_by(F.struct(*fields[1:]), F.col("file")).alias("last"))
    return last.select("address", "last.*")


@worker
def _list_files(batches: Batches, place: StoreLocation, folder: str) -> Batches:
    for _ in batches:
        for listed in worker_store(place).list(folder):
            yield pa.record_batch([listed.column("address")], names=["file"])


@worker
def _read_files(batches: Batches, place: StoreLocation) -> Batches:
    for key, content in worker_store(place).read_many(strings(batches, "file"), concurrency=_READS_AT_ONCE):
        for batch in read_records(key, content).to_batches():
            yield batch.append_column("file", pa.repeat(key, batch.num_rows))


def read_records(key: str, content: bytes) -> pa.Table:
    """One file of a backup's records or contents, as ``RECORD``.  Raises ``CorruptFileError``."""
    return read_columns(content, RECORD, key)


# -- the manifest ---------------------------------------------------------------------------------------------


def _write_contents(place: StoreLocation, paths: BackupPaths, outcomes: DataFrame, rows: int) -> tuple[MarkPart, ...]:
    if not rows:
        return ()
    ordered = outcomes.repartitionByRange(-(-rows // _ROWS_PER_PART), "address").sortWithinPartitions("address")
    written = ordered.mapInArrow(
        _write_part(place, paths), "key string, objects long, size_bytes long, sha256 string"
    ).collect()
    return tuple(sorted((MarkPart(**row.asDict()) for row in written), key=lambda part: part.key))


@worker
def _write_part(batches: Batches, place: StoreLocation, paths: BackupPaths) -> Batches:
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return
    batch = pa.Table.from_batches(filled).cast(RECORD).combine_chunks().to_batches()[0]
    context = TaskContext.get()
    shard = context.partitionId() if context else 0
    content = _parquet(batch)
    # A name of its own: an earlier manifest keeps the parts that it names.
    part = MarkPart(
        key=f"{paths.contents}part-{shard:05d}-{uuid4().hex[:12]}.parquet",
        objects=batch.num_rows,
        size_bytes=pc.sum(batch.column("size"), min_count=0).as_py(),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    worker_store(place).put(part.key, content)
    yield pa.RecordBatch.from_pylist([asdict(part)])


def read_contents(store: ObjectStore, part: MarkPart) -> pa.Table:
    """One part of a backup's contents, verified.  Columns: ``schemas.BACKUP``.  Raises ``CorruptFileError``."""
    content = store.read(part.key)
    if hashlib.sha256(content).hexdigest() != part.sha256:
        raise CorruptFileError(part.key, "it was changed after the backup was made")
    return read_records(part.key, content)


def _result(mark: Mark, outcomes: DataFrame) -> BackupResult:
    found = outcomes.groupBy("outcome", "proof").agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("size"))
    objects, size_bytes, proofs = dict.fromkeys(OUTCOMES, 0), dict.fromkeys(OUTCOMES, 0), dict[str, int]()
    for row in found.collect():
        objects[row["outcome"]] += row["objects"]
        size_bytes[row["outcome"]] += row["size"] or 0
        if row["proof"]:
            proofs[row["proof"]] = row["objects"]
    if sum(objects.values()) != mark.candidates:
        raise BackupIncompleteError(
            f"the records account for {sum(objects.values())} of {mark.candidates} objects of mark {mark.mark_id}",
            remedy="back it up again: it goes on with what is left",
        )
    return BackupResult(mark.mark_id, objects, size_bytes, dict(sorted(proofs.items())), None)


def _manifest(mark: Mark, parts: tuple[MarkPart, ...], result: BackupResult, clock: Clock) -> Backup:
    if sum(part.objects for part in parts) != mark.candidates:
        raise BackupIncompleteError(
            f"{sum(part.objects for part in parts)} of {mark.candidates} objects of mark {mark.mark_id} were written "
            "to the contents of its backup",
            remedy="back it up again",
        )
    return Backup(
        mark_id=mark.mark_id,
        repository=mark.repository,
        namespace=mark.namespace,
        mark_digest=mark.digest,
        created_at=clock(),
        parts=parts,
        outcomes=result.objects,
        copied_bytes=result.size_bytes[COPIED],
        proofs=result.proofs,
        version=__version__,
    ).sealed()


def failures(outcomes: DataFrame) -> list[dict[str, str | int]]:
    """The most frequent errors of a backup (columns ``schemas.BACKUP``): each with a count and one of its addresses."""
    failed = outcomes.where(F.col("outcome") == FAILED)
    with driver_errors():
        rows = (
            failed.groupBy("error")
            .agg(F.count(F.lit(1)).alias("objects"), F.min("address").alias("for_example"))
            .orderBy(F.desc("objects"), "error")
            .limit(_ERRORS_SHOWN)
            .collect()
        )
    return [row.asDict() for row in rows]
