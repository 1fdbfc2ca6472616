"""What a backup holds, and what of its mark it has no copy of, because that was gone when it was made."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefs_gc.config import Settings
from lakefs_gc.engine.records.backup import ALREADY_GONE, COPIED, Backup, place_of
from lakefs_gc.engine.records.mark import MarkPart
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.engine.undo.backup import read_contents
from lakefs_gc.storage.location import StoreLocation

_CONTENT = "address string, size long, outcome string, proof string, checksum string, error string"


def backed_up(spark: SparkSession, backup: Backup, place: StoreLocation) -> DataFrame:
    """The contents of a backup, a row for each object of its mark.

    Columns: ``address``, ``size`` (bytes), ``outcome``, ``proof``, ``checksum``, ``error``.  Reading them raises
    ``CorruptFileError`` when a part of the contents is not the one that was written.
    """
    parts = local_rows(
        spark,
        [(part.key, part.objects, part.size_bytes, part.sha256) for part in backup.parts],
        "key string, objects long, size_bytes long, sha256 string",
    )
    return parts.repartition(max(1, len(backup.parts))).mapInArrow(_read_parts(place), _CONTENT)


def not_backed_up(spark: SparkSession, settings: Settings, backup: Backup | None) -> DataFrame | None:
    """The addresses of a mark that its backup does not hold (column ``address``); None when there are none."""
    if backup is None or not backup.outcomes[ALREADY_GONE]:
        return None
    contents = backed_up(spark, backup, place_of(settings.backup))
    return contents.where(F.col("outcome") != COPIED).select("address")


@worker
def _read_parts(batches: Batches, place: StoreLocation) -> Batches:
    for batch in batches:
        for row in batch.to_pylist():
            yield from read_contents(worker_store(place), MarkPart(**row)).to_batches()
