"""Bring back what a sweep deleted, and prove that it is back.

Every object of a backup returns to its physical address, and is compared with its copy there; an object that exists
with other content is never overwritten.  Then what came back is looked for in the history: where a commit shows it,
it is read through the lakeFS API, and its bytes are compared with the checksum of the backup.  What no commit shows
(it was never committed, or only a deleted branch led to its commit) is proved at the store alone, and counted apart.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.references.commit_paths import commits_of, shown
from lakefs_gc.engine.records.backup import COPIED, Backup
from lakefs_gc.engine.records.restore_log import (
    RESTORED,
    begin_restore,
    ended_late,
    record_end,
    record_restored,
)
from lakefs_gc.engine.run import RunContext
from lakefs_gc.engine.spark.workers import Batches, driver_errors, worker, worker_store
from lakefs_gc.engine.undo.backup_contents import backed_up
from lakefs_gc.engine.undo.same_content import checksum_of, recorded_content, same_content
from lakefs_gc.engine.workspace.workspace import StageOutput
from lakefs_gc.errors import BackupError, LakeFSGCError, RestoreIncompleteError, StoreUnavailableError
from lakefs_gc.formats.addresses import is_candidate_address, normalize_namespace, spellings
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.location import StoreLocation

logger = logging.getLogger(__name__)

ALREADY_THERE = "already_there"
CONFLICT = "conflict"
LOST = "lost"
FAILED = "failed"
OUTCOMES = (RESTORED, ALREADY_THERE, CONFLICT, LOST, FAILED)
"""What happened to an object of a backup.

restored: copied back, and proved the same.  already_there: it exists, the same.  conflict: something else is at its
address, and stays.  lost: the place of the backups does not have it any more.  failed: see its error.
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
_ERRORS_SHOWN = 10


@dataclass
class RestoreResult:
    """What came back: objects and bytes by outcome, and how that was proved.

    ``read_through_lakefs`` objects were read by the API where a commit shows them; ``shown_by_no_commit`` ones are
    proved at the store alone; ``unreadable`` ones a commit shows, and the API did not give their content.
    ``unreadable_metadata`` is how many files of commits' content could not be read: what only they show counts as shown
    by no commit, and a prefix of paths does not find it.
    """

    mark_id: str
    repository: str
    objects: dict[str, int]
    size_bytes: dict[str, int]
    read_through_lakefs: int = 0
    shown_by_no_commit: int = 0
    unreadable: int = 0
    unreadable_metadata: int = 0
    errors: list[dict[str, str | int]] = field(default_factory=list)

    def raise_if_incomplete(self) -> None:
        """Raise ``RestoreIncompleteError`` unless everything asked for is back and was proved."""
        wrong = sum(self.objects[name] for name in (CONFLICT, LOST, FAILED))
        if wrong or self.unreadable:
            raise RestoreIncompleteError(
                f"{wrong} of {sum(self.objects.values())} objects of mark {self.mark_id} did not come back, and "
                f"{self.unreadable} that did cannot be read through lakeFS as they were",
                remedy="see their errors; mend the cause, and restore again: what is back is not copied again",
                result=asdict(self),
            )
        if self.unreadable_metadata:
            raise RestoreIncompleteError(
                f"{sum(self.objects.values())} objects of mark {self.mark_id} are back, but {self.unreadable_metadata} "
                "files that say what commits show are damaged or gone, so not all was proved through lakeFS",
                remedy="what is counted as restored is proved at the store; see the errors for the files.  If you "
                "restored a prefix of paths, restore without it, or with one of physical addresses",
                result=asdict(self),
            )


