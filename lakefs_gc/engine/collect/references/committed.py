"""Stage 4: the addresses that the active commits reference. An executor reads each range once.

Workers decode ranges and write the addresses themselves, so no address passes through the JVM. Therefore rows are not
distinct over all ranges. Each task drops the addresses that it has seen recently, but several tasks may write the same
address.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakefs_gc.engine.collect.references.active_ranges import metadata_files
from lakefs_gc.engine.collect.references.range_names import FILES_READ, NAMES_READ, name_sum, reports_of_stage
from lakefs_gc.engine.collect.references.ranges_ahead import read_ranges_ahead, take_ranges
from lakefs_gc.engine.collect.references.repeats import without_repeats
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import arrow_schema
from lakefs_gc.engine.spark.data_files import StageFiles
from lakefs_gc.engine.spark.local_rows import rows_of, rows_without, union_of, with_text
from lakefs_gc.engine.spark.parts import PART, PartsFolder, write_parts
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.engine.workspace.history_index import RunIndex
from lakefs_gc.engine.workspace.named_files import read_named
from lakefs_gc.engine.workspace.range_cache import METADATA_FOLDER, RangeCache, Row, in_files, read_through
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.errors import CorruptRangeError
from lakefs_gc.formats.addresses import entries_below
from lakefs_gc.formats.ranges import TableKind, known_kind, read_metarange, read_range
from lakefs_gc.formats.sstable.reader import TableData, opened
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.storage.base import LISTING_SCHEMA

COMMITTED_PART = StructType(
    [
        StructField("file", StringType()),
        *PART.fields[1:],
        StructField("entries", LongType(), nullable=False),
        StructField(FILES_READ, LongType(), nullable=False),
        StructField(NAMES_READ, LongType(), nullable=False),
    ]
)
"""``parts.PART``, and what was read since the task's previous report: entries, and listed files (``range_names``).

