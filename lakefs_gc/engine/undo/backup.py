"""Copies every marked object to the backup location and proves that each copy is the same, before the sweep.

The executors work through the mark chunk by chunk: copy (inside the store where it can), compare, record the outcome.
A backup that was killed continues from its records; an object that was copied and not recorded is compared, not copied
again. The manifest makes the backup complete. It is written last, and only when every marked object is accounted for:
a sweep that needs a backup keeps the objects that have no copy (rule 12).
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefs_gc import __version__
from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.engine.records.backups.location import begin_backup
from lakefs_gc.engine.records.backups.manifest import (
    COPIED,
    FAILED,
    OUTCOMES,
    SIZE_ONLY,
    Backup,
    BackupPaths,
    BackupStart,
)
from lakefs_gc.engine.records.backups.marker import write_marker
from lakefs_gc.engine.records.backups.notes import note_backup_place
from lakefs_gc.engine.records.backups.renewal import Renewal
from lakefs_gc.engine.records.mark import Mark, MarkPart, MarkPaths
from lakefs_gc.engine.records.mark_objects import read_marked
from lakefs_gc.engine.run import RunContext, ServerIdentity
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.frequent_errors import frequent_errors
from lakefs_gc.engine.spark.witness import Witness, write_witness
from lakefs_gc.engine.spark.workers import Batches, driver_errors, strings, worker
from lakefs_gc.engine.undo.backup_contents import RECORD, lost_copies, read_records
from lakefs_gc.engine.undo.copy_object import Planned, copy_one
from lakefs_gc.engine.undo.proved_store import refuse_mirror
from lakefs_gc.engine.workspace.workspace import Clock, StageOutput
from lakefs_gc.errors import (
    BackupError,
    BackupIncompleteError,
    MarkError,
    StoreUnavailableError,
)
from lakefs_gc.formats.address_readings import with_slashes
from lakefs_gc.formats.candidate_addresses import CANDIDATE_ADDRESS_REGEX
from lakefs_gc.formats.parquet import parquet_bytes
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.location import StoreLocation

logger = logging.getLogger(__name__)

_PLAN = "address string, size long, recorded string"
_OBJECTS_PER_RECORD = 200  # a killed task compares at most so many copies again
_ROWS_PER_PART = 250_000
_TASKS_PER_CORE = 2
_READS_AT_ONCE = 16


@dataclass(frozen=True)
class BackupResult:
    """The objects and bytes of a mark by outcome, and objects by kind of proof.

    ``objects`` and ``size_bytes`` have every name of ``OUTCOMES``. ``backup`` is the manifest; None if the backup is
    incomplete.
    """

    mark_id: str
    objects: dict[str, int]
    size_bytes: dict[str, int]
    proofs: dict[str, int]
    backup: Backup | None

    def raise_if_incomplete(self) -> None:
        """Raise ``BackupIncompleteError`` if an object could not be copied, or its copy could not be proved."""
        if self.objects[FAILED]:
            raise BackupIncompleteError(
                f"{self.objects[FAILED]:,} of {sum(self.objects.values()):,} objects of mark {self.mark_id} could not "
                "be backed up",
                remedy="Read the errors here or in the records in the backup location, fix the cause and back up the "
                "same mark again: the backup continues with the remaining objects",
                mark_id=self.mark_id,
                outcomes={
                    name: {"objects": objects, "size_bytes": self.size_bytes[name]}
                    for name, objects in self.objects.items()
                },
                proofs=self.proofs,
            )


def backup(
    context: RunContext, store: StoreLocation, mark: Mark, location: StoreLocation, *, run_key: str
) -> tuple[StageOutput, BackupResult]:
    """Copy the objects of a mark. Columns of the result: ``schemas.BACKUP``, one row for each marked object.

    ``store`` is the namespace, ``location`` comes from ``open_backup_location``. Raises ``MarkError`` before
    the first copy if the mark's parts do not hold the objects that its manifest counts. Raises ``BackupError`` as
    ``begin_backup``, instead of replacing a complete backup of this mark by one with fewer copies, if this process does
    not see what the workers wrote, and if a pruning may have removed copies meanwhile. Raises ``StorageError`` if a
    worker has another store than this process, and as ``refuse_mirror`` before the first copy.
    """
    spark, clock, cores = context.spark, context.clock, context.cores
    began_at = clock()
    namespace, target = context.open_store(store), context.open_store(location)
    refuse_mirror(context, mark.repository, namespace, "back up again")
    server = _server_of(context, mark)
    write_marker(target)
    note, earlier = begin_backup(target, mark, server, clock, context.settings.backup.keep_days)
    paths, renewal = BackupPaths(mark.repository, mark.mark_id), Renewal(target, note)
    note_backup_place(namespace, mark, location.url)
    copies = write_witness(target, paths.workers)
    originals = write_witness(namespace, MarkPaths.of(mark.mark_id).passes)
    recorded = _read_records(spark, copies, paths, cores)
    plan, slashed = _keep_plan(context, store, mark, recorded, run_key)
    if slashed and with_slashes("\\", location.url) == "/":
        _refuse_copies_of_one_name(plan, mark, location)
    copying = copy_objects(originals, copies, paths, context.settings.backup.copies_at_once)
    with driver_errors(), renewal.repeated():
        with RUN_PROGRESS.step("backup", ("objects", mark.candidates)):
            # The sum needs every row of every task, so this action makes all copies.
            (
                plan.repartitionByRange(cores * _TASKS_PER_CORE, "address")
                .sortWithinPartitions("address")
                .mapInArrow(copying, "objects long")
                .agg(F.sum("objects"))
                .collect()
            )
        # Only the objects of this mark: a location of an earlier version may have records of a mark with the same id.
        last = _read_records(spark, copies, paths, cores).join(plan.select("address"), "address", "left_semi")
        # Another process may back up the same mark and record more. The manifest counts what the contents list.
        outcomes = context.workspace.keep(spark, run_key, "backup_outcomes", StageOutput(last, began_at)).dataframe
        result = _result(mark, outcomes)
        parts = () if result.objects[FAILED] else _write_contents(copies, paths, outcomes, mark.candidates)
    if not result.objects[FAILED]:
        manifest = _manifest(mark, note, parts, result, clock)
        _refuse_fewer_copies(target, manifest, earlier)
        renewal.last()
        _refuse_unseen_copies(target, manifest)
        renewal.complete(manifest)
        result = replace(result, backup=manifest)
        logger.info(
            "backup of mark %s of repository %s: %s objects copied",
            mark.mark_id,
            mark.repository,
            f"{manifest.objects:,}",
        )
    facts = {"mark_id": mark.mark_id, "digest": mark.digest, "place": f"{location.folder_url}{paths.folder}"}
    return StageOutput(outcomes, began_at, facts), result


def _server_of(context: RunContext, mark: Mark) -> dict[str, str]:
    """Return the server that a mark records, as JSON. A mark of lakeFS's own client records none."""
    if mark.is_ours:
        return dict(mark.run.get("server") or {})
    return asdict(ServerIdentity.of(context.server, context.server.repository(mark.repository)))


