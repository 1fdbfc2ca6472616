"""What the heads of branches consist of: their metaranges, and the ranges of these."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from lakefs_gc.engine.collect.references.committed import live_addresses
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import arrow_schema, known_table, to_arrow
from lakefs_gc.engine.spark.local_rows import local_rows, rows_of
from lakefs_gc.engine.spark.scale import is_small
from lakefs_gc.engine.spark.workers import Batches, driver_errors, worker
from lakefs_gc.engine.workspace.known_ranges import known_ranges
from lakefs_gc.engine.workspace.range_cache import RangeCache, Row, in_files, read_through
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.formats.sstable.reader import TableData
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.lakefs.models import Heads

HEAD_RANGES = StructType([StructField(name, StringType(), False) for name in ("metarange_id", "range_id")])
"""Each range of each metarange that a branch has at its head."""


def branches_by_metarange(context: RunContext, run: GCRun, heads: Iterable[Heads]) -> dict[str, list[str]]:
    """Return metarange id to the branches that have it at their head. Branches without content are omitted."""
    branches_of: dict[str, set[str]] = {}
    for observed in heads:
        for branch, commit_id in observed.items():
            branches_of.setdefault(commit_id, set()).add(branch)
    by_metarange: dict[str, list[str]] = {}
    for commit_id, metarange_id in context.server.metaranges_of(run.repository, branches_of):
        if metarange_id:
            by_metarange.setdefault(metarange_id, []).extend(sorted(branches_of[commit_id]))
    return by_metarange


def head_ranges_of(context: RunContext, run: GCRun, metarange_ids: Iterable[str]) -> DataFrame:
    """Return the ranges of these metaranges. Columns: ``HEAD_RANGES``."""
    spark, cache, metarange_ids = context.spark, context.workspace.range_cache, list(metarange_ids)
    known = known_ranges(run.store.folder_url, metarange_ids) if is_small(spark) and cache.max_bytes else {}
    unknown = [metarange_id for metarange_id in metarange_ids if metarange_id not in known]
    if unknown or not known:
        read = in_files(
            _locate(context, run, unknown), _read_metaranges(cache, context.cores), HEAD_RANGES, context.cores
        )
        if not known:
            return read
        with driver_errors():
            others = to_arrow(read)
    else:
        others = arrow_schema(HEAD_RANGES).empty_table()
    numbers = np.repeat(np.arange(len(known)), [ranges.num_rows for ranges in known.values()])
    metaranges = pa.array(known, pa.string()).take(pa.array(numbers))
    range_ids = pa.concat_tables(known.values())["range_id"]
    table = pa.table([metaranges, range_ids], schema=arrow_schema(HEAD_RANGES))
    return rows_of(spark, pa.concat_tables([table, others]), HEAD_RANGES)


def head_addresses(context: RunContext, run: GCRun, heads: Iterable[Heads]) -> DataFrame:
    """Return the addresses of this namespace that the heads have. Columns: ``schemas.UNCOMMITTED``, not distinct."""
    branches = branches_by_metarange(context, run, heads)
    ranges = locate_ranges(context, run, head_ranges_of(context, run, branches))
    read = _read_addresses(context.workspace.range_cache, context.cores, run.known_folders)
    return in_files(ranges, read, schemas.UNCOMMITTED, context.cores)


def locate_ranges(context: RunContext, run: GCRun, head_ranges: DataFrame) -> DataFrame:
    """Return where to read the ranges in ``HEAD_RANGES``, each once (``RangeCache.locate``)."""
    if (known := known_table(head_ranges)) is not None:
        return _locate(context, run, known["range_id"].unique().to_pylist())
    ranges = head_ranges.select(F.lit(run.store.folder_url).alias("store_url"), "range_id").distinct()
    return context.workspace.range_cache.locate(context.spark, ranges, cores=context.cores)


def _locate(context: RunContext, run: GCRun, file_ids: Iterable[str]) -> DataFrame:
    rows = [(run.store.folder_url, file_id) for file_id in file_ids]
    files = local_rows(context.spark, rows, "store_url string, range_id string")
    return context.workspace.range_cache.locate(context.spark, files, cores=context.cores)


@worker
def _read_metaranges(batches: Batches, cache: RangeCache, cores: int) -> Batches:
    def decode(data: TableData, file: str, row: Row) -> pa.StringArray:
        return read_metarange(data, file).column("range_id")

    for row, ranges in read_through(batches, cache, cores, decode):
        yield pa.record_batch([pa.repeat(row["range_id"], len(ranges)), ranges], names=HEAD_RANGES.names)


@worker
def _read_addresses(batches: Batches, cache: RangeCache, cores: int, known: KnownFolders) -> Batches:
    def decode(data: TableData, file: str, row: Row) -> list[pa.RecordBatch]:
        return list(live_addresses(data, file, known.folders, None, explained_by=known))

    for _, decoded in read_through(batches, cache, cores, decode):
        for rows in decoded:
            yield rows.select(["address"])
