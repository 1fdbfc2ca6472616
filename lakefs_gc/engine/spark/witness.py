"""Proves that a store is the one that the process of a run has read: to Spark's workers, and before deletes.

An endpoint may lead elsewhere from another machine, and so may a mount, which is an empty folder where its disk is
missing. To some stores, so do other credentials, and files with settings may change in the middle of a run. A copy of a
store has the same files, so only one that has just been written tells them apart. A store that is replicated to another
one brings it along, but not the other way round. So before workers delete, they write files that the process looks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import SparkSession

from lakefs_gc.engine.spark.workers import Batches, driver_errors, worker, worker_store
from lakefs_gc.errors import ObjectNotFoundError, StorageError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation


@dataclass(frozen=True)
class Witness:
    """A file that the process of a run has just written to a store, with a content that no other file has."""

    store: StoreLocation
    key: str
    content: bytes

    def open_store(self) -> ObjectStore:
        """Return the store of a worker. Raise ``StorageError`` if it is another one."""
        store = worker_store(self.store)
        self.refuse_other(store)
        return store

    def refuse_other(self, store: ObjectStore) -> None:
        """Raise ``StorageError`` unless this store shows the file.

        Also where it showed the file before: what a folder lacks proves nothing once its disk is gone (rule 12).
        """
        try:
            is_same = store.read(self.key) == self.content
        except ObjectNotFoundError:
            is_same = False
        if not is_same:
            raise StorageError(
                f"This process finds another store at {self.store.folder_url} than the one that the run has read: it "
                f"lacks {self.key}, which the run wrote there",
                remedy="Give Spark's workers the same endpoint, credentials and mounts as the process of the run, "
                "change none of them during a run, and stop a Spark that stays after you change them. Then start the "
                "same command again: it continues",
            )


def write_witness(store: ObjectStore, folder: str) -> Witness:
    """Write a witness to a store, in the process of a run. ``folder`` is what its key begins with."""
    name = uuid4().hex
    witness = Witness(store.location, f"{folder}{name}", name.encode())
    store.put(witness.key, witness.content)
    return witness


def refuse_other_workers(spark: SparkSession, witness: Witness, store: ObjectStore, tasks: int) -> None:
    """Raise ``StorageError`` unless what workers write is in ``store`` of this process, and the other way round.

    Asks so many ``tasks``, one for each core, each with a file of its own, which is removed.
    """
    with driver_errors():
        rows = spark.range(0, tasks, 1, tasks).mapInArrow(_write_echoes(witness), "key string").collect()
    _refuse_unseen([row["key"] for row in rows], store, "Spark's workers write")


def refuse_replica(witness: Witness, writes: ObjectStore, reads: ObjectStore) -> None:
    """Raise ``StorageError`` unless a client that ``writes`` and one that ``reads`` see the files of each other."""
    witness.refuse_other(writes)
    _refuse_unseen(_echoes(witness, writes, 1), reads, "A new client of this process writes")


def _refuse_unseen(keys: list[str], store: ObjectStore, who: str) -> None:
    missing = sorted(set(keys) - store.stat_many(keys).keys())
    store.delete_many(keys)
    if missing or not keys:
        raise StorageError(
            f"{who} to another store than {store.location.folder_url} of this run, of which it may be a replica: "
            f"the run does not find {missing[0] if missing else 'any file of theirs'}",
            remedy="Give Spark's workers the same endpoint, credentials and mounts as the process of the run, and "
            "change none of them during a run. Then start the same command again: it continues",
        )


def _echoes(witness: Witness, store: ObjectStore, count: int) -> list[str]:
    """Write files, and return their keys."""
    keys = [f"{witness.key}-{uuid4().hex}" for _ in range(count)]
    for key in keys:
        store.put(key, witness.content)
    return keys


@worker
def _write_echoes(batches: Batches, witness: Witness) -> Batches:
    for batch in batches:
        keys = _echoes(witness, witness.open_store(), batch.num_rows)
        yield pa.record_batch([pa.array(keys, pa.string())], names=["key"])