def _keep_plan(
    context: RunContext, store: StoreLocation, mark: Mark, recorded: DataFrame, run_key: str
) -> tuple[DataFrame, int]:
    """Write the plan of a backup to the workspace; return it, and how many addresses in it have backslashes.

    Raises ``InputOrderError`` if it is that of another process by then. Two machines may have runs of one name.
    """
    plan = read_marked(context.spark, store, mark).join(
        # A copy that was compared only by its size is compared with its original, should that exist again.
        recorded.select(
            "address",
            F.when(F.col("outcome") == COPIED, F.col("size")).alias("recorded_size"),
            F.when(F.col("proof") != SIZE_ONLY, F.col("outcome")).alias("recorded"),
        ),
        "address",
        "left",
    )
    # Only a mark of lakeFS's own client has no sizes. Then a copy of an earlier backup shows them.
    plan = plan.withColumn("size", F.coalesce("size", "recorded_size"))
    kept = context.workspace.keep(
        context.spark,
        run_key,
        "backup_plan",
        StageOutput(
            plan.select("address", "size", "recorded"),
            context.clock(),
            {"mark_id": mark.mark_id},
            {
                "misplaced": F.count_if(~F.col("address").rlike(CANDIDATE_ADDRESS_REGEX)),
                "slashed": F.count_if(F.col("address").contains("\\")),
            },
        ),
        _PLAN,
    )
    manifest = kept.manifest
    if manifest.rows != mark.candidates or manifest.facts["misplaced"]:
        raise MarkError(
            f"The manifest of mark {mark.mark_id} counts {mark.candidates:,} objects, but its files hold "
            f"{manifest.rows:,} different ones, {manifest.facts['misplaced']:,} of them at addresses that are never "
            "collected",
            remedy="Do not sweep this mark. Run `lakefs-gc mark` for a new one",
        )
    return kept.dataframe, int(manifest.facts["slashed"])


