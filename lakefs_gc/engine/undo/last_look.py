"""The last look of a restore: what it reports as there was not deleted while it ran.

A restore takes hours, and stops only the sweeps that learn of it. One may go on by a list of an earlier time, another
begins once somebody approves the mark again, and other marks may have the same objects.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.records.restore_log import BegunRestore, ended_late, swept_since
from lakefs_gc.engine.spark.witness import Witness
from lakefs_gc.engine.spark.workers import Batches, driver_errors, worker
from lakefs_gc.errors import RestoreIncompleteError
from lakefs_gc.storage.base import ObjectStore

_LOOKED_UP_AT_ONCE = 1000


def refuse_deleted_meanwhile(
    there: DataFrame, originals: Witness, namespace: ObjectStore, mark_id: str, begun: BegunRestore
) -> None:
    """Raise ``RestoreIncompleteError`` if an object of ``there`` (column ``address``) may be gone again.

    That is so if a delete ended that seemed dead when the restore began, if a sweep of the mark has begun deletes
    since, or if an object does not exist. ``namespace`` is the store of ``originals``, opened just now.
    """
    gone = there.select("address").mapInArrow(_look_again(originals), "address string")
    with driver_errors():
        [lost] = gone.agg(F.count("address").alias("objects"), F.min("address").alias("for_example")).collect()
    # After the objects were looked up: a sweep writes an intent before it deletes, so it shows each delete until now.
    if ended_late(namespace, mark_id, begun.dead):
        raise RestoreIncompleteError(
            f"A sweep of mark {mark_id} ended a delete during this restore, so restored objects may be gone",
            remedy="Restore again: the sweep has stopped",
        )
    if swept_since(namespace, mark_id, begun.intents):
        raise RestoreIncompleteError(
            f"A sweep of mark {mark_id} has deleted objects during this restore, so objects that it found or restored "
            "may be gone: the mark was approved again meanwhile, or the sweep did not learn of the restore",
            remedy="Wait until no sweep of the mark is running, then restore again",
        )
    if lost["objects"]:
        raise RestoreIncompleteError(
            f"{lost['objects']:,} objects that this restore found or restored are gone again, for example "
            f"{lost['for_example']}: something deleted them meanwhile",
            remedy="Find out what did, for example a sweep of another mark that has the objects, and end it. Then "
            "restore again",
        )


@worker
def _look_again(batches: Batches, originals: Witness) -> Batches:
    """Yield the addresses of the objects that do not exist any more."""
    namespace = originals.open_store()
    for batch in batches:
        for start in range(0, batch.num_rows, _LOOKED_UP_AT_ONCE):
            addresses = batch.slice(start, _LOOKED_UP_AT_ONCE).column("address").to_pylist()
            gone = sorted({*addresses} - namespace.stat_many(addresses).keys())
            yield pa.record_batch([pa.array(gone, pa.string())], names=["address"])
