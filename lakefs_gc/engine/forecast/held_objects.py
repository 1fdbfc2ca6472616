"""The objects of a listing, grouped by what keeps them: the forecast table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.listing.foreign_names import has_unrecognized_name
from lakefs_gc.engine.decide.matching.unmatched import LONGEST_UPLOAD, address_hash
from lakefs_gc.engine.forecast.commit_holds import LISTED, PROTECTED
from lakefs_gc.engine.forecast.held_files import ENDLESS, age_columns, hold_columns, strongest
from lakefs_gc.engine.forecast.outlook import HEAD, NONE, UNREADABLE, Total
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark.local_rows import local_rows, with_text
from lakefs_gc.engine.spark.workers import Batches, driver_errors, worker
from lakefs_gc.engine.workspace.range_cache import METADATA_FOLDER, RangeCache, Row, read_through
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import CorruptFileError
from lakefs_gc.formats.candidate_addresses import CANDIDATE_ADDRESS_REGEX, UPLOAD_PART_REGEX
from lakefs_gc.formats.ranges import read_metarange, read_range
from lakefs_gc.formats.sstable.reader import TableData
from lakefs_gc.lakefs.known_folders import KnownFolders

STAGED, OTHER_REPOSITORY, KEPT, NEVER_COLLECTED = "staged", "other_repository", "kept", "never_collected"
"""Held by: a staged entry, another repository, a reason of stage ``kept``, or a name that is never collected."""

_OTHER = {STAGED: 1, OTHER_REPOSITORY: 2, KEPT: 3}
_ROWS_PER_PIECE = 500_000


def references(context: RunContext, run: GCRun, files: Dataset, classes: int) -> DataFrame:
    """Return the addresses in all ranges. Columns: ``address``, ``file``, and ``hold_columns``.

    A file that could not be read is a row with ``file`` and without an address.
    """
    cache, cores = context.workspace.range_cache, context.cores
    prefixes = tuple(prefix.encode() for prefix in context.safety.protect.path_prefixes)
    names = hold_columns(classes)
    is_unreadable = F.coalesce(F.col("unreadable") == 1, F.lit(False)) | F.col("file_bytes").isNull()
    ranges = files.dataframe.where(~is_unreadable & (F.col("is_range") == 1))
    located = cache.locate(context.spark, with_text(ranges, "store_url", run.store.folder_url), cores=cores)
    schema = ", ".join(["address string, file string", *(f"{name} int" for name in names)])
    entries = located.mapInArrow(_read_ranges(cache, cores, run.known_folders, prefixes, names), schema)
    lost = files.dataframe.where(is_unreadable)
    return entries.unionByName(
        lost.select(F.lit(None).cast("string").alias("address"), F.col("range_id").alias("file"), *names)
    )


def forecast_table(
    run: GCRun,
    references: DataFrame,
    classes: int,
    *,
    listing: Dataset,
    others: Mapping[str, Dataset],
    named_at_root: str,
) -> DataFrame:
    """Join the listing with all references, and group the objects. Columns: ``schemas.FORECAST``.

    ``others`` maps ``STAGED``, ``OTHER_REPOSITORY`` and ``KEPT`` to a dataset with their addresses. Compares hashes of
    addresses, as ``unmatched`` does.
    """
    names = hold_columns(classes)
    pieces = 1 + (listing.manifest.rows + sum(d.manifest.rows for d in others.values())) // _ROWS_PER_PIECE
    nothing = F.lit(None)
    refs = reduce(
        DataFrame.unionByName,
        (
            dataset.dataframe.select(
                address_hash("address"),
                nothing.cast("string").alias("file"),
                F.lit(_OTHER[name]).alias("other"),
                *(nothing.cast("int").alias(column) for column in names),
            )
            for name, dataset in others.items()
        ),
        references.select(
            F.when(F.col("address").isNotNull(), address_hash("address")).alias("address_hash"),
            "file",
            nothing.cast("int").alias("other"),
            *names,
        ),
    )
    held = (
        refs.repartition(pieces, "address_hash")
        .groupBy("address_hash", "file")
        .agg(F.min("other").alias("other"), *strongest(classes))
    )
    stored = listing.dataframe.select(
        address_hash("address"), "size", _new_days(run, named_at_root).alias("new_days"), F.lit(True).alias("listed")
    )
    joined = held.join(stored.repartition(pieces, "address_hash"), "address_hash", "full_outer")
    rows = joined.where(F.col("listed") | F.col("file").isNotNull())
    held_by = (
        F.when(F.col("file").isNotNull(), UNREADABLE)
        .when(F.col("new_days").isNull(), NEVER_COLLECTED)
        .when(F.col("other").isNotNull(), F.element_at(F.array(*map(F.lit, _OTHER)), F.col("other")))
        .when(F.col("endless") == ENDLESS[PROTECTED], PROTECTED)
        .when(F.col("endless") == ENDLESS[LISTED], LISTED)
        .when(F.col("head_least").isNotNull(), HEAD)
        .otherwise(NONE)
    )
    depends_on_rules = F.col("held_by").isin(NONE, HEAD)
    no_age = F.lit(None).cast("int")
    return (
        rows.withColumn("held_by", held_by)
        .select(
            "held_by",
            F.when(
                (F.col("held_by") == HEAD) & (F.col("head_least") == F.col("head_greatest")), F.col("head_least")
            ).alias("branch"),
            F.array(*(F.when(depends_on_rules, F.col(n)).otherwise(no_age) for n in age_columns(classes))).alias(
                "ages"
            ),
            F.when(depends_on_rules, F.col("new_days")).otherwise(F.lit(-1)).alias("new_days"),
            (depends_on_rules & F.coalesce(F.col("unseen") == 1, F.lit(False))).alias("unseen"),
            "file",
            "size",
        )
        .groupBy("held_by", "branch", "ages", "new_days", "unseen", "file")
        .agg(F.count(F.lit(1)).alias("objects"), F.coalesce(F.sum("size"), F.lit(0)).alias("size_bytes"))
    )


def _new_days(run: GCRun, named_at_root: str) -> Column:
    """Return by how many whole days an object is newer than the cutoff; negative if older, null if never collected."""
    cutoff = F.when(F.col("address").rlike(UPLOAD_PART_REGEX), F.lit(run.cutoff - LONGEST_UPLOAD)).otherwise(
        F.lit(run.cutoff)
    )
    days = F.floor((F.unix_micros("last_modified") - F.unix_micros(cutoff)) / F.lit(86_400_000_000)).cast("int")
    can_be_garbage = F.col("address").rlike(CANDIDATE_ADDRESS_REGEX)
    if not named_at_root:
        can_be_garbage &= ~has_unrecognized_name()
    return F.when(can_be_garbage, F.greatest(days, F.lit(-1)))


@worker
def _read_ranges(
    batches: Batches,
    cache: RangeCache,
    cores: int,
    known: KnownFolders,
    prefixes: tuple[bytes, ...],
    names: list[str],
) -> Batches:
    schema = pa.schema([("address", pa.string()), ("file", pa.string()), *((name, pa.int32()) for name in names)])
    unreadable: list[Row] = []

    def decode(data: TableData, file: str, row: Row) -> pa.RecordBatch | None:
        try:
            entries = read_range(data, file, keys=bool(prefixes))
        except CorruptFileError:
            unreadable.append(row)
            return None
        if row["entries"] is not None and row["entries"] != entries.num_rows:
            unreadable.append(row)
            return None
        return entries

    def rows(addresses: pa.Array, file: str | None, row: Row, **changes: int) -> pa.RecordBatch:
        columns = [addresses.cast(pa.string()), pa.repeat(pa.scalar(file, pa.string()), len(addresses))]
        columns += [pa.repeat(pa.scalar((row | changes)[name], pa.int32()), len(addresses)) for name in names]
        return pa.record_batch(columns, schema=schema)

    for row, entries in read_through(batches, cache, cores, decode):
        yield rows(known.entries(entries)["address"], None, row)
        if prefixes:
            below = pa.array([path.startswith(prefixes) for path in entries["key"].to_pylist()], pa.bool_())
            yield rows(known.entries(entries.filter(below))["address"], None, row, endless=ENDLESS[PROTECTED])
    for row in unreadable:
        yield rows(pa.nulls(1), row["range_id"], row)


def shown_by_heads(context: RunContext, run: GCRun, metaranges: Collection[str]) -> dict[str, Total]:
    """Return the objects of this namespace that heads show, by metarange. Missing: a file could not be read."""
    spark, cache, cores = context.spark, context.workspace.range_cache, context.cores
    existing = context.open_store(run.store).stat_many([METADATA_FOLDER + name for name in metaranges])
    rows = [(name, run.store.folder_url) for name in metaranges if METADATA_FOLDER + name in existing]
    files = local_rows(spark, rows, "range_id string, store_url string")
    pairs = (
        cache.locate(spark, files, cores=cores)
        .mapInArrow(_read_pairs(cache, cores), "metarange_id string, range_id string")
        .cache()
    )
    try:
        ranges = pairs.where("range_id is not null").select("range_id").distinct()
        located = cache.locate(spark, with_text(ranges, "store_url", run.store.folder_url), cores=cores)
        sizes = located.mapInArrow(
            _read_totals(cache, cores, run.known_folders), "range_id string, objects long, size_bytes long"
        )
        joined = pairs.join(sizes, "range_id", "left").groupBy("metarange_id")
        totals = joined.agg(
            F.sum("objects").alias("objects"),
            F.sum("size_bytes").alias("size_bytes"),
            F.count_if(F.col("range_id").isNotNull() & F.col("objects").isNull()).alias("unreadable"),
        )
        with driver_errors():
            return {
                row["metarange_id"]: Total(row["objects"] or 0, row["size_bytes"] or 0)
                for row in totals.where("unreadable = 0").collect()
            }
    finally:
        pairs.unpersist()


@worker
def _read_pairs(batches: Batches, cache: RangeCache, cores: int) -> Batches:
    for row, metarange in read_through(batches, cache, cores, _or_none(lambda data, file: read_metarange(data, file))):
        # A row without a range for a metarange that has none.
        ranges = metarange["range_id"] if metarange.num_rows else pa.nulls(1, pa.string())
        yield pa.record_batch([pa.repeat(row["range_id"], len(ranges)), ranges], names=["metarange_id", "range_id"])


@worker
def _read_totals(batches: Batches, cache: RangeCache, cores: int, known: KnownFolders) -> Batches:
    for row, entries in read_through(batches, cache, cores, _or_none(lambda data, file: read_range(data, file))):
        inside = known.entries(entries)
        total = {"range_id": row["range_id"], "objects": inside.num_rows}
        total["size_bytes"] = pc.sum(inside["size"], min_count=0).as_py()
        yield pa.RecordBatch.from_pylist([total])


def _or_none(
    read: Callable[[TableData, str], pa.RecordBatch],
) -> Callable[[TableData, str, Row], pa.RecordBatch | None]:
    """Return a decoder that skips a damaged file, which the forecast table counts as unreadable."""

    def decode(data: TableData, file: str, row: Row) -> pa.RecordBatch | None:
        try:
            return read(data, file)
        except CorruptFileError:
            return None

    return decode
