"""Stage 4: which addresses the active commits refer to.  Each range is read once, by an executor.

Workers decode ranges and write the addresses themselves: no address passes through the JVM.  For that, rows are not
made distinct over all ranges: each task leaves out what it has just seen, and what several tasks meet comes as often.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from lakefs_gc.engine.collect.references.active_ranges import metadata_files
from lakefs_gc.engine.collect.references.repeats import without_repeats
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark.parts import PART, PartsFolder, StageFiles, write_parts
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.engine.workspace.range_cache import METADATA_FOLDER, RangeCache, Row, read_through
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.errors import CorruptRangeError
from lakefs_gc.formats.addresses import entries_below
from lakefs_gc.formats.ranges import TableKind, known_kind, read_metarange, read_range
from lakefs_gc.formats.sstable.reader import read_properties
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.storage.base import LISTING_SCHEMA

COMMITTED_PART = StructType([*PART, StructField("entries", LongType(), nullable=False)])
"""``parts.PART``, and how many entries were read since the part before it."""

_READS_AT_ONCE = 8  # up to 20 MB each


def committed(context: RunContext, run: GCRun, active_ranges: Dataset) -> StageOutput:
    """Read every active range.  Columns: ``schemas.COMMITTED``; addresses outside the namespace are left out.

    ``facts`` has ``entries``, which is how many were read, and ``size_bytes``, of all rows: what is there twice counts
    twice.
    Raises ``CorruptRangeError`` or ``ObjectNotFoundError``: one range that is missing or cannot be read fails the run
    (rule 3).
    """
    began_at = context.clock()
    ranges = active_ranges.dataframe
    existing = metadata_files(ranges.sparkSession, run.store)
    listed = context.workspace.files_of(active_ranges.manifest)
    return StageOutput(
        dataframe=write_addresses(context, run, ranges, "committed", listed=listed, existing=existing),
        began_at=began_at,
        facts={"mode": active_ranges.manifest.facts["mode"], "ranges": active_ranges.manifest.rows},
        inputs={"active_ranges": active_ranges.manifest.materialization_id},
        in_parts=True,
    )


def write_addresses(
    context: RunContext,
    run: GCRun,
    ranges: DataFrame,
    stage: str,
    *,
    listed: StageFiles,
    existing: DataFrame | None = None,
) -> DataFrame:
    """Have the addresses of this namespace in ``ranges`` (columns ``schemas.ACTIVE_RANGES``) written.

    The files are those of ``stage`` in the workspace.  Columns: ``COMMITTED_PART``.  ``listed`` (column ``range_id``)
    has every range that is read here, or was read before: one that a metarange among ``ranges`` names besides is read,
    too.  A range that the cache has must be in the store all the same if ``there`` (column ``range_id``) lists what is.
    """
    place = context.workspace.parts_folder(run.run_key, stage)
    cache, cores = context.workspace.range_cache, context.cores
    files = ranges.withColumn("store_url", F.lit(run.store.folder_url))
    located = cache.locate(ranges.sparkSession, files, cores=cores, existing=existing)
    return located.mapInArrow(_write_ranges(run, listed, place, cache, cores), COMMITTED_PART)


@worker
def _write_ranges(
    batches: Batches, run: GCRun, listed: StageFiles, place: PartsFolder, cache: RangeCache, cores: int
) -> Batches:
    named: dict[str, int] = {}
    known = run.known_folders

    def decode(data: bytes, file: str, row: Row) -> list[pa.RecordBatch]:
        if row["entries"] is None:
            named.update(named_ranges(data, file))
        return list(live_addresses(data, file, known.folders, row["entries"], explained_by=known))

    entries = 0

    def addresses() -> Batches:
        nonlocal entries
        for _, found in read_through(batches, cache, cores, decode):
            entries += sum(rows.num_rows for rows in found)
            yield from found
        for rows in _not_listed(named, listed, run):
            entries += rows.num_rows
            yield rows

    for report in write_parts(without_repeats(addresses()), place):
        yield report.append_column("entries", pa.array([entries]))
        entries = 0


def named_ranges(data: bytes, file: str) -> dict[str, int]:
    """The ranges of a metarange, and how many entries each has; of any other file none."""
    if known_kind(read_properties(data, file), file) is not TableKind.METARANGE:
        return {}
    ranges = read_metarange(data, file)
    return dict(zip(ranges.column("range_id").to_pylist(), ranges.column("entries").to_pylist(), strict=True))


def _not_listed(named: dict[str, int], listed: StageFiles, run: GCRun) -> Batches:
    """The addresses of ranges that a metarange names and no list has.

    Where the files that exist are what is read, a range that is lost is not among them.  Nor is one that was written
    while the list went on: before its metarange, but to a page that had been read.
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
            f"a metarange names this range, and it does not exist ({len(missing):,} are missing)",
            remedy="nothing was deleted; restore the range, or find out what deletes files below _lakefs/",
        )
    for key, data in store.read_many(by_key, concurrency=_READS_AT_ONCE):
        yield from live_addresses(data, key, run.folders, by_key[key], explained_by=run.known_folders)


def live_addresses(
    data: bytes,
    file: str,
    folders: tuple[str, ...],
    entries: int | None,
    *,
    other_store: str = "",
    explained_by: KnownFolders | None = None,
) -> Batches:
    """The addresses of a range that lie in the namespace (``GCRun.folders``), as a batch of ``LISTING_SCHEMA``.

    ``entries`` is how many its metarange says it has; None when no metarange was asked, and then the file may also be
    something other than a range, which has no addresses, but not of a kind that nobody knows.  ``other_store`` is the
    URL of the store of another repository, whose range this is: its relative addresses lie there.

    Raises ``CorruptRangeError``, and with ``explained_by`` ``NamespaceError`` for a full address that may be another
    spelling of the namespace's.
    """
    if entries is None and known_kind(read_properties(data, file), file) is not TableKind.RANGE:
        return
    batch = read_range(data, file)
    if entries is not None and batch.num_rows != entries:
        raise CorruptRangeError(file, f"it has {batch.num_rows} entries, but its metarange says {entries}")
    if explained_by is not None:
        inside = explained_by.entries(batch, other_store=other_store)
    else:
        inside = entries_below(batch, folders)
    columns = [inside.column(name) for name in LISTING_SCHEMA.names]
    yield pa.RecordBatch.from_arrays(columns, schema=LISTING_SCHEMA)
