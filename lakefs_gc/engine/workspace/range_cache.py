"""The range cache: ranges and metaranges that earlier runs read, stored in the workspace.

A range never changes, so a run reads only the ranges that no earlier run read. The cache stores the files themselves,
byte for byte. Decoding a file is faster than reading its rows from Parquet, and the file takes a third of the space.
It has every column that a stage may need, and it is verified like a file from the store.

Layout, below the workspace: ``_range_cache/v1/packs/<pack>`` is a concatenation of about 32 MiB of files.
``index/<pack>`` (Parquet, ``INDEX_FILE``) has the position and the digest of each file. ``used/<pack>`` is an empty
object whose modification time is the last use of the pack. A pack is written before its index and removed after it.
``plain/`` is of ``plain_files.py``.

The cache can only save work. A cached file is identified by its store, its name, and the SHA-256 over these and its
content. A file that is missing, damaged, or from another store is read from its own store. Two runs may use the cache
at once: the names of packs are unique, and every object is written whole or not at all.
"""

from __future__ import annotations

import hashlib
import io
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from lakefs_gc.engine.spark.compat import arrow_schema, to_arrow
from lakefs_gc.engine.spark.local_rows import local_rows, rows_of
from lakefs_gc.engine.spark.scale import Work, in_arrow, is_small, spread, work_here
from lakefs_gc.engine.spark.workers import Batches, driver_errors, strings, worker, worker_store
from lakefs_gc.engine.workspace.named_files import Refusal, read_named
from lakefs_gc.errors import CorruptFileError, ObjectNotFoundError, StorageError
from lakefs_gc.formats.parquet import parquet_bytes
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

logger = logging.getLogger(__name__)

METADATA_FOLDER = "_lakefs/"

_FEW_FILES = 250
"""The most files of unknown sizes that the process of a small run reads from a store at once."""
_FEW_SMALL_FILES, _FEW_SMALL_FILES_TIMES_CORES = 2000, 10_000
_FEW_BYTES = 64 * 1024**2
"""The most files of known sizes, and bytes in them, that it reads at once: two workers need 5 s of processor time to
start. The first mark of 97,000 objects, whose history has 2,003 files, takes 22.9 s, and 25.2 s with workers."""
_FEW_CACHED_BYTES = 128 * 1024**2
"""The most bytes that it reads from the cache, which takes a hundredth of the time of as many requests."""
_MOST_TASKS = 16
"""In a small run. Each task may write the same addresses again, and the process of the run reads all of them."""

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

_POSITION = StructType(
    [
        StructField("pack", StringType()),
        StructField("offset", LongType()),
        StructField("length", LongType()),
        StructField("digest", BinaryType()),
    ]
)
_KEY = ("store_url", "range_id")
_INDEX = StructType([*(StructField(name, StringType()) for name in _KEY), *_POSITION.fields])
CACHE_FOLDER = "_range_cache/v1/"
_PACKS, _INDEXES, _USED = (CACHE_FOLDER + name for name in ("packs/", "index/", "used/"))
_PACK_BYTES = 32 * 1024**2
_READS_AT_ONCE = 8  # of up to 20 MB each
_SMALL_READS_AT_ONCE, _SMALL_BYTES = 16, 1024**2
_DECODED_TOGETHER_BYTES = 8 * 1024**2
_TASKS_PER_CORE = 4
_READ_AS = "named"
"""In each digest. What a version stored that did not compare files with their names is read again, and removed."""
_ORPHAN_AGE = timedelta(hours=6)  # of a pack without an index: a writer may still be about to write the index

_INDEXES_READ: dict[str, dict[str, pa.Table]] = {}
"""The indexes that this process has read, by cache and pack: those of a small run, which locates files six times."""

Decoded = TypeVar("Decoded")
Row = dict[str, Any]


