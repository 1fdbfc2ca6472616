"""Searches the candidates for a sample of objects that branches show: the evidence of ``no_head_object_marked``.

The sample is what the API lists first on some branches. Where these are all objects of other places, which no mark can
have (imports), the sample is taken from paths of heads whose entries lie in this namespace. A sample without objects of
this namespace is evidence only if no head has such an entry (rule 12).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.decide.marking.checks import HeadSample
from lakefs_gc.engine.decide.shown.heads import branches_by_metarange, head_ranges_of, locate_ranges
from lakefs_gc.engine.records.check import Unknown
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark.compat import known_table, to_arrow
from lakefs_gc.engine.spark.local_rows import columns_of, local_rows, rows_with
from lakefs_gc.engine.spark.workers import Batches, driver_errors, worker
from lakefs_gc.engine.workspace.range_cache import RangeCache, Row, in_files, read_through
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import LakeFSGCError, RepositoryNotFoundError
from lakefs_gc.formats.ranges import read_range
from lakefs_gc.formats.sstable.reader import TableData
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.lakefs.models import Heads

logger = logging.getLogger(__name__)

_BRANCHES_SAMPLED = 5
_PATHS_SAMPLED = 100  # each costs one request


@dataclass
class _Shown:
    """What branches show: ``addresses`` are those in the namespace, ``objects`` counts all.

    ``unread`` maps a branch that could not be read to the reason, ``gone`` one that was deleted since the run began.
    """

    addresses: list[str] = field(default_factory=list)
    objects: int = 0
    unread: dict[str, str] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)


def head_sample(context: RunContext, run: GCRun, heads: Heads, candidates: Dataset) -> HeadSample | Unknown:
    """Return which objects of a sample are candidates; ``Unknown`` if there was nothing to compare, but should be.

    ``heads`` maps each branch to its commit.
    """
    amount = context.safety.head_sample_objects
    if not amount:
        return Unknown("the candidates were not searched for objects of branches: safety.head_sample_objects is 0")
    # Spread evenly over the sorted names, so that the same branches give the same sample.
    branches = sorted(heads)[:: max(1, len(heads) // _BRANCHES_SAMPLED)][:_BRANCHES_SAMPLED]
    each = min(1000, max(1, amount // max(1, len(branches))))
    sampled = _Shown()
    _list(context, run, branches, each, sampled)
    if not sampled.objects and not sampled.unread:
        # Empty branches prove nothing about the other branches.
        remaining = [branch for branch in sorted(heads) if branch not in branches]
        _list(context, run, remaining, each, sampled, until_shown=True)
    if not sampled.addresses and not sampled.unread:
        if heads and len(sampled.gone) == len(heads):
            return HeadSample(0, unread=sampled.gone)
        paths = _own_paths(context, run, heads)
        _look_up(context, run, paths, sampled)
        if paths and not sampled.addresses and not sampled.unread:
            branch, _ = paths[0]
            return Unknown(
                f"no branch shows an object of this namespace, although branch {branch} has committed ones, so the "
                "marked objects could not be compared with any"
            )
    return HeadSample(
        sampled.objects, tuple(_marked_among(context.spark, sampled.addresses, candidates)), sampled.unread
    )


def _list(
    context: RunContext, run: GCRun, branches: list[str], each: int, sampled: _Shown, *, until_shown: bool = False
) -> None:
    """List ``each`` objects of every branch; with ``until_shown``, stop after the first branch that has any."""
    for branch in branches:
        try:
            urls = context.server.shown_objects(run.repository, branch, each).values()
        except RepositoryNotFoundError as error:
            sampled.gone[branch] = error.message  # deleted since the run began
            continue
        except LakeFSGCError as error:
            _note_unread(run, branch, error, sampled)
            continue
        sampled.objects += len(urls)
        sampled.addresses += [key for url in urls for key in run.known_folders.keys_of(url)]
        if until_shown and sampled.objects:
            break


def _look_up(context: RunContext, run: GCRun, paths: list[tuple[str, bytes]], sampled: _Shown) -> None:
    """Add the objects of this namespace that branches show at ``paths``."""
    for branch, path in paths:
        try:
            url = context.server.shown_address(run.repository, branch, path.decode())
            keys = run.known_folders.keys_of(url) if url else ()
        except UnicodeDecodeError:
            continue  # the API cannot name a path that is not UTF-8
        except LakeFSGCError as error:
            # 410: the entry is marked as deleted, and the answer does not include its address. The sample becomes
            # smaller, and an empty one is unknown.
            if error.facts.get("status") != 410:
                _note_unread(run, branch, error, sampled)
            continue
        sampled.objects += bool(keys)
        sampled.addresses += keys


def _note_unread(run: GCRun, branch: str, error: LakeFSGCError, sampled: _Shown) -> None:
    logger.warning("repository %s: branch %s cannot be sampled: %s", run.repository, branch, error.message)
    sampled.unread[branch] = error.message


def _own_paths(context: RunContext, run: GCRun, heads: Heads) -> list[tuple[str, bytes]]:
    """Return branches and paths at which heads have entries of this namespace, at most ``_PATHS_SAMPLED``.

    Reads the ranges of the heads until there are enough, or all of them. Raises what reading a range raises.
    """
    branches = branches_by_metarange(context, run, [heads])
    if not branches:
        return []
    ranges = head_ranges_of(context, run, branches)
    cache, cores = context.workspace.range_cache, context.cores
    located = locate_ranges(context, run, ranges)
    paths = in_files(located, _read_own_paths(run.known_folders, cache, cores), "range_id string, path binary", cores)
    with driver_errors():
        rows = paths.join(ranges, "range_id").select("metarange_id", "path").limit(_PATHS_SAMPLED).collect()
    return [(branches[row["metarange_id"]][0], bytes(row["path"])) for row in rows]


@worker
def _read_own_paths(batches: Batches, known: KnownFolders, cache: RangeCache, cores: int) -> Batches:
    """Yield the first paths of each range whose entries lie in the namespace."""

    def decode(data: TableData, file: str, row: Row) -> pa.Array:
        return known.entries(read_range(data, file, keys=True)).column("key")[:_PATHS_SAMPLED]

    for row, paths in read_through(batches, cache, cores, decode):
        yield pa.record_batch([pa.repeat(row["range_id"], len(paths)), paths], names=["range_id", "path"])


def _marked_among(spark: SparkSession, shown: list[str], candidates: Dataset) -> list[str]:
    if not shown or not candidates.manifest.rows:
        return []
    sample = local_rows(spark, [(address,) for address in set(shown)], "address string")
    rows = columns_of(candidates.dataframe, "address")
    if known_table(rows) is None:
        sample = F.broadcast(sample)
    with driver_errors():
        return sorted(to_arrow(rows_with(rows, sample, "address"))["address"].to_pylist())
