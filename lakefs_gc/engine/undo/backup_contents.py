"""Reads a complete backup: the outcome of every object of its mark, and which of them have no copy.

A restore reads it to copy objects back. A sweep that needs a backup reads it to keep the objects without a copy.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.records.backup_location import backup_location_of
from lakefs_gc.engine.records.backup_manifest import ALREADY_GONE, COPIED, Backup
from lakefs_gc.engine.records.mark import MarkPart
from lakefs_gc.engine.run import RunContext
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.engine.undo.backup import read_contents
from lakefs_gc.storage.location import StoreLocation

_CONTENT = "address string, size long, outcome string, proof string, checksum string, error string"


def backed_up_objects(spark: SparkSession, backup: Backup, location: StoreLocation) -> DataFrame:
    """Return the contents of a backup, one row for each object of its mark.

    Columns: ``address``, ``size`` (bytes), ``outcome``, ``proof``, ``checksum``, ``error``. Reading the rows raises
    ``CorruptFileError`` if a part of the contents is not the one that the manifest names.
    """
    parts = local_rows(
        spark,
        [(part.key, part.objects, part.size_bytes, part.sha256) for part in backup.parts],
        "key string, objects long, size_bytes long, sha256 string",
    )
    return parts.repartition(max(1, len(backup.parts))).mapInArrow(_read_parts(location), _CONTENT)


def not_backed_up(context: RunContext, backup: Backup | None) -> DataFrame | None:
    """Return the addresses of a mark of which its backup has no copy (column ``address``); None if all have one.

    An object has no copy if it did not exist when the backup was made.
    """
    if backup is None or not backup.outcomes[ALREADY_GONE]:
        return None
    contents = backed_up_objects(context.spark, backup, backup_location_of(context.settings.backup))
    return contents.where(F.col("outcome") != COPIED).select("address")


@worker
def _read_parts(batches: Batches, location: StoreLocation) -> Batches:
    for batch in batches:
        for row in batch.to_pylist():
            yield from read_contents(worker_store(location), MarkPart(**row)).to_batches()
