"""The metadata files of a namespace (metaranges and ranges), each with what keeps its content.

A commit names a metarange, and a metarange names ranges. So a range is held by every commit whose metarange names it:
its ages are the least of theirs. Files that no visible commit names are read as well. They may belong to a commit that
no client can list, for example of a deleted branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.listing.age_buckets import age_measures
from lakefs_gc.engine.collect.references.active_ranges import METADATA_ID, some_metadata
from lakefs_gc.engine.forecast.commit_holds import LISTED, PROTECTED, Hold
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark.local_rows import local_rows, with_text
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.engine.workspace.history_index import RunIndex
from lakefs_gc.engine.workspace.range_cache import METADATA_FOLDER, RangeCache, Row, read_through
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.errors import CorruptFileError, StorageError
from lakefs_gc.formats.ranges import TableKind, known_kind, read_metarange
from lakefs_gc.formats.sstable.reader import TableData, opened
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.storage.location import StoreLocation

SEVERAL = (-1, 2**31 - 1)
"""The least and the greatest head of content that several heads have. A single head has its index twice."""
ENDLESS = {LISTED: 1, PROTECTED: 2}

_LEAST, _GREATEST = ("head_least",), ("head_greatest", "endless", "unseen", "named", "unreadable")
METADATA = "range_id string, file_bytes long, last_modified timestamp"
_METADATA = pa.schema(
    [("range_id", pa.string()), ("file_bytes", pa.int64()), ("last_modified", pa.timestamp("us", "UTC"))]
)
_FOLD_ROWS = 500_000


def age_columns(classes: int) -> list[str]:
    """Return the names of the columns with the age of each class."""
    return [f"age_{number}" for number in range(classes)]


def hold_columns(classes: int) -> list[str]:
    """Return the names of all columns that say what keeps a file or an object. All are integers or null."""
    return [*_LEAST, *_GREATEST, *age_columns(classes)]


def strongest(classes: int) -> list[Column]:
    """Return the aggregates that combine what keeps several files, or several references to one object."""
    least = [F.min(name).alias(name) for name in (*_LEAST, *age_columns(classes))]
    return [*least, *(F.max(name).alias(name) for name in _GREATEST)]


def files_schema(classes: int) -> str:
    """Return the columns of a file: ``range_id``, ``entries``, ``is_range`` and the columns that say what keeps it."""
    return ", ".join(
        ["range_id string, entries long, is_range int", *(f"{name} int" for name in hold_columns(classes))]
    )


def held_files(
    context: RunContext,
    run: GCRun,
    holds: Mapping[str, Hold],
    branch_numbers: Mapping[str, int],
    *,
    classes: int,
    protected_since: tuple[int, datetime] | None,
) -> Dataset:
    """Return every metadata file with what keeps it. Columns: ``files_schema``, and ``file_bytes`` (null: missing).

    ``holds`` maps metarange id to what keeps it. ``protected_since`` has the class of ``safety.protect.days`` and the
    time since which it protects metaranges, whatever their commit. ``facts`` counts the files that nothing names, with
    their bytes by age. A file that is missing or damaged has ``unreadable`` 1.
    """
    spark, workspace, cores = context.spark, context.workspace, context.cores
    cache = workspace.range_cache
    began_at = context.clock()
    seen = some_metadata(context.open_store(run.store))
    listed = spark.range(1, numPartitions=1).mapInArrow(_list_metadata(run.store), METADATA)
    output = StageOutput(listed, began_at, measures={"seen": F.count_if(F.col("range_id") == seen)})
    found = workspace.keep(spark, run.run_key, "forecast_metadata", output, METADATA)
    if seen and not found.manifest.facts["seen"]:
        raise StorageError(
            f"{run.store.folder_url}: an executor lists {found.manifest.rows:,} metadata files, but not {seen}, which "
            "the machine that runs the collector sees there",
            remedy="Check that the folder is mounted on all machines of the cluster",
        )
    metadata = found.dataframe
    schema = files_schema(classes)
    named = [_row_of(metarange, hold, branch_numbers) for metarange, hold in holds.items()]
    metaranges = local_rows(spark, named, schema)

    def read(files: DataFrame) -> DataFrame:
        located = cache.locate(spark, with_text(files, "store_url", run.store.folder_url), cores=cores)
        return located.mapInArrow(_read_files(cache, cores, hold_columns(classes), run.known_folders), schema)

    existing = metaranges.join(metadata.select("range_id", "last_modified"), "range_id")
    if protected_since is not None:
        # The days also protect a metarange that was written since then for a commit with an older date.
        age = f"age_{protected_since[0]}"
        existing = existing.withColumn(age, F.least(age, _days_protected(protected_since[1])))
    existing = existing.drop("last_modified")
    missing = metaranges.join(metadata.select("range_id"), "range_id", "left_anti")
    visible = read(existing).unionByName(missing.withColumn("unreadable", F.lit(1)))
    output = StageOutput(_merged(visible, classes), began_at)
    visible = workspace.keep(spark, run.run_key, "forecast_named", output, schema).dataframe
    unnamed = metadata.join(visible.select("range_id"), "range_id", "left_anti").select(
        "range_id",
        F.lit(None).cast("long").alias("entries"),
        F.lit(None).cast("int").alias("is_range"),
        *(_unnamed(name, protected_since).alias(name) for name in hold_columns(classes)),
    )
    files = _merged(visible.unionByName(read(unnamed)), classes).join(metadata, "range_id", "left")
    files = files.withColumn("size", F.when(F.col("named").isNull(), F.col("file_bytes")))  # of what nothing names
    measures = {"files": F.count("file_bytes"), "unnamed_files": F.count("size"), "unnamed_bytes": F.sum("size")}
    output = StageOutput(files, began_at, measures={**measures, **age_measures(run.started_at)})
    return workspace.keep(spark, run.run_key, "forecast_files", output, f"{schema}, file_bytes long")


def _row_of(metarange: str, hold: Hold, branch_numbers: Mapping[str, int]) -> tuple[Any, ...]:
    numbers = [branch_numbers[branch] for branch in hold.heads]
    least, greatest = (numbers * 2 if len(numbers) == 1 else SEVERAL) if numbers else (None, None)
    return (metarange, None, 0, least, greatest, ENDLESS.get(hold.endless), None, 1, None, *hold.ages)


def _unnamed(name: str, protected_since: tuple[int, datetime] | None) -> Column:
    """Return what keeps a file that no visible commit names: perhaps an unknown commit, or the days of protection."""
    if name == "unseen":
        return F.lit(1)
    if protected_since is not None and name == f"age_{protected_since[0]}":
        return _days_protected(protected_since[1])
    return F.lit(None).cast("int")


def _days_protected(since: datetime) -> Column:
    """Return the age of a file in the class of ``safety.protect.days``; null for a file that is not protected."""
    days = F.floor((F.lit(since).cast("double") - F.col("last_modified").cast("double")) / 86400).cast("int")
    return F.when(days < 0, days)


def _merged(files: DataFrame, classes: int) -> DataFrame:
    """Return one row for each file."""
    # If metaranges disagree on the number of entries of a range, the greatest number makes reading the range fail.
    merged = files.groupBy("range_id").agg(
        F.max("entries").alias("entries"), F.max("is_range").alias("is_range"), *strongest(classes)
    )
    return merged.select("range_id", "entries", "is_range", *hold_columns(classes))


@worker
def _list_metadata(batches: Batches, store: StoreLocation) -> Batches:
    for _ in batches:
        _, files = worker_store(store).list_level(METADATA_FOLDER)
        names = [key.removeprefix(METADATA_FOLDER) for key in files["address"].to_pylist()]
        is_id = pa.array([METADATA_ID.fullmatch(name) is not None for name in names], pa.bool_())
        columns = [pa.array(names, pa.string()), files["size"], files["last_modified"].cast(_METADATA.types[2])]
        yield pa.record_batch(columns, schema=_METADATA).filter(is_id)


@worker
def _read_files(batches: Batches, cache: RangeCache, cores: int, names: Sequence[str], known: KnownFolders) -> Batches:
    """Yield each file itself, and each range that it names. ``names`` are the columns that say what keeps it."""
    schema = pa.schema(
        [
            ("range_id", pa.string()),
            ("entries", pa.int64()),
            ("is_range", pa.int32()),
            *((n, pa.int32()) for n in names),
        ]
    )
    unreadable: list[Row] = []
    index = RunIndex(cache, known)

    def decode(data: TableData, file: str, row: Row) -> tuple[TableKind, pa.RecordBatch | None] | None:
        try:
            table = opened(data, file)
            kind = known_kind(table.properties, file)
            if kind is not TableKind.METARANGE and row["named"]:
                raise CorruptFileError(file, "this file should be a metarange")
            return kind, read_metarange(table, file) if kind is TableKind.METARANGE else None
        except CorruptFileError:
            unreadable.append(row)
            return None

    def rows() -> Iterable[pa.RecordBatch]:
        for row, (kind, metarange) in read_through(batches, cache, cores, decode):
            holds = [row[name] for name in names]
            yield _batch([row["range_id"]], [None], int(kind is TableKind.RANGE), holds, schema)
            if metarange is not None:
                index.add_metarange(row, metarange)
                yield _batch(metarange["range_id"], metarange["entries"], 1, holds, schema)
        index.write()
        for row in unreadable:
            holds = [1 if name == "unreadable" else row[name] for name in names]
            yield _batch([row["range_id"]], [None], 0, holds, schema)

    yield from _folded(rows(), schema)


def _batch(ids: Any, entries: Any, is_range: int, holds: Sequence[int | None], schema: pa.Schema) -> pa.RecordBatch:
    count = len(ids)
    columns = [pa.array(ids, pa.string()) if isinstance(ids, list) else ids]
    columns.append(pa.array(entries, pa.int64()) if isinstance(entries, list) else entries.cast(pa.int64()))
    columns += [pa.repeat(pa.scalar(value, pa.int32()), count) for value in (is_range, *holds)]
    return pa.record_batch(columns, schema=schema)


def _folded(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Batches:
    """Yield one row for each file. Many commits name the same ranges, and these rows need not pass through the JVM."""
    functions = [(n, "max" if n in ("entries", "is_range", *_GREATEST) else "min") for n in schema.names[1:]]
    held: list[pa.RecordBatch] = []
    rows = 0

    def fold() -> list[pa.RecordBatch]:
        table = pa.Table.from_batches(held, schema).group_by("range_id").aggregate(functions)
        columns = [table[f"{n}_{how}"] for n, how in functions]
        folded = pa.table([table["range_id"], *columns], names=schema.names).cast(schema)
        batches: list[pa.RecordBatch] = folded.combine_chunks().to_batches()
        return batches

    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _FOLD_ROWS:
            held = fold()
            rows = sum(b.num_rows for b in held)
            if rows > _FOLD_ROWS // 2:
                yield from held
                held, rows = [], 0
    if held:
        yield from fold()
