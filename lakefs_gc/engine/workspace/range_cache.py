"""Ranges and metaranges that earlier runs have read, kept beside the runs' DataFrames.

A range never changes, so a run reads only those that no run before it has read.  Kept are the files themselves, byte
for byte: decoding one is quicker than reading its rows from Parquet, takes a third of the room, and gives every column
that a stage may want, verified in the same way as a file from the store.

Layout, below the workspace: ``_range_cache/v1/packs/<pack>`` holds files one after another, about 32 MiB of them;
``index/<pack>`` (Parquet, ``INDEX_FILE``) says where each lies, and its digest; ``used/<pack>`` is an empty object, as
young as the last use of the pack.  A pack is written before its index and removed after it.

The cache can only save work.  A file is known by the store it came from, its name and the SHA-256 over these and its
content; one that is gone, damaged, or another's, is read from the store.  Two runs may use it at once: names of packs
are unique, and every object is written whole or not at all.
"""

from __future__ import annotations

import hashlib
import io
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.workers import Batches, strings, worker, worker_store
from lakefs_gc.errors import CorruptFileError, ObjectNotFoundError, StorageError
from lakefs_gc.formats.parquet import parquet_bytes
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

logger = logging.getLogger(__name__)

METADATA_FOLDER = "_lakefs/"

