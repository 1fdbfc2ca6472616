"""Restores what a sweep deleted from its backup, and proves that it is restored.

Every object of a backup is copied back to its physical address and compared with its copy. An object that exists with
other content is never overwritten. Then each restored object is searched in the history: if a commit shows it, it is
read through the lakeFS API, and its bytes are compared with the checksum of the backup. An object that no commit shows
(it was never committed, or only a deleted branch led to its commit) is proved at the store alone and counted
separately.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from lakefs_gc.engine.records.backups.manifest import ALREADY_GONE, COPIED, Backup
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.restore_log import (
    RESTORED,
    begin_restore,
    record_restore_end,
    record_restored,
)
from lakefs_gc.engine.records.restore_record import RestoreRecord
from lakefs_gc.engine.run import RunContext, new_run_key
from lakefs_gc.engine.spark.frequent_errors import frequent_errors
from lakefs_gc.engine.spark.witness import Witness, refuse_other_workers, write_witness
from lakefs_gc.engine.spark.workers import Batches, driver_errors, worker, worker_store
from lakefs_gc.engine.undo.backup_contents import backed_up_objects
from lakefs_gc.engine.undo.last_look import refuse_deleted_meanwhile
from lakefs_gc.engine.undo.proved_store import refuse_mirror
from lakefs_gc.engine.undo.requested import count_without_path, paths_of_copies, requested
from lakefs_gc.engine.undo.restore_source import RestoreSource, refuse_pruning
from lakefs_gc.engine.undo.same_content import checksum_of, recorded_content, same_content
from lakefs_gc.engine.undo.unfinished import remove_unfinished
from lakefs_gc.engine.workspace.workspace import StageOutput
from lakefs_gc.errors import LakeFSGCError, RestoreIncompleteError, StoreUnavailableError
from lakefs_gc.formats.addresses import all_spellings
from lakefs_gc.formats.candidate_addresses import is_candidate_address
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.local import SCHEME
from lakefs_gc.storage.location import StoreLocation

logger = logging.getLogger(__name__)

ALREADY_THERE = "already_there"
CONFLICT = "conflict"
LOST = "lost"
FAILED = "failed"
OUTCOMES = (RESTORED, ALREADY_THERE, CONFLICT, LOST, FAILED)
"""The outcome of an object of a backup.

