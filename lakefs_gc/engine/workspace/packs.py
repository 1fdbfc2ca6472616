"""The files of the range cache: packs of ranges and metaranges, and their indexes.

Layout, below the workspace: ``_range_cache/v1/packs/<pack>`` is a concatenation of about 32 MiB of files.
``index/<pack>`` (Parquet, ``INDEX_FILE``) has the position and the digest of each file. ``used/<pack>`` is an empty
object whose modification time is the last use of the pack. A pack is written before its index and removed after it.
``plain/`` is of ``plain_files.py``.
"""

from __future__ import annotations

import hashlib
import io
import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from lakefs_gc.engine.spark.workers import Batches, strings, worker, worker_store
from lakefs_gc.errors import ObjectNotFoundError, StorageError
from lakefs_gc.formats.parquet import parquet_bytes
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation

logger = logging.getLogger(__name__)

Row = dict[str, Any]

INDEX_FILE = pa.schema(
    [
        pa.field("store_url", pa.string(), nullable=False),
        pa.field("range_id", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("digest", pa.binary(), nullable=False),
    ]
)
"""Columns of an index: the store's folder, a file's name below ``_lakefs/``, its position in the pack, its digest."""

POSITION = StructType(
    [
        StructField("pack", StringType()),
        StructField("offset", LongType()),
        StructField("length", LongType()),
        StructField("digest", BinaryType()),
    ]
)
KEY = ("store_url", "range_id")
INDEX = StructType([*(StructField(name, StringType()) for name in KEY), *POSITION.fields])
CACHE_FOLDER = "_range_cache/v1/"
PACKS, INDEXES, USED = (CACHE_FOLDER + name for name in ("packs/", "index/", "used/"))
PACK_BYTES = 32 * 1024**2
_READ_AS = "named"
"""In each digest. What a version stored that did not compare files with their names is read again, and removed."""


def _digest(store_url: str, range_id: str, data: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(f"{_READ_AS}\0{store_url}\0{range_id}\0".encode())
    digest.update(data)
    return digest.digest()


class PackReader:
    """Reads files from packs, with one pack in memory at a time."""

    def __init__(self, location: StoreLocation) -> None:
        self._location = location
        self._pack = ""
        self._content: bytes | None = None

    def read(self, row: Row) -> bytes | None:
        """Return the content of a file, or None if the cache cannot provide it intact."""
        if row["pack"] != self._pack:
            self._pack, self._content = row["pack"], self._read_pack(row["pack"])
        if self._content is None:
            return None
        data = self._content[row["offset"] : row["offset"] + row["length"]]
        if _digest(row["store_url"], row["range_id"], data) == row["digest"]:
            return data
        logger.warning("range cache: a file has another digest, reading it from its store: %s", row["range_id"])
        self.drop(row["pack"])
        return None

    def drop(self, pack: str) -> None:
        """Remove a pack with a damaged file, together with its index."""
        if pack == self._pack:
            self._content = None
        drop_packs(worker_store(self._location), [pack])

    def _read_pack(self, pack: str) -> bytes | None:
        store = worker_store(self._location)
        try:
            content = store.read(PACKS + pack)
            store.put(USED + pack, b"")
        except ObjectNotFoundError:  # another run pruned the cache
            return None
        except StorageError as error:
            logger.warning("range cache: a pack cannot be read: %s", error)
            return None
        return content


@dataclass
class PackWriter:
    """Collects files, and writes a pack whenever they reach ``PACK_BYTES``."""

    location: StoreLocation
    room_bytes: int
    skipped: int = 0
    skipped_bytes: int = 0
    _files: list[bytes] = field(default_factory=list)
    _index: list[Row] = field(default_factory=list)
    _bytes: int = 0

    def add(self, row: Row, data: bytes) -> None:
        """Add a file that was read and decoded, or count it as skipped if the task has no space for it."""
        if len(data) > self.room_bytes:
            self.skipped += 1
            self.skipped_bytes += len(data)
            return
        self.room_bytes -= len(data)
        key = {name: row[name] for name in KEY}
        digest = _digest(row["store_url"], row["range_id"], data)
        self._index.append({**key, "offset": self._bytes, "length": len(data), "digest": digest})
        self._files.append(data)
        self._bytes += len(data)
        if self._bytes >= PACK_BYTES:
            self.write()

    def write(self) -> None:
        """Write a pack of the files that were added since the last pack."""
        if not self._index:
            return
        pack = uuid.uuid4().hex
        index = parquet_bytes(pa.RecordBatch.from_pylist(self._index, schema=INDEX_FILE))
        store = worker_store(self.location)
        try:
            store.put(PACKS + pack, b"".join(self._files))
            store.put(INDEXES + pack, index)
        except StorageError as error:
            logger.warning("range cache: a pack cannot be written: %s", error)
        self._files, self._index, self._bytes = [], [], 0


@worker
def read_indexes(batches: Batches, location: StoreLocation) -> Batches:
    """Yield the indexes of packs, by the column ``pack``. Columns: ``INDEX``. Removes a damaged one, and its pack."""
    store = worker_store(location)
    for pack in strings(batches, "pack"):
        try:
            index = pq.ParquetFile(io.BytesIO(store.read(INDEXES + pack))).read().cast(INDEX_FILE).drop_null()
        except ObjectNotFoundError:
            continue
        except (pa.ArrowException, OSError, ValueError) as error:
            logger.warning("range cache: an index is damaged, removing it and its pack: %s", str(error)[:200])
            drop_packs(store, [pack])
            continue
        for batch in index.to_batches():
            columns = (batch.column(name) for name in ("offset", "length", "digest"))
            keys = (batch.column(name) for name in KEY)
            yield pa.record_batch([*keys, pa.repeat(pack, batch.num_rows), *columns], names=INDEX.names)


def listed_packs(store: ObjectStore, folder: str) -> dict[str, tuple[int, datetime]]:
    """Return size and modification time of the objects in a folder, by their name in it."""
    objects = {}
    for batch in store.list(folder):
        for row in batch.to_pylist():
            objects[row["address"].removeprefix(folder)] = (row["size"], row["last_modified"])
    return objects


def drop_packs(store: ObjectStore, packs: Iterable[str]) -> None:
    """Remove packs, each after its index."""
    for folder in (INDEXES, PACKS, USED):
        store.delete_many([folder + pack for pack in packs])
