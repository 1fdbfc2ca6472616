"""Find the commits and paths that show an object, from its physical address.

The commits are the ones that the API can list, from each branch and tag over all parents. A commit that only a deleted
branch reached is not listed. Its objects can be read through lakeFS only by its id. Their paths are in its metadata
files, as long as these exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.references.active_ranges import METADATA_FOLDER
from lakefs_gc.engine.collect.references.commit_graph import CommitGraph
from lakefs_gc.engine.spark.compat import known_table, to_arrow
from lakefs_gc.engine.spark.compute import Compute
from lakefs_gc.engine.spark.local_rows import columns_of, least_of, local_rows, rows_without, union_of
from lakefs_gc.engine.spark.scale import in_arrow, is_small, spread
from lakefs_gc.engine.spark.workers import Batches, driver_errors, worker, worker_store
from lakefs_gc.engine.workspace.named_files import read_named_file
from lakefs_gc.errors import CorruptFileError, ObjectNotFoundError
from lakefs_gc.formats.addresses import entries_below
from lakefs_gc.formats.ranges import TableKind, known_kind, read_metarange, read_range
from lakefs_gc.formats.sstable.reader import TableData, read_properties
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.location import StoreLocation

T = TypeVar("T")

COMMIT_PATHS = "address string, path string, commit_id string"
"""An address, and a path at which a commit shows it. If ``address`` is null, ``path`` is an unreadable file.

