"""Stage 9, ``mark``: writes the durable decision which objects to delete (rule 9).

A mark is a folder in the namespace, in the layout that lakeFS's own Spark client reads (``formats.report``), with a
manifest beside it. The parts are written first, then the manifest, then ``summary.json``, which completes the mark.
The digest covers the manifest, and the manifest has the checksum of every part, so no part can change unnoticed.
"""

from __future__ import annotations

import hashlib
import logging
import platform
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from pyspark import TaskContext

from lakefs_gc import __version__
from lakefs_gc.config import MANUAL, Protections, SweepSettings
from lakefs_gc.engine.collect.listing.foreign_names import NAMED_AT_ROOT, NOT_LAKEFS, NOT_LAKEFS_BYTES
from lakefs_gc.engine.decide.matching.unmatched import UNLISTED_WRONG_SIZES, WRONG_SIZES
from lakefs_gc.engine.input_order import check_inputs
from lakefs_gc.engine.records.check import Check
from lakefs_gc.engine.records.mark import Mark, MarkPart, MarkPaths
from lakefs_gc.engine.records.mark_parts import part_content
from lakefs_gc.engine.records.stored_marks import read_mark
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.spark.scale import collect_in_arrow
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import InputOrderError, MarkError, ObjectNotFoundError
from lakefs_gc.formats.addresses import ADDRESS_READING, ADDRESSES_READ_AS
from lakefs_gc.formats.json_object import read_json_object
from lakefs_gc.formats.report import DELETED_SCHEMA, MADE_BY_LAKEFS_GC, Summary, deleted_parquet, deleted_text
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.freed_space import freed_space
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

logger = logging.getLogger(__name__)

_ROWS_PER_PART = 250_000
_PART = pa.schema(
    [("key", pa.string()), ("objects", pa.int64()), ("size_bytes", pa.int64())]
    + [(name, pa.string()) for name in ("sha256", "first")]
)