def restore(
    context: RunContext,
    backup: Backup,
    place: StoreLocation,
    store: StoreLocation,
    *,
    run_key: str,
    prefix: str = "",
    server_folders: tuple[str, ...] = (),
    sleep: Callable[[float], None] = time.sleep,
) -> RestoreResult:
    """Bring back the objects of a backup: all, or those with a prefix.

    ``prefix`` is one of logical paths, as any commit shows them, or of physical addresses: an object that fits either
    way comes back.  ``store`` is the namespace, ``server_folders`` how else the server spells it (``learn_folders``).
    What lies in the workspace under ``run_key`` meanwhile is removed in the end.  A sweep of the mark that is under
    way stops, and its approval is void.
    Raises ``BackupError`` when the repository is now somewhere else, ``RestoreIncompleteError`` when a delete ended
    that was taken for dead.
    """
    spark, server, workspace, cores = context.spark, context.server, context.workspace, context.cores
    namespace = normalize_namespace(server.repository(backup.repository).storage_namespace)
    if namespace != backup.namespace:
        raise BackupError(
            f"the backup is of {backup.repository} at {backup.namespace}, but the repository is at {namespace}",
            remedy="copy the backup's objects/ folder by hand to where you want it",
        )
    began_at = context.clock()
    records, dead = begin_restore(context.open_store(store), backup.mark_id, prefix, began_at, sleep)
    contents = backed_up(spark, backup, place)
    copies = contents.where(F.col("outcome") == COPIED).select("address", "size", "checksum")
    folders = (*spellings(namespace, store.url), *server_folders)
    places = shown(context.compute, store, folders, commits_of(server, backup.repository), copies)
    kept = workspace.keep(spark, run_key, "restore_shown", StageOutput(places, began_at)).dataframe
    where_shown = kept.where(F.col("address").isNotNull())
    wanted = _wanted(copies, where_shown, prefix)
    outcomes = wanted.repartition(cores * _TASKS_PER_CORE).mapInArrow(
        _bring_back(place, store, backup.paths.objects), _OUTCOME_SQL
    )
    done = workspace.keep(spark, run_key, "restore", StageOutput(outcomes, began_at)).dataframe
    with driver_errors():
        record_restored(done.where(F.col("outcome").isin(RESTORED, ALREADY_THERE)), store, records)
        record_end(spark, store, backup.mark_id, records, cores)
    result = _counted(backup, done)
    _count_unreadable_metadata(result, kept)
    _prove(result, done, where_shown, context.open_store(store), server)
    # Last of all: what was proved may be gone again.
    if ended_late(context.open_store(store), backup.mark_id, dead):
        raise RestoreIncompleteError(
            f"a sweep of mark {backup.mark_id} ended a delete while this restore was at work",
            remedy="the sweep has stopped now: restore again",
        )
    _keep_result(context.open_store(place), backup, result, prefix, context.clock())
    workspace.remove(run_key)
    return result


def _wanted(copies: DataFrame, where_shown: DataFrame, prefix: str) -> DataFrame:
    if not prefix:
        return copies
    by_path = where_shown.where(F.col("path").startswith(prefix)).select("address").distinct()
    fits = F.col("address").startswith(prefix) | F.coalesce("by_path", F.lit(False))
    return copies.join(by_path.withColumn("by_path", F.lit(True)), "address", "left").where(fits).drop("by_path")


# -- in the workers -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Copy:
    address: str
    size: int
    checksum: str


@worker
def _bring_back(batches: Batches, place: StoreLocation, store: StoreLocation, objects: str) -> Batches:
    source, namespace = worker_store(place), worker_store(store)
    for batch in batches:
        for start in range(0, batch.num_rows, _OBJECTS_PER_BATCH):
            chunk = [_Copy(**row) for row in batch.slice(start, _OBJECTS_PER_BATCH).to_pylist()]
            rows, down = [], []
            for copy, (outcome, error) in map_unordered(
                lambda copy: _bring_one_back(source, namespace, objects, copy), chunk, _COPIES_AT_ONCE
            ):
                message = error.message if isinstance(error, LakeFSGCError) else error
                rows.append({**asdict(copy), "outcome": outcome, "error": message})
                down += [error] if isinstance(error, StoreUnavailableError) else []
            if len(down) == len(chunk):
                raise down[0]  # no use in asking for each of a million objects
            yield pa.RecordBatch.from_pylist(rows, schema=_OUTCOME)


def _bring_one_back(
    source: ObjectStore, namespace: ObjectStore, objects: str, copy: _Copy
) -> tuple[str, LakeFSGCError | str]:
    address, key = copy.address, objects + copy.address
    if not is_candidate_address(address):  # what is in a backup was one; a file may say anything
        return FAILED, "no object of lakeFS can be there"
    try:
        # First of all: what is written to an address stays there, and would pass for what was deleted.
        kept = recorded_content(source, key, copy.size, copy.checksum)
        if kept is None:
            return LOST, "the place of the backups does not have it any more"
        proof, _, there = same_content(source, key, namespace, address, known=kept)
        if proof is None and there is None:
            copied = source.copy_to(key, namespace, address, if_absent=True)
            proof, _, _ = same_content(source, key, namespace, address, known=kept)
            if copied:
                return (RESTORED, "") if proof else (FAILED, "what came back is not the same as the copy")
    except LakeFSGCError as error:
        return FAILED, error
    # Without a copy of ours it may be the same all the same: the answer to one was lost, or another restore was here.
    return (ALREADY_THERE, "") if proof else (CONFLICT, "another object is at its address, and was left alone")


