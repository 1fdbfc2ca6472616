"""Where commits show objects: the way back from a physical address to a commit and a path.

The commits are those that the API can list, from each branch and tag over all parents.  A commit that only a deleted
branch led to is not among them, and what only it shows cannot be read through lakeFS by anybody who does not know
its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.active_ranges import METADATA_FOLDER
from lakefs_gc.engine.commit_graph import CommitGraph
from lakefs_gc.engine.local_rows import local_rows
from lakefs_gc.engine.workers import Batches, worker, worker_store
from lakefs_gc.formats.addresses import entries_below, spellings
from lakefs_gc.formats.ranges import read_metarange, read_range
from lakefs_gc.server import LakeFSServer
from lakefs_gc.storage.base import StoreLocation

SHOWN = "address string, path string, commit_id string"
"""An address, and one place where a commit shows it; ``path`` is the logical path."""

_READS_AT_ONCE = 8
_TASKS_PER_CORE = 4
_MOST_COMMITS = 5_000_000  # of what is beyond, the proof at the store is enough


def commits_of(server: LakeFSServer, repository: str) -> dict[str, str]:
    """Metarange id to one commit that has it, of all commits that a branch or a tag leads to."""
    graph = CommitGraph(_MOST_COMMITS)
    heads = chain(server.branch_heads(repository), server.tags(repository))
    graph.add_history_of(server, repository, (commit_id for _, commit_id in heads))
    return {commit.meta_range_id: commit.id for commit in graph.commits.values() if commit.meta_range_id}


def shown(
    spark: SparkSession,
    store: StoreLocation,
    namespace: str,
    commits: Mapping[str, str],
    addresses: DataFrame,
    cores: int,
) -> DataFrame:
    """Every place where one of ``commits`` shows one of ``addresses`` (column ``address``).  Columns: ``SHOWN``.

    ``commits`` is what ``commits_of`` gives.  One row for each address and path, with one commit.  Reads each metarange
    and each range once.  Raises ``CorruptRangeError``, ``ObjectNotFoundError``.
    """
    frame = local_rows(spark, list(commits.items()), "metarange_id string, commit_id string")
    ranges = (
        frame.repartition(cores)
        .mapInArrow(_read_metaranges(store), "range_id string, commit_id string")
        .groupBy("range_id")
        .agg(F.min("commit_id").alias("commit_id"))
    )
    entries = ranges.repartition(cores * _TASKS_PER_CORE).mapInArrow(
        _read_ranges(store, spellings(namespace, store.url)), SHOWN
    )
    return (
        entries.join(addresses.select("address"), "address", "left_semi")
        .groupBy("address", "path")
        .agg(F.min("commit_id").alias("commit_id"))
    )


@worker
def _read_metaranges(batches: Batches, store: StoreLocation) -> Batches:
    for batch in batches:
        commit_of = dict(zip(*(batch.column(c).to_pylist() for c in ("metarange_id", "commit_id")), strict=True))
        keys = [METADATA_FOLDER + metarange_id for metarange_id in commit_of]
        for key, data in worker_store(store).read_many(keys, concurrency=_READS_AT_ONCE):
            ids = read_metarange(data, key).column("range_id")
            commit_id = commit_of[key.removeprefix(METADATA_FOLDER)]
            yield pa.record_batch([ids, pa.repeat(commit_id, len(ids))], names=["range_id", "commit_id"])


@worker
def _read_ranges(batches: Batches, store: StoreLocation, folders: tuple[str, ...]) -> Batches:
    for batch in batches:
        commit_of = dict(zip(*(batch.column(c).to_pylist() for c in ("range_id", "commit_id")), strict=True))
        keys = [METADATA_FOLDER + range_id for range_id in commit_of]
        for key, data in worker_store(store).read_many(keys, concurrency=_READS_AT_ONCE):
            entries = entries_below(read_range(data, key, keys=True), folders)
            # A path that is not valid UTF-8 cannot be asked for through the API.
            paths = pa.array([_text(path) for path in entries.column("key").to_pylist()], pa.string())
            commit_ids = pa.repeat(commit_of[key.removeprefix(METADATA_FOLDER)], entries.num_rows)
            columns = [entries.column("address"), paths, commit_ids]
            yield pa.record_batch(columns, names=["address", "path", "commit_id"]).filter(pc.is_valid(paths))


def _text(path: bytes) -> str | None:
    try:
        return path.decode()
    except UnicodeDecodeError:
        return None
