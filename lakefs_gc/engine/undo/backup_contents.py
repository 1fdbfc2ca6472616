"""Reads a complete backup: the outcome of every object of its mark, which have no copy, and which copies were lost.

A restore reads it to copy objects back. A sweep that needs a backup reads it to keep the objects without a copy.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.records.backups.location import backup_location_of, read_backup
from lakefs_gc.engine.records.backups.manifest import COPIED, SIZE_ONLY, Backup
from lakefs_gc.engine.records.backups.removal import refuse_removal
from lakefs_gc.engine.records.mark import MarkPart
from lakefs_gc.engine.run import RunContext
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.errors import BackupError, CorruptFileError
from lakefs_gc.formats.address_readings import with_slashes
from lakefs_gc.formats.parquet import read_columns
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.fan_out import list_concurrently
from lakefs_gc.storage.location import StoreLocation

RECORD = pa.schema(
    [
        pa.field("address", pa.string(), nullable=False),
        pa.field("size", pa.int64()),
        *(pa.field(name, pa.string(), nullable=False) for name in ("outcome", "proof", "checksum", "error")),
    ]
)
"""Columns of the records and of the contents of a backup."""

_CONTENT = "address string, size long, outcome string, proof string, checksum string, error string"


def read_records(key: str, content: bytes) -> pa.Table:
    """Return one file of a backup's records or contents, as ``RECORD``. Raises ``CorruptFileError``."""
    return read_columns(content, RECORD, key)


def read_contents(store: ObjectStore, part: MarkPart) -> pa.Table:
    """Return one part of a backup's contents. Columns: ``schemas.BACKUP``.

    Raises ``CorruptFileError`` if its checksum is not the one in the manifest.
    """
    content = store.read(part.key)
    if hashlib.sha256(content).hexdigest() != part.sha256:
        raise CorruptFileError(part.key, "The file was changed after the backup was made")
    return read_records(part.key, content)


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
    """Return the addresses of a mark of which its backup has no verified copy (column ``address``); None: all have one.

    An object that did not exist when the backup was made has no copy, or one that could not be compared with it.
    """
    if backup is None or (backup.objects == sum(backup.outcomes.values()) and SIZE_ONLY not in backup.proofs):
        return None
    contents = backed_up_objects(context.spark, backup, backup_location_of(context.settings.backup))
    return contents.where((F.col("outcome") != COPIED) | (F.col("proof") == SIZE_ONLY)).select("address")


def refuse_lost_backup(store: ObjectStore, backup: Backup) -> None:
    """Raise ``BackupError`` unless a backup is still complete: it has the same manifest, and every copy.

    Also raises it while a pruning may delete copies. That is looked for first: a pruning that ended leaves no note.
    """
    refuse_removal(store, backup.paths)
    if read_backup(store, backup.paths).digest != backup.digest:
        raise BackupError(
            f"The backup of mark {backup.mark_id} was replaced since its sweep began",
            remedy="Sweep again: the sweep continues with the remaining objects, by the present backup",
        )
    refuse_lost_copies(store, backup)


def refuse_lost_copies(store: ObjectStore, backup: Backup) -> None:
    """Raise ``BackupError`` unless the backup location has every copy of a complete backup, with its size."""
    lost, example = lost_copies(store, backup)
    if lost:
        raise BackupError(
            f"The backup of mark {backup.mark_id} has lost objects: {lost:,} of {backup.objects:,} copies are missing "
            f"in {store.location.url} or have another size, e.g. {example}",
            remedy=f"Find out what deletes them, such as a lifecycle rule, then run `{backup.paths.command}`",
        )


def lost_copies(store: ObjectStore, backup: Backup) -> tuple[int, str]:
    """Return how many copies the backup location lacks, or has with another size, and the address of one of them.

    An object that the manifest counts as copied, and the contents do not, has no copy that anybody looks for: it is
    lost, too.

    Numbers of objects and bytes would not show that: a file that somebody puts beside the copies makes up for a lost
    one. So each copy is looked for by a hash of its name and size, of which a process keeps eight bytes for a copy.
    """
    hash_key = secrets.token_hex(8)
    converts = with_slashes("\\", store.location.url) == "/"
    copies = [_hashes(batch, hash_key, converts=converts) for batch in _listed(store, backup.paths.objects)]
    there = np.unique(np.concatenate([np.empty(0, np.uint64), *copies]))
    lost, example, uncounted = 0, "", backup.objects
    for part in backup.parts:
        copied = read_contents(store, part)
        copied = copied.filter(pc.equal(copied["outcome"], COPIED))
        uncounted -= copied.num_rows
        is_lost = ~np.isin(_hashes(copied, hash_key, converts=converts), there)
        if is_lost.any():
            lost += int(is_lost.sum())
            example = copied["address"][int(is_lost.argmax())].as_py()
    return (lost, example) if lost or not uncounted else (abs(uncounted), backup.paths.manifest)


def _listed(store: ObjectStore, folder: str) -> Iterator[pa.RecordBatch]:
    """Yield the copies, under their addresses: several slices at once, and those outside slices."""
    folders, loose = store.list_level(folder)
    levels = [store.list_level(below) for below in folders]
    slices = [prefix for prefixes, _ in levels for prefix in prefixes]
    for batch in chain([loose], (beside for _, beside in levels), list_concurrently(store, slices)):
        addresses = pc.utf8_slice_codeunits(batch.column("address"), len(folder))
        yield batch.set_column(batch.schema.get_field_index("address"), "address", addresses)


def _hashes(
    objects: pa.Table | pa.RecordBatch, hash_key: str, *, converts: bool
) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return a hash of the address and size of each object.

    ``hash_key`` is random, so that nobody can choose addresses whose hashes collide. If the backup location may list
    slashes for the backslashes of an address (``converts``, see ``address_readings.with_slashes``), both are alike.
    There, a backup refuses two objects that differ only in these.
    """
    addresses = pc.replace_substring(objects["address"], "\\", "/") if converts else objects["address"]
    names = pc.binary_join_element_wise(addresses, pc.cast(objects["size"], pa.string()), "/")
    return pd.util.hash_array(names.to_numpy(zero_copy_only=False), hash_key=hash_key, categorize=False)


@worker
def _read_parts(batches: Batches, location: StoreLocation) -> Batches:
    for batch in batches:
        for row in batch.to_pylist():
            yield from read_contents(worker_store(location), MarkPart(**row)).to_batches()
