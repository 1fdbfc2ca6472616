"""Stage 8, ``candidates``: the objects that may be deleted, and why each of them is garbage.

candidates = unmatched (those in the store) - kept

The reason is ``expired`` or ``never_committed``. A run of one part keeps only the candidates with its reason, and a
sweep of a part only deletes those. Whether an object is a candidate does not depend on it.
"""

from __future__ import annotations

import logging

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.listing.age_buckets import age_measures
from lakefs_gc.engine.collect.listing.foreign_names import unrecognized_name_facts, whole_bucket_measures
from lakefs_gc.engine.collect.references.active_ranges import ALL_COMMITS, metadata_files, metaranges_so_far
from lakefs_gc.engine.collect.references.committed import live_addresses
from lakefs_gc.engine.collect.references.repeats import without_repeats
from lakefs_gc.engine.decide.matching.unmatched import (
    UNLISTED_WRONG_SIZES,
    WRONG_SIZES,
    not_marked_facts,
    unreferenced_objects,
)
from lakefs_gc.engine.input_order import check_inputs, check_made_from
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import columns_of, distinct_union, rows_without, with_text
from lakefs_gc.engine.spark.workers import Batches, worker
from lakefs_gc.engine.workspace.history_index import RunIndex
from lakefs_gc.engine.workspace.range_cache import RangeCache, Row, in_files, read_through
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.errors import CorruptRangeError
from lakefs_gc.formats.address_readings import is_local
from lakefs_gc.formats.ranges import TableKind, known_kind
from lakefs_gc.formats.sstable.reader import TableData, opened
from lakefs_gc.lakefs.known_folders import KnownFolders

logger = logging.getLogger(__name__)


def candidates(
    context: RunContext,
    run: GCRun,
    *,
    listing: Dataset,
    active_ranges: Dataset,
    unmatched: Dataset,
    kept: Dataset,
) -> StageOutput:
    """Return the unreferenced objects that are not kept, each with its reason. Columns: ``schemas.CANDIDATES``.

    In a run of one part (``run.only``) these are only the objects of this part.

    Raises ``InputOrderError`` if the inputs are out of order, of different runs, or not made from each other (rule 1).
    """
    began_at = context.clock()
    check_inputs(run.run_key, listing, active_ranges, unmatched, kept)
    check_made_from(unmatched, listing, active_ranges)
    check_made_from(kept, unmatched)
    garbage = rows_without(unreferenced_objects(unmatched.dataframe), kept.dataframe, "address")
    if listing.manifest.facts.get("source") == "inventory":
        # A report may name an object twice, and no sweep accepts a mark that does.
        garbage = garbage.dropDuplicates(["address"])
    reasoned = _with_reason(context, run, garbage, active_ranges)
    return StageOutput(
        dataframe=reasoned.where(F.col("reason") == run.only.value) if run.only.is_part else reasoned,
        began_at=began_at,
        facts={
            "cutoff": unmatched.manifest.facts["cutoff"],
            WRONG_SIZES: unmatched.manifest.facts.get(WRONG_SIZES),
            UNLISTED_WRONG_SIZES: kept.manifest.facts.get(UNLISTED_WRONG_SIZES),
            **unrecognized_name_facts(unmatched),
            **not_marked_facts(unmatched),
        },
        measures={
            "size_bytes": F.sum("size"),
            **age_measures(run.started_at),
            **age_measures(
                run.started_at,
                F.when(F.col("reason") == schemas.NEVER_COMMITTED, F.col("size")),
                schemas.NEVER_COMMITTED,
            ),
            "newest_us": F.unix_micros(F.max("last_modified")),
            "expired": F.count_if(F.col("reason") == schemas.EXPIRED),
            "expired_bytes": F.sum(F.when(F.col("reason") == schemas.EXPIRED, F.col("size"))),
            **whole_bucket_measures(run),
        },
        inputs={
            **unmatched.manifest.inputs,
            "unmatched": unmatched.manifest.materialization_id,
            "kept": kept.manifest.materialization_id,
        },
    )


def _with_reason(context: RunContext, run: GCRun, left: DataFrame, active_ranges: Dataset) -> DataFrame:
    """Add the reason: ``expired`` if a range of no active commit has the address, else ``never_committed``."""
    if active_ranges.manifest.facts["mode"] == ALL_COMMITS:
        return left.withColumn("reason", F.lit(schemas.NEVER_COMMITTED))
    spark, cache, cores = context.spark, context.workspace.range_cache, context.cores
    files = metadata_files(spark, run.store, metaranges_so_far(context, run))
    inactive = rows_without(files, active_ranges.dataframe, "range_id")
    files = with_text(columns_of(inactive, "range_id", "size_bytes"), "store_url", run.store.folder_url)
    located = cache.locate(spark, files, cores=cores)
    read = in_files(located, _read_inactive(run.known_folders, cache, cores), schemas.UNCOMMITTED, cores)
    once_committed = with_text(distinct_union((read,)), "reason", schemas.EXPIRED)
    return left.join(once_committed, "address", "left").fillna(schemas.NEVER_COMMITTED, "reason")


@worker
def _read_inactive(batches: Batches, known: KnownFolders, cache: RangeCache, cores: int) -> Batches:
    index = RunIndex(cache, known)

    def skip(error: CorruptRangeError) -> None:
        # No live object depends on this file. Objects that it alone refers to count as never committed.
        logger.warning("skipped a file of no active commit that cannot be read: %s", error)

    def decode(data: TableData, file: str, row: Row) -> list[pa.RecordBatch] | None:
        try:
            table = opened(data, file)
            if known_kind(table.properties, file) is TableKind.METARANGE:
                index.read_metarange(row, table, file)
                return []
            return list(live_addresses(table, file, known.folders, None))
        except CorruptRangeError as error:
            skip(error)
            return None

    def addresses() -> Batches:
        for row, entries in read_through(batches, cache, cores, decode, refused=skip):
            if not is_local(known.namespace):  # there, the addresses in other folders of the server are not read
                index.add(row, entries)
            for rows in entries:
                yield rows.select(["address"])
        index.write()

    yield from without_repeats(addresses())