INDEX_FILE = pa.schema(
    [
        pa.field("store_url", pa.string(), nullable=False),
        pa.field("range_id", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("digest", pa.binary(), nullable=False),
    ]
)
"""Columns of an index: the store's folder, a file's name below ``_lakefs/``, its place in the pack, its digest."""

_PLACE = StructType(
    [
        StructField("pack", StringType()),
        StructField("offset", LongType()),
        StructField("length", LongType()),
        StructField("digest", BinaryType()),
    ]
)
_KEY = ("store_url", "range_id")
_INDEX = StructType([*(StructField(name, StringType()) for name in _KEY), *_PLACE.fields])
_FOLDER = "_range_cache/v1/"
_PACKS, _INDEXES, _USED = _FOLDER + "packs/", _FOLDER + "index/", _FOLDER + "used/"
_PACK_BYTES = 32 * 1024**2
_READS_AT_ONCE = 8  # up to 20 MB each
_TASKS_PER_CORE = 4
_ORPHAN_AGE = timedelta(hours=6)  # a pack without an index: its writer may be at it

Decoded = TypeVar("Decoded")
Row = dict[str, Any]


@dataclass(frozen=True)
class RangeCache:
    """The cache of a workspace; pickles.  ``max_bytes`` 0: there is none, and what there was is removed.

    What the tasks of a stage add may exceed it, by a pack each; ``locate`` removes what is too much.
    """

    place: StoreLocation
    max_bytes: int

    def room_of_task(self, cores: int) -> int:
        """How many bytes a task may add: its share, or a pack where that is more; few ranges fit a share of many."""
        return min(self.max_bytes, max(_PACK_BYTES, self.max_bytes // (cores * _TASKS_PER_CORE)))

    def locate(self, spark: SparkSession, files: DataFrame, *, cores: int, there: DataFrame | None = None) -> DataFrame:
        """Say of each file where the cache has it, and deal the files out to tasks, for ``read_through``.

        ``files`` have the columns ``store_url`` (with a final slash) and ``range_id``, and any others.  Where it
        matters that a file still exists, ``there`` (column ``range_id``) lists those that do: any other is looked for
        in its store.  Removes the packs that were not used for longest if there are too many.
        """
        packs = self.prune()
        tasks = cores * _TASKS_PER_CORE
        if not packs:
            nowhere = (F.lit(None).cast(place.dataType).alias(place.name) for place in _PLACE)
            return files.select("*", *nowhere).repartition(tasks)
        names = local_rows(spark, [(pack,) for pack in packs], "pack string")
        index = names.repartition(min(cores, len(packs))).mapInArrow(_read_indexes(self.place), _INDEX)
        if there is not None:
            index = index.join(there.select("range_id"), "range_id", "left_semi")
        # Two runs at once may both have kept a file.
        once = index.groupBy(*_KEY).agg(F.max(F.struct(*_PLACE.names)).alias("place")).select(*_KEY, "place.*")
        # The files of a pack go to one task, which reads it once.
        located = files.join(once, list(_KEY), "left").repartition(tasks, F.coalesce("pack", "range_id"))
        return located.sortWithinPartitions("pack")

    def prune(self) -> list[str]:
        """Remove what is too much, the least recently used first; the packs that stay."""
        store = open_store(self.place)
        packs = _listed(store, _PACKS)
        if not packs:
            return []
        indexes, used = _listed(store, _INDEXES), _listed(store, _USED)
        now = store.now()
        last_use = {pack: max(when, used.get(pack, (0, when))[1]) for pack, (_, when) in packs.items()}
        left = sum(size for size, _ in packs.values())
        dropped = {pack for pack in packs.keys() - indexes.keys() if now - last_use[pack] > _ORPHAN_AGE}
        for pack in sorted(packs, key=lambda pack: last_use[pack]):
            if left <= self.max_bytes:
                break
            left -= packs[pack][0]
            dropped.add(pack)
        if dropped:
            logger.info("%d packs of the cache of ranges are removed to keep it below %d", len(dropped), self.max_bytes)
            _drop(store, sorted(dropped))
        return sorted(packs.keys() & indexes.keys() - dropped)


def read_through(
    batches: Batches, cache: RangeCache, cores: int, decode: Callable[[bytes, str, Row], Decoded | None]
) -> Iterator[tuple[Row, Decoded]]:
    """In a worker: read the files that ``locate`` dealt out, from the cache or their stores; rows and what they hold.

    ``decode`` gets the content, its name for errors, and the row; it raises ``CorruptFileError`` for what is damaged
    (from the cache: then the file is read anew), and gives None for what is to be passed over.  What was decoded is
    added to the cache.  Raises what ``read_many`` raises, ``ObjectNotFoundError`` among it.
    """
    reader = _PackReader(cache)
    writer = _PackWriter(cache, cache.room_of_task(cores))
    for batch in batches:
        rows = sorted(batch.to_pylist(), key=lambda row: row["pack"] or "")
        cold: list[Row] = []
        for row in rows:
            data = reader.read(row) if row["pack"] else None
            if data is None:
                cold.append(row)
                continue
            try:
                decoded = decode(data, _name(row), row)
            except CorruptFileError as error:
                logger.warning("a file of the cache of ranges is damaged, and read anew: %s", error)
                reader.drop(row["pack"])
                cold.append(row)
                continue
            if decoded is not None:
                yield row, decoded
        for store_url in {row["store_url"] for row in cold}:
            by_key = {_name(row): row for row in cold if row["store_url"] == store_url}
            store = worker_store(StoreLocation(store_url))
            for key, data in store.read_many(by_key, concurrency=_READS_AT_ONCE):
                row = by_key[key]
                decoded = decode(data, _name(row), row)
                if decoded is not None:
                    yield row, decoded
                    writer.add(row, data)
    writer.write()
    if writer.left_out and cache.max_bytes:
        logger.warning(
            "a task has no room in the cache of ranges for %d files of %d bytes, and the next run reads them again: "
            "raise max_range_cache_bytes (%d)",
            writer.left_out,
            writer.left_out_bytes,
            cache.max_bytes,
        )


def _name(row: Row) -> str:
    return f"{METADATA_FOLDER}{row['range_id']}"


def _digest(store_url: str, range_id: str, data: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(f"{store_url}\0{range_id}\0".encode())
    digest.update(data)
    return digest.digest()


class _PackReader:
    """Reads files from packs, one pack in memory at a time; what cannot be had is None."""

    def __init__(self, cache: RangeCache) -> None:
        self._cache = cache
        self._pack = ""
        self._content: bytes | None = None

    def read(self, row: Row) -> bytes | None:
        if row["pack"] != self._pack:
            self._pack, self._content = row["pack"], self._read_pack(row["pack"])
        if self._content is None:
            return None
        data = self._content[row["offset"] : row["offset"] + row["length"]]
        if _digest(row["store_url"], row["range_id"], data) == row["digest"]:
            return data
        logger.warning("a file of the cache of ranges is not what it was, and read anew: %s", _name(row))
        self.drop(row["pack"])
        return None

    def drop(self, pack: str) -> None:
        """Forget a pack that holds something damaged, files and all."""
        if pack == self._pack:
            self._content = None
        _drop(worker_store(self._cache.place), [pack])

    def _read_pack(self, pack: str) -> bytes | None:
        store = worker_store(self._cache.place)
        try:
            content = store.read(_PACKS + pack)
            store.put(_USED + pack, b"")
        except ObjectNotFoundError:  # another run has made room
            return None
        except StorageError as error:
            logger.warning("the cache of ranges cannot be read: %s", error)
            return None
        return content


@dataclass
class _PackWriter:
    """Collects files, and writes a pack of them whenever there are enough."""

    cache: RangeCache
    room_bytes: int
    left_out: int = 0
    left_out_bytes: int = 0
    _files: list[bytes] = field(default_factory=list)
    _index: list[Row] = field(default_factory=list)
    _bytes: int = 0

    def add(self, row: Row, data: bytes) -> None:
        """Take a file that was read and decoded, while there is room."""
        if len(data) > self.room_bytes:
            self.left_out += 1
            self.left_out_bytes += len(data)
            return
        self.room_bytes -= len(data)
        key = {name: row[name] for name in _KEY}
        digest = _digest(row["store_url"], row["range_id"], data)
        self._index.append({**key, "offset": self._bytes, "length": len(data), "digest": digest})
        self._files.append(data)
        self._bytes += len(data)
        if self._bytes >= _PACK_BYTES:
            self.write()

    def write(self) -> None:
        """Write what was taken since the last pack."""
        if not self._index:
            return
        pack = uuid.uuid4().hex
        index = parquet_bytes(pa.RecordBatch.from_pylist(self._index, schema=INDEX_FILE))
        store = worker_store(self.cache.place)
        try:
            store.put(_PACKS + pack, b"".join(self._files))
            store.put(_INDEXES + pack, index)
        except StorageError as error:
            logger.warning("the cache of ranges cannot be written to: %s", error)
        self._files, self._index, self._bytes = [], [], 0


@worker
def _read_indexes(batches: Batches, place: StoreLocation) -> Batches:
    store = worker_store(place)
    for pack in strings(batches, "pack"):
        try:
            index = pq.ParquetFile(io.BytesIO(store.read(_INDEXES + pack))).read().cast(INDEX_FILE).drop_null()
        except ObjectNotFoundError:
            continue
        except (pa.ArrowException, OSError, ValueError) as error:
            logger.warning("an index of the cache of ranges is damaged, and removed: %s", str(error)[:200])
            _drop(store, [pack])
            continue
        for batch in index.to_batches():
            columns = (batch.column(name) for name in ("offset", "length", "digest"))
            keys = (batch.column(name) for name in _KEY)
            yield pa.record_batch([*keys, pa.repeat(pack, batch.num_rows), *columns], names=_INDEX.names)


def _listed(store: ObjectStore, folder: str) -> dict[str, tuple[int, datetime]]:
    """Size and age of the objects of a folder, by their name in it."""
    found = {}
    for batch in store.list(folder):
        for row in batch.to_pylist():
            found[row["address"].removeprefix(folder)] = (row["size"], row["last_modified"])
    return found


def _drop(store: ObjectStore, packs: Iterable[str]) -> None:
    for folder in (_INDEXES, _PACKS, _USED):
        store.delete_many([folder + pack for pack in packs])