def _refuse_copies_of_one_name(plan: DataFrame, mark: Mark, location: StoreLocation) -> None:
    """Raise ``BackupError`` if a store that converts backslashes would keep one copy for two objects of a mark."""
    named = plan.select("address", F.translate("address", "\\", "/").alias("copy"))
    alike = named.where(F.col("address") != F.col("copy")).select("copy").distinct()
    of_one_copy = F.sort_array(F.collect_list("address")).alias("addresses")
    objects = named.join(alike, "copy", "left_semi").groupBy("copy").agg(of_one_copy)
    for copy, addresses in objects.where(F.size("addresses") > 1).limit(1).collect():
        raise BackupError(
            f"Objects of mark {mark.mark_id} differ only in backslashes: {' and '.join(addresses)}. Stores like Azure "
            f"and SeaweedFS convert them, and would keep one copy ({copy}) for all of them",
            remedy=f"Set backup.url to a local folder, instead of {location.url}, and back up the same mark again",
        )


# -- in the workers -------------------------------------------------------------------------------------------


@worker
def copy_objects(batches: Batches, originals: Witness, copies: Witness, paths: BackupPaths, at_once: int) -> Batches:
    """Copy the objects of a plan (columns ``_PLAN``) and record the outcomes. Yields their number for each chunk.

    Raises ``StorageError`` if this worker has another store than the process of the run: nothing is copied there, and
    that it lacks an object proves nothing.
    """
    namespace, target = originals.open_store(), copies.open_store()
    context = TaskContext.get()
    shard = context.partitionId() if context else 0
    for chunk in _chunks(batches):
        copied = map_unordered(lambda planned: copy_one(namespace, target, paths, planned), chunk, at_once)
        outcomes = [(record, error) for _, (record, error) in copied]
        records = [asdict(record) for record, _ in outcomes if record]
        if any(record.is_without_original for record, _ in outcomes if record):
            # A disk may be gone since the first look. Nothing is in the folder that is left of it.
            originals.refuse_other(namespace)
            copies.refuse_other(target)
        if records:
            # Keys sort by time: of several records of one object the last one holds.
            key = f"{paths.records}{time.time_ns():020d}-{shard:05d}-{uuid4().hex[:12]}.parquet"
            target.put(key, parquet_bytes(pa.RecordBatch.from_pylist(records, schema=RECORD), compression="zstd"))
        unavailable = [error for _, error in outcomes if isinstance(error, StoreUnavailableError)]
        if len(unavailable) == len(chunk):
            raise unavailable[0]  # the store is down: do not retry each of a million objects
        yield pa.record_batch({"objects": [len(chunk)]})


def _chunks(batches: Batches) -> Iterator[list[Planned]]:
    for batch in batches:
        for start in range(0, batch.num_rows, _OBJECTS_PER_RECORD):
            yield [Planned(**row) for row in batch.slice(start, _OBJECTS_PER_RECORD).to_pylist()]


# -- the records ----------------------------------------------------------------------------------------------


def _read_records(spark: SparkSession, copies: Witness, paths: BackupPaths, cores: int) -> DataFrame:
    """Return the last record of each address. Columns: ``schemas.BACKUP``."""
    files = spark.range(1, numPartitions=1).mapInArrow(_list_files(copies, paths.records), "file string")
    fields = schemas.BACKUP.fieldNames()
    records = files.repartition(cores, "file").mapInArrow(
        _read_files(copies),
        f"{', '.join(f'{f.name} {f.dataType.simpleString()}' for f in schemas.BACKUP)}, file string",
    )
    last = records.groupBy("address").agg(F.max_by(F.struct(*fields[1:]), F.col("file")).alias("last"))
    return last.select("address", "last.*")


@worker
def _list_files(batches: Batches, copies: Witness, folder: str) -> Batches:
    for _ in batches:
        for listed in copies.open_store().list(folder):
            yield pa.record_batch([listed.column("address")], names=["file"])


@worker
def _read_files(batches: Batches, copies: Witness) -> Batches:
    for key, content in copies.open_store().read_many(strings(batches, "file"), concurrency=_READS_AT_ONCE):
        for batch in read_records(key, content).to_batches():
            yield batch.append_column("file", pa.repeat(key, batch.num_rows))


# -- the manifest ---------------------------------------------------------------------------------------------


