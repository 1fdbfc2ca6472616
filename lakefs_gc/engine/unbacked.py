"""What the backup of a mark has no copy of, because it was gone when the backup was made."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.config import Settings
from lakefs_gc.engine.backup import read_contents
from lakefs_gc.engine.backups import ALREADY_GONE, COPIED, Backup, place_of
from lakefs_gc.engine.local_rows import local_rows
from lakefs_gc.engine.marks import MarkPart
from lakefs_gc.engine.workers import Batches, worker, worker_store
from lakefs_gc.storage.base import StoreLocation


def not_backed_up(spark: SparkSession, settings: Settings, backup: Backup | None) -> DataFrame | None:
    """The addresses of a mark that its backup does not hold (column ``address``); None when there are none.

    Reading them raises ``CorruptFileError`` when a part of the backup's contents is not the one that was written.
    """
    if backup is None or not backup.outcomes[ALREADY_GONE]:
        return None
    parts = local_rows(
        spark,
        [(part.key, part.objects, part.size_bytes, part.sha256) for part in backup.parts],
        "key string, objects long, size_bytes long, sha256 string",
    )
    return parts.repartition(len(backup.parts)).mapInArrow(_read_parts(place_of(settings.backup)), "address string")


@worker
def _read_parts(batches: Batches, place: StoreLocation) -> Batches:
    for batch in batches:
        for row in batch.to_pylist():
            contents = read_contents(worker_store(place), MarkPart(**row))
            missing = contents.filter(pc.not_equal(contents["outcome"], COPIED))
            yield from pa.table({"address": missing["address"]}).to_batches()