The last report of a task has no part, so a task is also noticed if it wrote nothing.
"""

_COMMITTED_PART = arrow_schema(COMMITTED_PART)
_STAGE = "committed"
_READS_AT_ONCE = 8  # up to 20 MB each


def committed(context: RunContext, run: GCRun, active_ranges: Dataset) -> StageOutput:
    """Read every active range. Columns: ``schemas.COMMITTED``, without addresses outside the namespace.

    ``facts`` has ``entries``, the number of entries that were read, and ``size_bytes`` of all rows, in which repeated
    addresses count repeatedly. Raises ``CorruptRangeError`` or ``ObjectNotFoundError``: a single range that is missing
    or unreadable fails the run (rule 3).
    """
    began_at = context.clock()
    ranges = active_ranges.dataframe
    existing = metadata_files(ranges.sparkSession, run.store)
    listed = context.workspace.files_of(active_ranges.manifest)
    ahead = take_ranges(context, run, ranges)
    if ahead is not None:
        ranges = rows_without(ranges, rows_of(ranges.sparkSession, ahead.ranges, schemas.ACTIVE_RANGES), "range_id")
    parts = write_addresses(context, run, ranges, _STAGE, listed=listed, existing=existing)
    if ahead is not None:
        parts = union_of((rows_of(ranges.sparkSession, ahead.parts, COMMITTED_PART), parts))
    return StageOutput(
        dataframe=parts,
        began_at=began_at,
        facts={"mode": active_ranges.manifest.facts["mode"], "ranges": active_ranges.manifest.rows},
        inputs={"active_ranges": active_ranges.manifest.materialization_id},
        in_parts=True,
        expected=reports_of_stage(active_ranges),
        work=("ranges", active_ranges.manifest.rows),
    )


def begin_committed(context: RunContext, run: GCRun) -> None:
    """Read the ranges of heads for ``committed`` while the server lists what is staged."""

    def read(ranges: DataFrame, existing: DataFrame) -> DataFrame:
        listed = StageFiles(run.store, ())  # needed for metaranges only
        return write_addresses(context, run, ranges, _STAGE, listed=listed, existing=existing)

    read_ranges_ahead(context, run, read)


def write_addresses(
    context: RunContext,
    run: GCRun,
    ranges: DataFrame,
    stage: str,
    *,
    listed: StageFiles,
    existing: DataFrame | None = None,
) -> DataFrame:
    """Write the addresses of this namespace in ``ranges`` (columns ``schemas.ACTIVE_RANGES``) as files of ``stage``.

    Columns: ``COMMITTED_PART``, whose sums are those of ``reports_of``. ``listed`` (column ``range_id``) has every
    range that is read now or was read before. If ``ranges`` has a metarange that names another range, that range is
    read, too. If ``existing`` (column ``range_id``) lists the files in the store, a cached range must be among them.
    """
    folder = context.workspace.parts_folder(run.run_key, stage)
    cache, cores = context.workspace.range_cache, context.cores
    files = with_text(ranges, "store_url", run.store.folder_url)
    located = cache.locate(ranges.sparkSession, files, cores=cores, existing=existing)
    return in_files(located, _write_ranges(run, listed, folder, cache, cores), COMMITTED_PART, cores)


@worker
def _write_ranges(
    batches: Batches, run: GCRun, listed: StageFiles, folder: PartsFolder, cache: RangeCache, cores: int
) -> Batches:
    named: dict[str, int] = {}
    known = run.known_folders
    index = RunIndex(cache, known)

    def decode(data: TableData, file: str, row: Row) -> list[pa.RecordBatch]:
        table = opened(data, file)
        if row["entries"] is None and known_kind(table.properties, file) is TableKind.METARANGE:
            metarange = read_metarange(table, file)
            names, sizes = (metarange.column(name).to_pylist() for name in ("range_id", "entries"))
            named.update(zip(names, sizes, strict=True))
            index.add_metarange(row, metarange)
            return []
        return list(live_addresses(table, file, known.folders, row["entries"], explained_by=known))

    entries = files_read = names_read = 0

    def addresses() -> Batches:
        nonlocal entries, files_read, names_read
        for row, decoded in read_through(batches, cache, cores, decode):
            files_read += 1
            names_read += name_sum([row["range_id"]])
            entries += sum(rows.num_rows for rows in decoded)
            index.add(row, decoded)
            yield from decoded
        index.write()
        for rows in _not_listed(named, listed, run):
            entries += rows.num_rows
            yield rows

    for report in write_parts(without_repeats(addresses()), folder):
        yield _with_counts(report.to_pylist()[0], entries, files_read, names_read)
        entries = files_read = names_read = 0
    yield _with_counts({"file": None, "rows": 0, "size_bytes": 0}, entries, files_read, names_read)


def _with_counts(part: dict[str, Any], entries: int, files_read: int, names_read: int) -> pa.RecordBatch:
    report = part | {"entries": entries, FILES_READ: files_read, NAMES_READ: names_read}
    return pa.RecordBatch.from_pylist([report], schema=_COMMITTED_PART)


def _not_listed(named: dict[str, int], listed: StageFiles, run: GCRun) -> Batches:
    """Yield the addresses of ranges that a metarange names but no list has.

    If the ranges to read come from a list of the existing files, a missing range is not among them. Nor is a range
    that was written during the list, before its metarange but on a page that was already read.
    """
    if named:
        for ids in listed.strings("range_id"):
            for range_id in ids.to_pylist():
                named.pop(range_id, None)
    store = worker_store(run.store)
    by_key = {METADATA_FOLDER + range_id: entries for range_id, entries in named.items()}
    missing = by_key.keys() - store.stat_many(list(by_key)).keys()
    if missing:
        raise CorruptRangeError(
            min(missing),
            f"a metarange names this range, but it does not exist ({len(missing):,} ranges are missing)",
            remedy="Restore the range, and find out what deletes files below _lakefs/. Nothing was deleted",
        )
    for key, data in read_named(store, by_key, concurrency=_READS_AT_ONCE):
        yield from live_addresses(data, key, run.folders, by_key[key], explained_by=run.known_folders)


def live_addresses(
    data: TableData,
    file: str,
    folders: tuple[str, ...],
    entries: int | None,
    *,
    of_other: Collection[str] = (),
    explained_by: KnownFolders | None = None,
) -> Batches:
    """Yield the addresses of a range that lie in the namespace (``GCRun.folders``), as a batch of ``LISTING_SCHEMA``.

    ``entries`` is the number in its metarange. If no metarange was read, it is None, and the file may be of another
    known kind, which has no addresses. ``of_other``: the folders of another repository, if the range belongs to one
    (``known_folders.folders_of``): its relative addresses lie there.

    Raises ``CorruptRangeError``, also for a file of an unknown kind. With ``explained_by``, raises ``NamespaceError``
    for a full address that may be another spelling of an address in the namespace.
    """
    table = opened(data, file)
    if entries is None and known_kind(table.properties, file) is not TableKind.RANGE:
        return
    batch = read_range(table, file)
    if entries is not None and batch.num_rows != entries:
        raise CorruptRangeError(file, f"it has {batch.num_rows} entries, but its metarange says {entries}")
    if explained_by is not None:
        inside = explained_by.entries(batch, of_other=of_other)
    else:
        inside = entries_below(batch, folders)
    columns = [inside.column(name) for name in LISTING_SCHEMA.names]
    yield pa.RecordBatch.from_arrays(columns, schema=LISTING_SCHEMA)
