"""Stage 4: which addresses the active commits refer to.  Each range is read once, by an executor."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine import schemas
from lakefs_gc.engine.active_ranges import METADATA_FOLDER, list_metadata
from lakefs_gc.engine.dataset import Clock, Dataset, StageOutput
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.workers import Batches, worker, worker_store
from lakefs_gc.errors import CorruptRangeError
from lakefs_gc.formats.addresses import relative_addresses
from lakefs_gc.formats.ranges import TableKind, read_metarange, read_range, table_kind
from lakefs_gc.formats.sstable import read_properties
from lakefs_gc.storage.base import LISTING_SCHEMA, StoreLocation

_READS_AT_ONCE = 8  # up to 20 MB each
_TASKS_PER_CORE = 4


def committed(run: GCRun, active_ranges: Dataset, clock: Clock, *, cores: int) -> StageOutput:
    """Read every active range.  Columns: ``schemas.COMMITTED``; addresses outside the namespace are left out.

    Raises ``CorruptRangeError`` or ``ObjectNotFoundError``: one range that is missing or cannot be read fails the run
    (rule 3).
    """
    began_at = clock()
    return StageOutput(
        dataframe=read_addresses(active_ranges.dataframe, run, cores),
        began_at=began_at,
        facts={"mode": active_ranges.manifest.facts["mode"], "ranges": active_ranges.manifest.rows},
        measures={"size_bytes": F.sum("size")},
        inputs={"active_ranges": active_ranges.manifest.materialization_id},
    )


def read_addresses(ranges: DataFrame, run: GCRun, cores: int) -> DataFrame:
    """The distinct addresses of this namespace in ``ranges`` (columns ``schemas.ACTIVE_RANGES``)."""
    entries = ranges.repartition(cores * _TASKS_PER_CORE).mapInArrow(
        _read_ranges(run.store, run.namespace), schemas.COMMITTED
    )
    return entries.groupBy("address").agg(F.max("size").alias("size"), F.max("last_modified").alias("last_modified"))


@worker
def _read_ranges(batches: Batches, store: StoreLocation, namespace: str) -> Batches:
    expected: dict[str, int | None] = {}

    def keys() -> Iterator[str]:
        for batch in batches:
            for range_id, entries in zip(*(batch.column(c).to_pylist() for c in ("range_id", "entries")), strict=True):
                expected[METADATA_FOLDER + range_id] = entries
                yield METADATA_FOLDER + range_id

    named: set[str] = set()
    for key, data in worker_store(store).read_many(keys(), concurrency=_READS_AT_ONCE):
        entries = expected.pop(key)
        if entries is None:
            named.update(_named_ranges(data, key))
        yield from live_addresses(data, key, namespace, entries)
    if named:
        _refuse_missing(named, store)


def _named_ranges(data: bytes, file: str) -> list[str]:
    """Ids of the ranges of a metarange; of any other file none."""
    if table_kind(read_properties(data, file)) is not TableKind.METARANGE:
        return []
    ids: list[str] = read_metarange(data, file).column("range_id").to_pylist()
    return ids


def _refuse_missing(named: set[str], store: StoreLocation) -> None:
    """Where the files that are there are what is read, one that is lost must not pass for one that never was."""
    missing = named.difference(list_metadata(store).column("range_id").to_pylist())
    if missing:
        raise CorruptRangeError(
            f"{METADATA_FOLDER}{min(missing)}",
            f"a metarange names this range, and it is not there ({len(missing)} are missing)",
            remedy="nothing was deleted; restore the range, or find out what deletes files below _lakefs/",
        )


def live_addresses(data: bytes, file: str, namespace: str, entries: int | None, *, full_only: bool = False) -> Batches:
    """The addresses of a range that lie in the namespace, as a batch of ``LISTING_SCHEMA``.

    ``entries`` is how many its metarange says it has; None when no metarange was asked, and then the file may also be
    something other than a range, which has no addresses.  ``full_only`` is for a range of another repository, whose
    relative addresses lie in that one's namespace.
    """
    if entries is None and table_kind(read_properties(data, file)) is not TableKind.RANGE:
        return
    batch = read_range(data, file)
    if entries is not None and batch.num_rows != entries:
        raise CorruptRangeError(file, f"it has {batch.num_rows} entries, but its metarange says {entries}")
    inside = relative_addresses(batch, namespace)
    if full_only:
        inside = pc.if_else(pc.not_equal(inside, batch.column("address")), inside, None)
    rows = pa.record_batch([inside, batch.column("size"), batch.column("last_modified")], names=LISTING_SCHEMA.names)
    yield rows.filter(pc.is_valid(inside)).cast(LISTING_SCHEMA)
