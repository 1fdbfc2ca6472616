"""Keeps unreferenced objects that any commit, however old, has below one of ``safety.protect.path_prefixes``.

Retention rules let commits expire. Users name prefixes of logical paths whose objects must stay all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.references.active_ranges import METADATA_FOLDER, all_metadata
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.scale import in_arrow, spread
from lakefs_gc.engine.spark.workers import Batches, strings, worker, worker_store
from lakefs_gc.engine.workspace.named_files import read_named
from lakefs_gc.formats.ranges import TableKind, known_kind, read_range
from lakefs_gc.formats.sstable.reader import opened
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.storage.location import StoreLocation

logger = logging.getLogger(__name__)

_READS_AT_ONCE = 8
_TASKS_PER_CORE = 4


def protected_paths(
    context: RunContext, run: GCRun, unreferenced: DataFrame, named: Callable[[], Mapping[str, str]]
) -> DataFrame:
    """Return which unreferenced objects a commit has below a protected prefix. Columns: ``schemas.KEPT``.

    ``unreferenced`` has columns ``address`` and ``size``. Reads every range in the namespace,
    whichever commit it belongs to. A damaged range fails the run, because what it protects is unknown (rule 12).
    So does a list of these files that lacks one of ``named`` (metarange id to commit id): the metaranges of commits
    that the server has named. They are asked for only if a prefix is protected.
    """
    spark, prefixes = context.spark, context.safety.protect.path_prefixes
    if not prefixes:
        return local_rows(spark, [], schemas.KEPT)
    ids = all_metadata(spark, run, named(), must_exist=True).select("range_id")
    files = spread(ids, context.cores * _TASKS_PER_CORE, "range_id")  # a new file must not move others to other tasks
    read = _read_below(run.store, run.known_folders, tuple(p.encode() for p in prefixes))
    addresses = in_arrow(files, read, schemas.UNCOMMITTED)
    return unreferenced.join(addresses, "address", "left_semi").select(
        "address", "size", F.lit(schemas.PROTECTED).alias("why")
    )


@worker
def _read_below(batches: Batches, store: StoreLocation, known: KnownFolders, prefixes: tuple[bytes, ...]) -> Batches:
    keys = (METADATA_FOLDER + range_id for range_id in strings(batches, "range_id"))
    for key, data in read_named(worker_store(store), keys, concurrency=_READS_AT_ONCE):
        table = opened(data, key)
        if known_kind(table.properties, key) is not TableKind.RANGE:
            continue
        entries = read_range(table, key, keys=True)
        below = pa.array([path.startswith(prefixes) for path in entries.column("key").to_pylist()], pa.bool_())
        protected = entries.filter(below)
        addresses = known.entries(protected).column("address")
        if len(addresses):
            yield pa.record_batch([addresses], names=["address"])
