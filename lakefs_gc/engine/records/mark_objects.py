"""The objects of a mark as a DataFrame. Each part is verified when it is read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.records.mark import Mark, MarkPart
from lakefs_gc.engine.records.mark_parts import read_part
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.scale import SMALL_RUN_OBJECTS, in_arrow, spread
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.storage.location import StoreLocation


def read_marked(spark: SparkSession, store: StoreLocation, mark: Mark) -> DataFrame:
    """Return the distinct marked objects: ``address``, ``size``, ``last_modified`` and ``reason``.

    All but ``address`` are null if the mark does not record them. ``reason`` is also null for an address that the mark
    has with two reasons: such an object is of no part.
    Raises ``MarkError`` if a part was changed after it was marked: in a small run at once, otherwise when the DataFrame
    is computed.
    """
    parts = local_rows(
        spark,
        [(part.key, part.objects, part.size_bytes, part.sha256) for part in mark.parts],
        "key string, objects long, size_bytes long, sha256 string",
    )
    tasks = max(1, len(mark.parts))
    read, columns = _read_parts(store), "address string, size long, last_modified timestamp, reason string"
    marked = in_arrow(spread(parts, tasks), read, columns, fits=_few, tasks=tasks)
    return marked.groupBy("address").agg(
        F.max("size").alias("size"),
        F.min("last_modified").alias("last_modified"),
        F.when(F.min("reason") == F.max("reason"), F.min("reason")).alias("reason"),
    )


def _few(parts: pa.Table) -> bool:
    return bool(pc.sum(parts["objects"], min_count=0).as_py() <= SMALL_RUN_OBJECTS)


@worker
def _read_parts(batches: Batches, store: StoreLocation) -> Batches:
    for batch in batches:
        for row in batch.to_pylist():
            yield from read_part(worker_store(store), MarkPart(**row)).to_batches()