``commit_id`` is null if the path is in a file that no listed commit names.
"""

_NO_ENTRIES = pa.record_batch([pa.array([], pa.string()), pa.array([], pa.binary())], names=["address", "key"])
_READS_AT_ONCE = 8
_TASKS_PER_CORE = 4
_MAX_COMMITS = 5_000_000  # for the objects of further commits, the proof at the store is enough


def commits_of(server: LakeFSClient, repository: str) -> dict[str, str]:
    """Return metarange id to one commit id, for all commits that a branch or a tag reaches.

    Raises ``IncompleteAnswerError`` as ``LakeFSClient.heads_of`` does.
    """
    graph = CommitGraph(_MAX_COMMITS)
    tagged = (commit_id for _, commit_id in server.tags(repository))
    graph.add_history_of(server, repository, chain(server.heads_of(repository).values(), tagged))
    return {commit.meta_range_id: commit.id for commit in graph.commits.values() if commit.meta_range_id}


def paths_in_commits(
    compute: Compute,
    store: StoreLocation,
    folders: tuple[str, ...],
    commits: Mapping[str, str],
    addresses: DataFrame,
    *,
    skipped: DataFrame | None = None,
    others: DataFrame | None = None,
    most_ranges: int | None = None,
) -> DataFrame:
    """Return every path at which ``commits`` show one of ``addresses`` (column ``address``). Columns: ``COMMIT_PATHS``.

    ``commits`` is the result of ``commits_of``, and ``folders`` has the prefixes of full addresses in the namespace.
    The result has one row for each address and path, with one commit, and one row for each damaged or missing file:
    files of expired commits may be missing. Reads each metarange and each range once, but none of ``skipped`` (column
    ``range_id``), and of more than ``most_ranges`` a sample.

    ``others`` (column ``range_id``) are metadata files of any kind. Those that no commit names are read as well: they
    may be ranges of commits that only a deleted branch reached. Their rows have no commit.
    """
    cores = compute.cores
    frame = local_rows(compute.session, list(commits.items()), "metarange_id string, commit_id string")
    named = in_arrow(
        spread(frame, cores), _read_metaranges(store), "range_id string, unreadable string, commit_id string"
    )
    ranges = least_of(named, ("range_id", "unreadable"), "commit_id")
    if skipped is not None:
        ranges = rows_without(ranges, columns_of(skipped, "range_id"), "range_id")
    if others is not None:
        used = local_rows(compute.session, [(metarange,) for metarange in commits], "range_id string")
        unnamed = rows_without(others, union_of([columns_of(ranges, "range_id"), used]), "range_id")
        ranges = ranges.unionByName(unnamed.select("range_id"), allowMissingColumns=True)
    known_ranges = known_table(ranges)
    if most_ranges is not None and (known_ranges is None or known_ranges.num_rows > most_ranges):
        ranges = ranges.orderBy(F.xxhash64("range_id"), "range_id").limit(most_ranges)
    few = None
    if is_small(compute.session):
        with driver_errors():
            few = to_arrow(columns_of(addresses, "address"))["address"].combine_chunks()
    entries = in_arrow(spread(ranges, cores * _TASKS_PER_CORE), _read_ranges(store, folders, few), COMMIT_PATHS)
    if few is None:
        wanted = addresses.select("address", F.lit(True).alias("wanted")).distinct()
        entries = entries.join(wanted, "address", "left").where(F.col("wanted") | F.col("address").isNull())
    return least_of(entries, ("address", "path"), "commit_id")


@worker
def _read_metaranges(batches: Batches, store: StoreLocation) -> Batches:
    for batch in batches:
        commit_of = dict(zip(*(batch.column(c).to_pylist() for c in ("metarange_id", "commit_id")), strict=True))
        for file_id, ids in _read_each(worker_store(store), commit_of, _ranges_of):
            unreadable = METADATA_FOLDER + file_id if ids is None else None
            ids = pa.array([None], pa.string()) if ids is None else ids
            facts = (pa.scalar(fact, pa.string()) for fact in (unreadable, commit_of[file_id]))
            columns = [ids, *(pa.repeat(fact, len(ids)) for fact in facts)]
            yield pa.record_batch(columns, names=["range_id", "unreadable", "commit_id"])


@worker
def _read_ranges(
    batches: Batches, store: StoreLocation, folders: tuple[str, ...], few: pa.StringArray | None
) -> Batches:
    """``few``: the only addresses that matter, if they are few enough for the memory of a worker."""

    def entries_of(data: TableData, key: str) -> pa.RecordBatch:
        entries = entries_below(read_range(data, key, keys=True), folders)
        return entries if few is None else entries.filter(pc.is_in(entries["address"], few))

    def entries_of_any(data: TableData, key: str) -> pa.RecordBatch:
        is_range = known_kind(read_properties(data, key), key) is TableKind.RANGE
        return entries_of(data, key) if is_range else _NO_ENTRIES

    for batch in batches:
        commit_of = dict(zip(*(batch.column(c).to_pylist() for c in ("range_id", "commit_id")), strict=True))
        failed = [(row["unreadable"], row["commit_id"]) for row in batch.to_pylist() if row["unreadable"]]
        commit_of.pop(None, None)
        named = [file_id for file_id, commit_id in commit_of.items() if commit_id]
        read_named = _read_each(worker_store(store), named, entries_of)
        read_others = _read_each(worker_store(store), commit_of.keys() - named, entries_of_any)
        for file_id, entries in chain(read_named, read_others):
            if entries is None:
                failed.append((METADATA_FOLDER + file_id, commit_of[file_id]))
                continue
            # The API cannot name a path that is not valid UTF-8.
            paths = pa.array([_text(path) for path in entries.column("key").to_pylist()], pa.string())
            columns = [
                entries.column("address"),
                paths,
                pa.repeat(pa.scalar(commit_of[file_id], pa.string()), len(paths)),
            ]
            yield pa.record_batch(columns, names=["address", "path", "commit_id"]).filter(pc.is_valid(paths))
        if failed:
            files, commits = zip(*failed, strict=True)
            columns = [pa.nulls(len(files), pa.string()), pa.array(files), pa.array(commits, pa.string())]
            yield pa.record_batch(columns, names=["address", "path", "commit_id"])


def _ranges_of(data: TableData, key: str) -> pa.Array:
    return read_metarange(data, key).column("range_id")


def _read_each(
    store: ObjectStore, file_ids: Iterable[str], read: Callable[[TableData, str], T]
) -> Iterator[tuple[str, T | None]]:
    """Yield the result of ``read`` for each metadata file. None for a damaged or missing file."""

    def attempt(file_id: str) -> T | None:
        key = METADATA_FOLDER + file_id
        try:
            return read(read_named_file(store, key), key)
        except (ObjectNotFoundError, CorruptFileError):
            return None

    return map_unordered(attempt, file_ids, _READS_AT_ONCE)


def _text(path: bytes) -> str | None:
    try:
        return path.decode()
    except UnicodeDecodeError:
        return None