- restored: copied back, and proved to be the same
- already_there: exists with the same content
- conflict: another object exists at its address, and is not overwritten
- lost: the backup location no longer has the copy
- failed: see its error
"""

_OUTCOME = pa.schema(
    [pa.field("address", pa.string()), pa.field("size", pa.int64())]
    + [pa.field(name, pa.string()) for name in ("outcome", "checksum", "error")]
)
_OUTCOME_SQL = "address string, size long, outcome string, checksum string, error string"
_COPIES_AT_ONCE = 8
_OBJECTS_PER_BATCH = 200
_TASKS_PER_CORE = 2
_API_READS_AT_ONCE = 4
_PROBLEMS_SHOWN = 10


@dataclass
class RestoreResult:
    """The objects and bytes of a restore by outcome, and how the outcomes were proved.

    ``record_url`` is the file beside the backup that has this result, and ``digest`` is the digest of that file.
    ``prefix`` is what was requested; empty: all. The other fields count objects, except ``unreadable_metadata``:

    - ``read_through_lakefs``: read through the API, where a commit shows them
    - ``shown_by_no_commit``: proved at the store alone
    - ``unreadable``: a commit shows them, but the API did not return their content
    - ``unreadable_metadata``: ranges and metaranges that could not be read. Objects that only they refer to count as
      shown by no commit, and are not restored by a prefix of paths
    - ``without_copy``: objects of the mark of which the backup has no copy, because they did not exist
    - ``not_requested``: objects of the backup outside the prefix, and those that are ``unlisted``
    - ``unlisted``: objects that the manifest of the backup counts, and its contents do not list
    - ``without_path``: those not requested that no readable metadata file has: they were not committed, or the files
      of their commits are gone. Their paths may have had the prefix
    """

    mark_id: str
    repository: str
    objects: dict[str, int]
    size_bytes: dict[str, int]
    read_through_lakefs: int = 0
    shown_by_no_commit: int = 0
    unreadable: int = 0
    unreadable_metadata: int = 0
    without_copy: int = 0
    not_requested: int = 0
    without_path: int = 0
    unlisted: int = 0
    prefix: str = ""
    errors: list[dict[str, str | int]] = field(default_factory=list)
    record_url: str = ""
    digest: str = ""

    @property
    def checksums_compared(self) -> int:
        """Return how many objects were compared with the checksum of the backup, and are the same."""
        return self.objects[RESTORED] + self.objects[ALREADY_THERE]

    @property
    def missing(self) -> int:
        """Return how many of the requested objects do not exist with the content of the backup."""
        return sum(self.objects[name] for name in (CONFLICT, LOST, FAILED))

    @property
    def _backed_up(self) -> int:
        return sum(self.objects.values()) + self.not_requested

    def raise_if_incomplete(self) -> None:
        """Raise ``RestoreIncompleteError`` unless every requested object is restored and proved.

        Also if the backup has nothing to restore, although its mark has objects.
        """
        if self.without_copy and not sum(self.objects.values()) + self.not_requested:
            raise RestoreIncompleteError(
                f"Nothing was restored: the backup of mark {self.mark_id} has no copy of its {self.without_copy:,} "
                "objects, which did not exist when it was made",
                remedy="Look for copies in versions of the storage namespace, in another backup, or in a backup of the "
                "store itself",
                result=asdict(self),
            )
        if self.unlisted:
            raise RestoreIncompleteError(
                f"{sum(self.objects.values()):,} objects of mark {self.mark_id} are restored or have an error, but the "
                f"contents of its backup are of another time: its manifest counts {self._backed_up:,} copies, and they "
                f"list {self._backed_up - self.unlisted:,}",
                remedy="The copies are in the folder objects/ of the backup, under their addresses: copy those that "
                "are missing manually (docs/guides/backup-and-restore.md)",
                result=asdict(self),
            )
        missing, unreadable = self.missing, self.unreadable
        if self.not_requested and not sum(self.objects.values()):
            raise RestoreIncompleteError(
                f"Nothing is restored: none of the {self.not_requested:,} objects of the backup of mark {self.mark_id} "
                "has the prefix",
                remedy="Check the prefix: paths begin without a slash, and physical addresses like in the list of the "
                "mark (`lakefs-gc report --list`)",
                result=asdict(self),
            )
        if missing or unreadable:
            raise RestoreIncompleteError(
                f"{missing:,} of {sum(self.objects.values()):,} objects of mark {self.mark_id} were not restored, and "
                f"{unreadable:,} restored ones cannot be read through lakeFS with their content",
                remedy="Read the errors, fix the cause and restore again: restored objects are not copied again",
                result=asdict(self),
            )
        if self.unreadable_metadata:
            raise RestoreIncompleteError(
                f"{sum(self.objects.values()):,} objects of mark {self.mark_id} are restored, but "
                f"{self.unreadable_metadata:,} ranges or metaranges are damaged or missing, so not all objects were "
                "proved through lakeFS",
                remedy="Restored objects are proved at the store; the errors name the files. If you restored a prefix "
                "of paths, restore without a prefix, or with a prefix of physical addresses",
                result=asdict(self),
            )


def restore(
    context: RunContext,
    source: RestoreSource,
    *,
    prefix: str = "",
    sleep: Callable[[float], None] = time.sleep,
) -> RestoreResult:
    """Restore the objects of a backup: all, or those with a prefix.

    ``prefix`` is a prefix of logical paths, as any metadata file has them, or of physical addresses: an object that
    matches either is restored. The datasets in the workspace are removed at the end. A sweep of the mark that is in
    progress stops, and its approval becomes void.

    Raises ``RestoreIncompleteError`` if something may have deleted objects during the restore, ``BackupError`` while a
    pruning may delete copies, and ``StorageError`` if a worker has another store at the namespace than this process.
    Raises as ``refuse_mirror`` before anything is written, and the sweep stopped.
    """
    backup, location, store = source.backup, source.location, source.store
    server, workspace = context.server, context.workspace
    spark, cores = context.spark, context.cores
    began_at = context.clock()
    run_key = f"{new_run_key(backup.repository, began_at)}-restore"
    namespace = context.open_store(store)
    refuse_mirror(context, backup.repository, namespace, "restore again")
    begun = begin_restore(namespace, backup.mark_id, prefix, began_at, sleep)
    refuse_pruning(context.open_store(location), backup)
    if store.url.startswith(SCHEME):  # elsewhere, an upload that did not end may be of lakeFS
        remove_unfinished(namespace, "", namespace.now())
    originals = write_witness(namespace, MarkPaths.of(backup.mark_id).passes)
    refuse_other_workers(spark, originals, namespace, cores)  # a replica has the witness, too
    contents = backed_up_objects(spark, backup, location)
    copies = contents.where(F.col("outcome") == COPIED).select("address", "size", "checksum")
    folders = all_spellings(backup.namespace, store.url, source.server_folders)
    paths = paths_of_copies(context, backup.repository, store, folders, copies, prefix)
    located = workspace.keep(spark, run_key, "restore_shown", StageOutput(paths, began_at)).dataframe
    known = located.where(F.col("address").isNotNull())
    wanted = requested(copies, known, prefix)
    outcomes = wanted.repartition(cores * _TASKS_PER_CORE, "address").mapInArrow(
        _restore_objects(location, originals, backup.paths.objects), _OUTCOME_SQL
    )
    done = workspace.keep(spark, run_key, "restore", StageOutput(outcomes, began_at)).dataframe
    there = done.where(F.col("outcome").isin(RESTORED, ALREADY_THERE))
    with driver_errors():
        record_restored(there, originals, begun.records)
    result = _counted(backup, done, prefix)
    with driver_errors():
        result.unlisted = backup.objects - copies.count()
    result.without_path = count_without_path(copies, known, prefix)
    _count_unreadable_metadata(result, located)
    _prove(result, done, known.where(F.col("commit_id").isNotNull()), context.open_store(store), server)
    # At the very end: what was proved may have been deleted since.
    refuse_deleted_meanwhile(there, originals, context.open_store(store), backup.mark_id, begun)
    with driver_errors():
        record_restore_end(spark, store, backup.mark_id, begun.records, cores)
    _write_record(context.open_store(location), backup, result, prefix, context.clock())
    workspace.remove(run_key)
    return result


# -- in the workers -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Copy:
    address: str
    size: int
    checksum: str


@worker
def _restore_objects(batches: Batches, location: StoreLocation, originals: Witness, objects: str) -> Batches:
    source, namespace = worker_store(location), originals.open_store()
    for batch in batches:
        for start in range(0, batch.num_rows, _OBJECTS_PER_BATCH):
            chunk = [_Copy(**row) for row in batch.slice(start, _OBJECTS_PER_BATCH).to_pylist()]
            rows, unavailable = [], []
            for copy, (outcome, error) in map_unordered(
                lambda copy: _restore_one(source, namespace, objects, copy), chunk, _COPIES_AT_ONCE
            ):
                message = error.message if isinstance(error, LakeFSGCError) else error
                rows.append({**asdict(copy), "outcome": outcome, "error": message})
                unavailable += [error] if isinstance(error, StoreUnavailableError) else []
            if len(unavailable) == len(chunk):
                raise unavailable[0]  # the store is down: do not retry each of a million objects
            if any(row["outcome"] in (RESTORED, ALREADY_THERE) for row in rows):
                # Where a disk is gone since the first look, they are in the folder that is left of it.
                originals.refuse_other(namespace)
            yield pa.RecordBatch.from_pylist(rows, schema=_OUTCOME)


def _restore_one(
    source: ObjectStore, namespace: ObjectStore, objects: str, copy: _Copy
) -> tuple[str, LakeFSGCError | str]:
    address, key = copy.address, objects + copy.address
    if not is_candidate_address(address):  # every backed-up object has such an address, but a file may be forged
        return FAILED, "lakeFS never stores an object at this address"
    try:
        # Before any write: a wrong copy would stay at the address and pass for the deleted object.
        recorded = recorded_content(source, key, copy.size, copy.checksum)
        if recorded is None:
            return LOST, "the backup location no longer has the copy"
        proof, _, existing = same_content(source, key, namespace, address, known=recorded)
        if proof is None and existing is None:
            copied = source.copy_to(key, namespace, address, if_absent=True)
            proof, _, _ = same_content(source, key, namespace, address, known=recorded)
            if copied:
                return (RESTORED, "") if proof else (FAILED, "the restored object differs from the copy")
    except LakeFSGCError as error:
        return FAILED, error
    # Not copied here and still the same: the answer to an earlier copy was lost, or another restore copied it.
    return (ALREADY_THERE, "") if proof else (CONFLICT, "another object exists at this address and was not overwritten")


# -- the proof ------------------------------------------------------------------------------------------------


def _counted(backup: Backup, done: DataFrame, prefix: str) -> RestoreResult:
    nothing = dict.fromkeys(OUTCOMES, 0)
    result = RestoreResult(backup.mark_id, backup.repository, {**nothing}, {**nothing}, prefix=prefix)
    with driver_errors():
        for row in (
            done.groupBy("outcome").agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("size")).collect()
        ):
            result.objects[row["outcome"]] = row["objects"]
            result.size_bytes[row["outcome"]] = row["size"] or 0
    result.without_copy = backup.outcomes[ALREADY_GONE]
    result.not_requested = backup.objects - sum(result.objects.values())
    result.errors += frequent_errors(done.where(F.col("error") != ""), by=("outcome", "error"))
    return result


def _count_unreadable_metadata(result: RestoreResult, located: DataFrame) -> None:
    unreadable = located.where(F.col("address").isNull())
    with driver_errors():
        [row] = unreadable.agg(F.count("path").alias("objects"), F.min("path").alias("for_example")).collect()
    result.unreadable_metadata = row["objects"]
    if row["objects"]:
        error = "a range or metarange of a commit is damaged or missing"
        result.errors.append({"outcome": "unreadable", "error": error, **row.asDict()})


def _prove(
    result: RestoreResult, done: DataFrame, where_shown: DataFrame, namespace: ObjectStore, server: LakeFSClient
) -> None:
    """Read each restored object through the API, at one path where a commit shows it, and count the results."""
    restored = done.where(F.col("outcome").isin(RESTORED, ALREADY_THERE))
    first = where_shown.groupBy("address").agg(F.min(F.struct("commit_id", "path")).alias("at"))
    paths = restored.join(first, "address", "left").select("address", "size", "checksum", "at.commit_id", "at.path")
    problems: Counter[str] = Counter()
    examples: dict[str, str] = {}

    def read(row: Row) -> str:
        return _read_through_lakefs(server, namespace, result.repository, row)

    def rows() -> Iterator[Row]:
        with driver_errors():
            yield from paths.toLocalIterator()

    for row, problem in map_unordered(read, rows(), _API_READS_AT_ONCE):
        if row["commit_id"] is None:
            result.shown_by_no_commit += 1
        elif problem:
            result.unreadable += 1
            problems[problem] += 1
            examples.setdefault(problem, f"{row['path']} of {row['commit_id']}")
        else:
            result.read_through_lakefs += 1
    result.errors += [
        {"outcome": "unreadable", "error": problem, "objects": count, "for_example": examples[problem]}
        for problem, count in problems.most_common(_PROBLEMS_SHOWN)
    ]


def _read_through_lakefs(server: LakeFSClient, namespace: ObjectStore, repository: str, row: Row) -> str:
    """Return the problem of reading an object through lakeFS; empty if its content is the one that was backed up."""
    if row["commit_id"] is None:
        return ""
    algorithm, _, expected = row["checksum"].partition(":")
    try:
        if algorithm not in ("md5", "sha256"):
            # A checksum that only the store computes: compare with the object in the store, which is already proved.
            algorithm, expected = "sha256", checksum_of(namespace, row["address"], "sha256")
        digest, size_bytes = hashlib.new(algorithm, usedforsecurity=False), 0
        for piece in server.read_object(repository, row["commit_id"], row["path"]):
            digest.update(piece)
            size_bytes += len(piece)
    except LakeFSGCError as error:
        return error.message.replace(row["path"], "<path>").replace(row["commit_id"], "<commit>")
    if (size_bytes, digest.hexdigest()) != (row["size"], expected):
        return "lakeFS returns other content than was backed up"
    return ""


def _write_record(location: ObjectStore, backup: Backup, result: RestoreResult, prefix: str, at: datetime) -> None:
    """Write the result beside the backup, so that it can be shown later, and note where."""
    content = RestoreRecord(
        mark_id=backup.mark_id,
        repository=backup.repository,
        mark_digest=backup.mark_digest,
        backup_digest=backup.digest,
        prefix=prefix,
        ended_at=at,
        objects=result.objects,
        size_bytes=result.size_bytes,
        checksums_compared=result.checksums_compared,
        read_through_lakefs=result.read_through_lakefs,
        shown_by_no_commit=result.shown_by_no_commit,
        unreadable=result.unreadable,
        unreadable_metadata=result.unreadable_metadata,
        without_copy=result.without_copy,
        not_requested=result.not_requested,
        without_path=result.without_path,
        errors=tuple(result.errors),
    ).sealed()
    key = f"{backup.paths.folder}restores/{at:%Y-%m-%dT%H-%M-%S-%f}.json"
    location.put(key, content.to_json())
    result.record_url, result.digest = f"{location.location.folder_url}{key}", content.digest