def write_mark(
    run: GCRun,
    *,
    candidates: Dataset,
    counts: dict[str, int],
    mark_id: str,
    checks: tuple[Check, ...] = (),
    rules: dict[str, Any] | None = None,
    repositories: Iterable[str] = (),
    unreadable: Iterable[str] = (),
    not_asked: Iterable[str] = (),
    mounts: Iterable[str] | None = (),
    protections: Protections | None = None,
    sweep_settings: SweepSettings | None = None,
    needs_backup: bool = False,
    longest_commit_minutes: float = 0.0,
    first_slice: str = "",
) -> Mark:
    """Write the mark of a run to the namespace, and return it.

    - ``mark_id``: the run id of the server's uncommitted list, as in lakeFS's own client
    - ``counts``: the figures of the earlier stages, for the report
    - ``checks``: the results of the checks
    - ``rules``: the retention rules that were applied; ``protections``: what was protected beyond them
    - ``repositories``: the other repositories of the server; ``unreadable``: those that could not be read;
      ``not_asked``: those that the settings exempt; ``mounts``: the prefixes of the mounts; None: unknown
    - ``sweep_settings``: which policy may sweep the mark without a person (default: none)
    - ``needs_backup``: whether an object may be swept only if the backup has a copy
    - ``longest_commit_minutes``: how long the sweep waits at least
    - ``first_slice``: the newest slice of the listing (``store_listing.FIRST_SLICE``), for lakeFS's own client

    ``created_at`` is the time on the store's clock (rule 2). Writing the same mark again changes nothing. Raises
    ``MarkError`` if another mark has this id, and ``InputOrderError`` if the run began again after the candidates were
    made.
    """
    check_inputs(run.run_key, candidates)
    if candidates.manifest.facts["cutoff"] != run.cutoff.isoformat():
        raise InputOrderError(
            f"The candidates of {run.run_key} have the cutoff {candidates.manifest.facts['cutoff']}, but the run has "
            f"{run.cutoff.isoformat()}: store_listing was materialized again",
            remedy="Materialize everything after store_listing again, or start a new run",
        )
    store = open_store(run.store)
    paths = MarkPaths.of(mark_id)
    if _is_written(store, paths, run.run_key, candidates.manifest.materialization_id):
        return read_mark(store, run.repository, run.namespace, mark_id)
    parts = _write_parts(run.store, paths, candidates)
    facts = candidates.manifest.facts
    expired = {"objects": facts["expired"], "size_bytes": facts["expired_bytes"]}
    never_committed = {
        "objects": candidates.manifest.rows - facts["expired"],
        "size_bytes": facts["size_bytes"] - facts["expired_bytes"],
    }
    mark = Mark(
        mark_id=mark_id,
        repository=run.repository,
        namespace=run.namespace,
        folder=paths.report.folder,
        made_by=MADE_BY_LAKEFS_GC,
        created_at=store.now(),
        cutoff=run.cutoff,
        digest="",
        parts=parts,
        candidates=sum(part.objects for part in parts),
        candidate_bytes=sum(part.size_bytes for part in parts),
        counts=counts,
        reasons={"expired": expired, "never_committed": never_committed},
        checks=checks,
        rules=rules,
        run=run.to_facts()
        | {
            "deleted_bytes": str(freed_space(store, run.namespace)),
            "repositories": sorted(repositories),
            "unreadable": sorted(unreadable),
            "not_asked": sorted(not_asked),
            **({} if mounts is None else {"mounts": sorted(mounts)}),
            "protections": protections.model_dump(mode="json") if protections else None,
            "sweep_policy": sweep_settings.policy if sweep_settings else MANUAL,
            "sweep_delay_hours": sweep_settings.policy_delay_hours if sweep_settings else 0.0,
            "needs_backup": needs_backup,
            "longest_commit_minutes": longest_commit_minutes,
            **{
                name: facts.get(name)
                for name in (NAMED_AT_ROOT, NOT_LAKEFS, NOT_LAKEFS_BYTES, WRONG_SIZES, UNLISTED_WRONG_SIZES)
            },
        },
        inputs={"candidates": candidates.manifest.materialization_id, **candidates.manifest.inputs},
        versions={
            "lakefs_gc": __version__,
            ADDRESSES_READ_AS: ADDRESS_READING,
            "lakefs": run.server_version,
            "pyspark": pyspark.__version__,
            "python": platform.python_version(),
        },
    )
    if mark.candidates != candidates.manifest.rows:
        raise MarkError(
            f"{mark.candidates:,} objects were written to the mark, but there are {candidates.manifest.rows:,} "
            "candidates",
            remedy="Start a new run",
        )
    _refuse_parts_elsewhere(store, mark)
    mark = mark.sealed()
    store.put(paths.manifest, mark.to_json())
    store.put(paths.summary, _summary(mark, run, first_slice).to_json())
    logger.info("mark %s of repository %s: %s objects", mark_id, run.repository, f"{mark.candidates:,}")
    return mark


def _refuse_parts_elsewhere(store: ObjectStore, mark: Mark) -> None:
    """Raise ``MarkError`` if this store lacks a part: then the workers that wrote the parts have another one."""
    keys = [part.key for part in mark.parts]
    if missing := sorted(set(keys) - store.stat_many(keys).keys()):
        raise MarkError(
            f"{len(missing):,} of {len(keys):,} files of mark {mark.mark_id} were written, but "
            f"{store.location.folder_url} does not show them, e.g. {missing[0]}",
            remedy="Give Spark's workers the same endpoint, credentials and mounts as the process of the run, then "
            "start a new run",
        )


def _is_written(store: ObjectStore, paths: MarkPaths, run_key: str, candidates_id: str) -> bool:
    """Return whether the mark of these candidates is complete. If not, the files of an unfinished attempt are deleted.

    Raises ``MarkError`` if the id already has a mark of other candidates, and as ``_clear_unfinished`` does.
    """
    try:
        store.read(paths.summary)  # the answer to a HEAD has no words that show that it is the store's
    except ObjectNotFoundError:
        _clear_unfinished(store, paths)
        return False
    try:
        earlier = read_json_object(store.read(paths.manifest), paths.manifest, "a mark manifest")
    except ObjectNotFoundError:
        earlier = {}
    if earlier.get("inputs", {}).get("candidates") != candidates_id:
        raise MarkError(
            f"Run {run_key} already has a mark in {paths.report.folder}, which was made from other candidates",
            remedy="Start a new run. A mark is never replaced, because it may be approved",
        )
    return True