def _write_contents(copies: Witness, paths: BackupPaths, outcomes: DataFrame, rows: int) -> tuple[MarkPart, ...]:
    if not rows:
        return ()
    ordered = outcomes.repartitionByRange(-(-rows // _ROWS_PER_PART), "address").sortWithinPartitions("address")
    written = ordered.mapInArrow(
        _write_part(copies, paths), "key string, objects long, size_bytes long, sha256 string"
    ).collect()
    return tuple(sorted((MarkPart(**row.asDict()) for row in written), key=lambda part: part.key))


@worker
def _write_part(batches: Batches, copies: Witness, paths: BackupPaths) -> Batches:
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return
    batch = pa.Table.from_batches(filled).cast(RECORD).combine_chunks().to_batches()[0]
    context = TaskContext.get()
    shard = context.partitionId() if context else 0
    content = parquet_bytes(batch, compression="zstd")
    # The name is unique: an earlier manifest refers to its own parts, which must not be overwritten.
    part = MarkPart(
        key=f"{paths.contents}part-{shard:05d}-{uuid4().hex[:12]}.parquet",
        objects=batch.num_rows,
        size_bytes=pc.sum(batch.column("size"), min_count=0).as_py(),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    copies.open_store().put(part.key, content)
    yield pa.RecordBatch.from_pylist([asdict(part)])


def _result(mark: Mark, outcomes: DataFrame) -> BackupResult:
    counted = outcomes.groupBy("outcome", "proof").agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("size"))
    objects, size_bytes, proofs = dict.fromkeys(OUTCOMES, 0), dict.fromkeys(OUTCOMES, 0), dict[str, int]()
    for row in counted.collect():
        objects[row["outcome"]] += row["objects"]
        size_bytes[row["outcome"]] += row["size"] or 0
        if row["proof"]:
            proofs[row["proof"]] = row["objects"]
    if sum(objects.values()) != mark.candidates:
        raise BackupIncompleteError(
            f"The records of the backup account for {sum(objects.values()):,} of {mark.candidates:,} objects of mark "
            f"{mark.mark_id}",
            remedy="Back up the same mark again: the backup continues with the remaining objects",
        )
    return BackupResult(mark.mark_id, objects, size_bytes, dict(sorted(proofs.items())), None)


def _manifest(mark: Mark, note: BackupStart, parts: tuple[MarkPart, ...], result: BackupResult, clock: Clock) -> Backup:
    if sum(part.objects for part in parts) != mark.candidates:
        raise BackupIncompleteError(
            f"Only {sum(part.objects for part in parts):,} of {mark.candidates:,} objects of mark {mark.mark_id} were "
            "written to the contents of its backup",
            remedy="Back up the same mark again",
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
        server=note.server,
        keep_days=note.keep_days,
    ).sealed()


def _refuse_fewer_copies(store: ObjectStore, manifest: Backup, earlier: Backup | None) -> None:
    """Raise ``BackupError`` if the mark has a complete backup with more copies: the others may come back."""
    if earlier and earlier.objects > manifest.objects:
        raise BackupError(
            f"The backup of mark {manifest.mark_id} has {earlier.objects:,} copies by its manifest, but only "
            f"{manifest.objects:,} exist now, and the other objects do not exist any more. The manifest stays as it is",
            remedy="Bring the copies back from an earlier version or another copy of the backup location. To accept "
            f"the loss, delete {store.location.folder_url}{manifest.paths.manifest} and back up again",
        )


def _refuse_unseen_copies(store: ObjectStore, manifest: Backup) -> None:
    """Raise ``BackupError`` unless the process of the run sees the files that the workers wrote, by their sizes.

    Workers made the copies, compared them and recorded that. On a machine where the disk of the location is not
    mounted, all of it would be in a folder of that machine alone.
    """
    parts = [part.key for part in manifest.parts]
    lacking = sorted(set(parts) - store.stat_many(parts).keys())
    number, example = (len(lacking), lacking[0]) if lacking else lost_copies(store, manifest)
    if number:
        raise BackupError(
            f"{number:,} files of the backup of mark {manifest.mark_id} were written, but {store.location.folder_url} "
            f"does not show them, e.g. {example}",
            remedy="Give Spark's workers the same endpoint, credentials and mounts as the process of the run, and find "
            f"out whether something else deletes files there. Then run `{manifest.paths.command}` again",
        )


def failures(outcomes: DataFrame) -> list[dict[str, str | int]]:
    """Return the most frequent errors of a backup (columns ``schemas.BACKUP``), as ``frequent_errors`` does."""
    return frequent_errors(outcomes.where(F.col("outcome") == FAILED))