# -- the proof ------------------------------------------------------------------------------------------------


def _counted(backup: Backup, done: DataFrame) -> RestoreResult:
    result = RestoreResult(backup.mark_id, backup.repository, dict.fromkeys(OUTCOMES, 0), dict.fromkeys(OUTCOMES, 0))
    with driver_errors():
        for row in (
            done.groupBy("outcome").agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("size")).collect()
        ):
            result.objects[row["outcome"]] = row["objects"]
            result.size_bytes[row["outcome"]] = row["size"] or 0
        wrong = done.where(F.col("error") != "").groupBy("outcome", "error")
        examples = wrong.agg(F.count(F.lit(1)).alias("objects"), F.min("address").alias("for_example"))
        result.errors += [
            row.asDict() for row in examples.orderBy(F.desc("objects"), "error").limit(_ERRORS_SHOWN).collect()
        ]
    return result


def _count_unreadable_metadata(result: RestoreResult, places: DataFrame) -> None:
    unreadable = places.where(F.col("address").isNull())
    with driver_errors():
        [row] = unreadable.agg(F.count("path").alias("objects"), F.min("path").alias("for_example")).collect()
    result.unreadable_metadata = row["objects"]
    if row["objects"]:
        error = "it says what commits show, and is damaged or gone"
        result.errors.append({"outcome": "unreadable", "error": error, **row.asDict()})


def _prove(
    result: RestoreResult, done: DataFrame, where_shown: DataFrame, namespace: ObjectStore, server: LakeFSClient
) -> None:
    """Read through the API, at one place where a commit shows it, each object that is back."""
    back = done.where(F.col("outcome").isin(RESTORED, ALREADY_THERE))
    first = where_shown.groupBy("address").agg(F.min(F.struct("commit_id", "path")).alias("at"))
    located = back.join(first, "address", "left").select("address", "size", "checksum", "at.commit_id", "at.path")
    problems: Counter[str] = Counter()
    examples: dict[str, str] = {}

    def read(row: Row) -> str:
        return _read_through_lakefs(server, namespace, result.repository, row)

    def rows() -> Iterator[Row]:
        with driver_errors():
            yield from located.toLocalIterator()

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
        for problem, count in problems.most_common(_ERRORS_SHOWN)
    ]


def _read_through_lakefs(server: LakeFSClient, namespace: ObjectStore, repository: str, row: Row) -> str:
    """What is wrong with the object as the server shows it; empty when it has the content that was backed up."""
    if row["commit_id"] is None:
        return ""
    algorithm, _, expected = row["checksum"].partition(":")
    try:
        if algorithm not in ("md5", "sha256"):
            # The store's own kind of checksum: the object at the store is proved, so it is what to compare with.
            algorithm, expected = "sha256", checksum_of(namespace, row["address"], "sha256")
        digest, size_bytes = hashlib.new(algorithm, usedforsecurity=False), 0
        for piece in server.read_object(repository, row["commit_id"], row["path"]):
            digest.update(piece)
            size_bytes += len(piece)
    except LakeFSGCError as error:
        return error.message.replace(row["path"], "<path>").replace(row["commit_id"], "<commit>")
    if (size_bytes, digest.hexdigest()) != (row["size"], expected):
        return "lakeFS shows other content than was backed up"
    return ""


def _keep_result(place: ObjectStore, backup: Backup, result: RestoreResult, prefix: str, at: datetime) -> None:
    """A note beside the backup: who looks for an object later finds that it came back."""
    content = asdict(result) | {"ended_at": at.isoformat(), "prefix": prefix}
    key = f"{backup.paths.folder}restores/{at:%Y-%m-%dT%H-%M-%S-%f}.json"
    place.put(key, json.dumps(content, indent=2).encode())