def _clear_unfinished(store: ObjectStore, paths: MarkPaths) -> None:
    """Delete the files of an unfinished attempt, so that none of them is read as a part of this mark.

    Raises ``MarkError`` if a file shows that the mark was complete, or if one cannot be deleted.
    """
    leftovers = [key for batch in store.list(paths.report.folder) for key in batch.column("address").to_pylist()]
    # Approvals, ledgers, claims, restores and so on: all of them are written after the summary.
    if later := sorted(key for key in leftovers if key == paths.summary or key.startswith(paths.folder)):
        raise MarkError(
            f"{paths.summary} does not exist, but the mark was complete once: {len(later):,} files in its folder were "
            f"written with it or later, e.g. {later[0].removeprefix(paths.report.folder)}",
            remedy="Find out what deleted the file, or what else answers for the store, such as a proxy or a cache. "
            "Then start a new run. What is in the folder is kept",
        )
    failed = [deletion.key for deletion in store.delete_many(leftovers) if deletion.error]
    if failed:
        raise MarkError(
            f"{len(failed):,} files of an unfinished mark in {paths.report.folder} cannot be deleted, e.g. {failed[0]}",
            remedy="Grant permission to delete objects below _lakefs/retention/gc/, or start a new run",
        )


def _write_parts(store: StoreLocation, paths: MarkPaths, candidates: Dataset) -> tuple[MarkPart, ...]:
    count = -(-candidates.manifest.rows // _ROWS_PER_PART)
    if count == 0:
        return (_write_empty_part(open_store(store), paths),)
    # Sorted, so that a part of the mark covers few slices: the sweep can list them instead of one HEAD per object.
    ordered = candidates.dataframe.repartitionByRange(count, "address").sortWithinPartitions("address")
    rows = collect_in_arrow(
        ordered, _write_part(store, paths), "key string, objects long, size_bytes long, sha256 string, first string"
    )
    rows.sort(key=lambda row: row["first"])
    return tuple(MarkPart(row["key"], row["objects"], row["size_bytes"], row["sha256"]) for row in rows)


def _write_empty_part(store: ObjectStore, paths: MarkPaths) -> MarkPart:
    """Write a part without objects: lakeFS's client cannot read a folder without files."""
    key = f"{paths.report.deleted}part-00000.snappy.parquet"
    content = deleted_parquet(pa.RecordBatch.from_pylist([], schema=DELETED_SCHEMA))
    store.put(key, content)
    return MarkPart(key, 0, 0, hashlib.sha256(content).hexdigest())


@worker
def _write_part(batches: Batches, store: StoreLocation, paths: MarkPaths) -> Batches:
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return
    table = pa.Table.from_batches(filled)
    context = TaskContext.get()
    name = f"part-{context.partitionId() if context else 0:05d}"
    content = part_content(table)
    part = MarkPart(
        key=f"{paths.report.deleted}{name}.snappy.parquet",
        objects=table.num_rows,
        size_bytes=pc.sum(table["size"]).as_py(),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    namespace = worker_store(store)
    namespace.put(part.key, content)
    namespace.put(f"{paths.report.deleted_text}{name}.txt", deleted_text(table["address"].combine_chunks()))
    yield pa.RecordBatch.from_pylist([asdict(part) | {"first": table["address"][0].as_py()}], schema=_PART)


def _summary(mark: Mark, run: GCRun, first_slice: str) -> Summary:
    return Summary(
        run_id=mark.mark_id,
        success=True,
        first_slice=first_slice,
        start_time=run.started_at,
        cutoff_time=mark.cutoff,
        num_deleted_objects=mark.candidates,
        made_by=MADE_BY_LAKEFS_GC,
    )