@dataclass(frozen=True)
class RangeCache:
    """The range cache of a workspace; pickles. With ``max_bytes`` 0 nothing is cached, and existing packs are removed.

    The tasks of a stage may exceed ``max_bytes``, by one pack each; the next ``locate`` removes the excess.
    """

    location: StoreLocation
    max_bytes: int

    def room_of_task(self, cores: int) -> int:
        """Return the number of bytes that a task may add: its share of the cache, and at least one pack.

        A large cluster has many tasks, and a share of so many would hold few ranges.
        """
        return min(self.max_bytes, max(_PACK_BYTES, self.max_bytes // (cores * _TASKS_PER_CORE)))

    def locate(
        self, spark: SparkSession, files: DataFrame, *, cores: int, existing: DataFrame | None = None
    ) -> DataFrame:
        """Add the position in the cache to each file, and distribute the files over tasks, for ``read_through``.

        ``files`` has the columns ``store_url`` (with a final slash) and ``range_id``, and any others. If it matters
        that a file still exists in its store, ``existing`` (columns ``range_id`` and ``size_bytes``) lists the files
        that do. All others are read from the store, never from the cache. In a small run the files get the column
        ``size_bytes``, too. Removes the least recently used packs of a cache that is too large.
        """
        packs = self.prune()
        if is_small(spark):
            return self._locate_here(files, packs, existing)
        tasks = cores * _TASKS_PER_CORE
        if not packs:
            no_position = (F.lit(None).cast(column.dataType).alias(column.name) for column in _POSITION)
            return spread(files.select("*", *no_position), tasks)
        names = spread(local_rows(spark, [(pack,) for pack in packs], "pack string"), min(cores, len(packs)))
        index = in_arrow(names, _read_indexes(self.location), _INDEX)
        if existing is not None:
            index = index.join(existing.select("range_id"), "range_id", "left_semi")
        # Two concurrent runs may both have cached a file.
        once = index.groupBy(*_KEY).agg(F.max(F.struct(*_POSITION.names)).alias("position")).select(*_KEY, "position.*")
        # All files of a pack go to one task, which reads the pack once.
        located = files.join(once, list(_KEY), "left")
        located = spread(located, tasks, F.coalesce("pack", "range_id"))
        return located.sortWithinPartitions("pack")

    def _locate_here(self, files: DataFrame, packs: list[str], existing: DataFrame | None) -> DataFrame:
        """``locate`` in this process: Spark would take 0.3 s."""
        index = self._index_of(packs)
        with driver_errors():
            table = to_arrow(files)
            sizes = None if existing is None else to_arrow(existing)
        fields = list(files.schema.fields)
        if sizes is not None:
            index = index.filter(pc.is_in(index["range_id"], sizes["range_id"]))
            size_bytes = sizes["size_bytes"].take(pc.index_in(table["range_id"], sizes["range_id"]))
            table = table.append_column("size_bytes", size_bytes)
            fields.append(StructField("size_bytes", LongType()))
        # Two concurrent runs may both have cached a file.
        once = index.group_by(list(_KEY), use_threads=False).aggregate([(name, "first") for name in _POSITION.names])
        once = once.select([*_KEY, *(f"{name}_first" for name in _POSITION.names)])
        once = once.rename_columns([*_KEY, *_POSITION.names])
        keys = table.select(_KEY).append_column("row", pa.array(range(table.num_rows), pa.int64()))
        positions = keys.join(once, list(_KEY)).sort_by("row")
        for name in _POSITION.names:
            table = table.append_column(name, positions[name])
        return rows_of(files.sparkSession, table, StructType([*fields, *_POSITION.fields]))

    def _index_of(self, packs: list[str]) -> pa.Table:
        """Return the index of packs (columns ``_INDEX``). An index never changes, so each is read once."""
        known = _INDEXES_READ.get(self.location.url, {})
        indexes = {pack: known[pack] if pack in known else self._read_index(pack) for pack in packs}
        _INDEXES_READ[self.location.url] = {pack: index for pack, index in indexes.items() if index.num_rows}
        return pa.concat_tables([arrow_schema(_INDEX).empty_table(), *indexes.values()])

    def _read_index(self, pack: str) -> pa.Table:
        names = pa.RecordBatch.from_pydict({"pack": [pack]})
        return work_here([names], _read_indexes(self.location), arrow_schema(_INDEX))

    def prune(self) -> list[str]:
        """Remove the least recently used packs above ``max_bytes``; return the names of the remaining packs."""
        store = open_store(self.location)
        packs = _listed(store, _PACKS)
        if not packs:
            return []
        indexes, used = _listed(store, _INDEXES), _listed(store, _USED)
        now = store.now()
        last_use = {pack: max(when, used.get(pack, (0, when))[1]) for pack, (_, when) in packs.items()}
        remaining_bytes = sum(size for size, _ in packs.values())
        dropped = {pack for pack in packs.keys() - indexes.keys() if now - last_use[pack] > _ORPHAN_AGE}
        for pack in sorted(packs, key=lambda pack: last_use[pack]):
            if remaining_bytes <= self.max_bytes:
                break
            remaining_bytes -= packs[pack][0]
            dropped.add(pack)
        if dropped:
            logger.info("range cache: removing %d packs to keep it below %d bytes", len(dropped), self.max_bytes)
            _drop(store, sorted(dropped))
        return sorted(packs.keys() & indexes.keys() - dropped)


def in_files(located: DataFrame, work: Work, schema: StructType | str, cores: int) -> DataFrame:
    """Return ``in_arrow`` for work that calls ``read_through`` on the files of ``locate``."""
    tasks = min(cores * _TASKS_PER_CORE, _MOST_TASKS)
    return in_arrow(located, work, schema, fits=partial(few_to_read, cores), tasks=tasks)


def few_to_read(cores: int, located: pa.Table) -> bool:
    """Return whether the process of a small run reads the files of ``locate`` itself.

    They may be more if the column ``size_bytes`` says how large those are that are not in the cache.
    """
    cold = located.filter(pc.is_null(located["pack"]))
    cached_bytes = pc.sum(located["length"]).as_py() or 0
    most_files = _FEW_FILES
    if "size_bytes" in located.column_names and not cold["size_bytes"].null_count:
        cold_bytes = pc.sum(cold["size_bytes"]).as_py() or 0
        most_files = max(_FEW_SMALL_FILES, _FEW_SMALL_FILES_TIMES_CORES // cores) if cold_bytes <= _FEW_BYTES else 0
    return cold.num_rows <= most_files and cached_bytes <= _FEW_CACHED_BYTES


def read_through(
    batches: Batches,
    cache: RangeCache,
    cores: int,
    decode: Callable[[bytes, str, Row], Decoded | None],
    *,
    refused: Refusal | None = None,
) -> Iterator[tuple[Row, Decoded]]:
    """Read, in a worker, the files of ``locate`` from the cache or their stores; yield each row and decoded content.

    ``decode`` gets the content, its name for errors, and the row. It raises ``CorruptFileError`` if the content is
    damaged; a damaged file of the cache is then read from its store. It returns None for a file to skip. Files from the
    store that were decoded are added to the cache. Raises the errors of ``read_named`` (``refused`` is for it), also
    ``ObjectNotFoundError``.
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
                logger.warning("range cache: a file is damaged, reading it from its store: %s", error)
                reader.drop(row["pack"])
                cold.append(row)
                continue
            if decoded is not None:
                yield row, decoded
        for store_url in {row["store_url"] for row in cold}:
            by_key = {_name(row): row for row in cold if row["store_url"] == store_url}
            store = worker_store(StoreLocation(store_url))
            at_once = _reads_at_once(by_key.values())
            for key, data in _together(read_named(store, by_key, concurrency=at_once, refused=refused)):
                row = by_key[key]
                decoded = decode(data, _name(row), row)
                if decoded is not None:
                    yield row, decoded
                    writer.add(row, data)
    writer.write()
    if writer.skipped and cache.max_bytes:
        logger.warning(
            "range cache: no space for %d files of %d bytes of this task, so the next run reads them again: "
            "raise max_range_cache_bytes (%d)",
            writer.skipped,
            writer.skipped_bytes,
            cache.max_bytes,
        )


def _together(files: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yield small files when many of them were read: while threads send requests, each step of decoding waits for them.

    For 4,003 files of 3 KB both took a process 5.5 s, and 6.1 s when each was decoded as soon as it was there.
    """
    waiting: list[tuple[str, bytes]] = []
    waiting_bytes = 0
    for file in files:
        waiting.append(file)
        waiting_bytes += len(file[1])
        if waiting_bytes >= _DECODED_TOGETHER_BYTES:
            yield from waiting
            waiting, waiting_bytes = [], 0
    yield from waiting


def _reads_at_once(rows: Iterable[Row]) -> int:
    """As many for one process as two workers have at once, if the rows state that all files are small."""
    are_small = all((row.get("size_bytes") or _SMALL_BYTES) < _SMALL_BYTES for row in rows)
    return _SMALL_READS_AT_ONCE if are_small else _READS_AT_ONCE


def _name(row: Row) -> str:
    return f"{METADATA_FOLDER}{row['range_id']}"


def _digest(store_url: str, range_id: str, data: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(f"{_READ_AS}\0{store_url}\0{range_id}\0".encode())
    digest.update(data)
    return digest.digest()


class _PackReader:
    """Reads files from packs, with one pack in memory at a time."""

    def __init__(self, cache: RangeCache) -> None:
        self._cache = cache
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
        logger.warning("range cache: a file has another digest, reading it from its store: %s", _name(row))
        self.drop(row["pack"])
        return None

    def drop(self, pack: str) -> None:
        """Remove a pack with a damaged file, together with its index."""
        if pack == self._pack:
            self._content = None
        _drop(worker_store(self._cache.location), [pack])

    def _read_pack(self, pack: str) -> bytes | None:
        store = worker_store(self._cache.location)
        try:
            content = store.read(_PACKS + pack)
            store.put(_USED + pack, b"")
        except ObjectNotFoundError:  # another run pruned the cache
            return None
        except StorageError as error:
            logger.warning("range cache: a pack cannot be read: %s", error)
            return None
        return content


@dataclass
class _PackWriter:
    """Collects files, and writes a pack whenever they reach ``_PACK_BYTES``."""

    cache: RangeCache
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
        key = {name: row[name] for name in _KEY}
        digest = _digest(row["store_url"], row["range_id"], data)
        self._index.append({**key, "offset": self._bytes, "length": len(data), "digest": digest})
        self._files.append(data)
        self._bytes += len(data)
        if self._bytes >= _PACK_BYTES:
            self.write()

    def write(self) -> None:
        """Write a pack of the files that were added since the last pack."""
        if not self._index:
            return
        pack = uuid.uuid4().hex
        index = parquet_bytes(pa.RecordBatch.from_pylist(self._index, schema=INDEX_FILE))
        store = worker_store(self.cache.location)
        try:
            store.put(_PACKS + pack, b"".join(self._files))
            store.put(_INDEXES + pack, index)
        except StorageError as error:
            logger.warning("range cache: a pack cannot be written: %s", error)
        self._files, self._index, self._bytes = [], [], 0


@worker
def _read_indexes(batches: Batches, location: StoreLocation) -> Batches:
    store = worker_store(location)
    for pack in strings(batches, "pack"):
        try:
            index = pq.ParquetFile(io.BytesIO(store.read(_INDEXES + pack))).read().cast(INDEX_FILE).drop_null()
        except ObjectNotFoundError:
            continue
        except (pa.ArrowException, OSError, ValueError) as error:
            logger.warning("range cache: an index is damaged, removing it and its pack: %s", str(error)[:200])
            _drop(store, [pack])
            continue
        for batch in index.to_batches():
            columns = (batch.column(name) for name in ("offset", "length", "digest"))
            keys = (batch.column(name) for name in _KEY)
            yield pa.record_batch([*keys, pa.repeat(pack, batch.num_rows), *columns], names=_INDEX.names)


def _listed(store: ObjectStore, folder: str) -> dict[str, tuple[int, datetime]]:
    """Return size and modification time of the objects in a folder, by their name in it."""
    objects = {}
    for batch in store.list(folder):
        for row in batch.to_pylist():
            objects[row["address"].removeprefix(folder)] = (row["size"], row["last_modified"])
    return objects


def _drop(store: ObjectStore, packs: Iterable[str]) -> None:
    for folder in (_INDEXES, _PACKS, _USED):
        store.delete_many([folder + pack for pack in packs])
