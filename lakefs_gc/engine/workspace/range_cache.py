"""The range cache: ranges and metaranges that earlier runs read, stored in the workspace.

A range never changes, so a run reads only the ranges that no earlier run read. The cache stores the files themselves,
byte for byte. Decoding a file is faster than reading its rows from Parquet, and the file takes a third of the space.
It has every column that a stage may need, and it is verified like a file from the store.

The files of the cache are those of ``packs.py``. It can only save work. A cached file is identified by its store, its
name, and the SHA-256 over these and its content. A file that is missing, damaged, or from another store is read from
its own store. Two runs may use the cache at once: the names of packs are unique, and every object is written whole or
not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from lakefs_gc.engine.spark.compat import arrow_schema, to_arrow
from lakefs_gc.engine.spark.local_rows import local_rows, rows_of
from lakefs_gc.engine.spark.scale import Work, in_arrow, is_small, spread, work_here
from lakefs_gc.engine.spark.workers import Batches, driver_errors, worker_store
from lakefs_gc.engine.workspace.named_files import Refusal, read_named
from lakefs_gc.engine.workspace.packs import (
    INDEX,
    INDEXES,
    KEY,
    PACK_BYTES,
    PACKS,
    POSITION,
    USED,
    PackReader,
    PackWriter,
    drop_packs,
    listed_packs,
    read_indexes,
)
from lakefs_gc.engine.workspace.packs import Row as Row
from lakefs_gc.errors import CorruptFileError
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

if TYPE_CHECKING:
    from lakefs_gc.formats.sstable.reader import TableData

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

_READS_AT_ONCE = 8  # of up to 20 MB each
_SMALL_READS_AT_ONCE, _SMALL_BYTES = 32, 1024**2
"""Of a process. Where a store answers after 30 ms, two workers read 2,000 ranges and 3,000 metaranges in 6.6 s, and in
11.6 s with 8 reads at once."""
_SMALL_READS_OF_ALL = 128
"""Of a process times the cores, beyond ``_READS_AT_ONCE`` of each: a cluster must not send a store thousands."""
_DECODED_TOGETHER_BYTES = 8 * 1024**2
_TASKS_PER_CORE = 4
_TASK = "task"
_ORPHAN_AGE = timedelta(hours=6)  # of a pack without an index: a writer may still be about to write the index

_INDEXES_READ: dict[str, dict[str, pa.Table]] = {}
"""The indexes that this process has read, by cache and pack: those of a small run, which locates files six times."""

Decoded = TypeVar("Decoded")


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
        return min(self.max_bytes, max(PACK_BYTES, self.max_bytes // (cores * _TASKS_PER_CORE)))

    def locate(
        self, spark: SparkSession, files: DataFrame, *, cores: int, existing: DataFrame | None = None
    ) -> DataFrame:
        """Add the position in the cache to each file, and distribute the files over tasks, for ``read_through``.

        ``files`` has the columns ``store_url`` (with a final slash) and ``range_id``, and any others. If it matters
        that a file still exists in its store, ``existing`` (columns ``range_id`` and ``size_bytes``) lists the files
        that do. All others are read from the store, never from the cache. Then the files get the column ``size_bytes``,
        too. Removes the least recently used packs of a cache that is too large.
        """
        packs = self.prune()
        if is_small(spark):
            return self._locate_here(files, packs, existing)
        tasks = cores * _TASKS_PER_CORE
        if existing is not None:
            files = files.join(existing.select("range_id", "size_bytes"), "range_id", "left")
        if not packs:
            no_position = (F.lit(None).cast(column.dataType).alias(column.name) for column in POSITION)
            return spread(files.select("*", *no_position), tasks, "range_id")
        names = spread(local_rows(spark, [(pack,) for pack in packs], "pack string"), min(cores, len(packs)))
        index = in_arrow(names, read_indexes(self.location), INDEX)
        # Two concurrent runs may both have cached a file.
        once = index.groupBy(*KEY).agg(F.max(F.struct(*POSITION.names)).alias("position")).select(*KEY, "position.*")
        # All files of a pack go to one task, which reads the pack once, also those that turn out not to exist: another
        # list of the files must not send any of them elsewhere. Broadcast, because an index must not be read
        # again in the middle: the files of a pack that is gone by then would go to other tasks, which may have ended.
        located = files.join(F.broadcast(once), list(KEY), "left").withColumn(_TASK, F.coalesce("pack", "range_id"))
        if existing is not None:  # a file that has no size does not exist
            exists = F.col("size_bytes").isNotNull()
            located = located.withColumns({name: F.when(exists, F.col(name)) for name in POSITION.names})
        return spread(located, tasks, _TASK).drop(_TASK).sortWithinPartitions("pack")

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
        once = index.group_by(list(KEY), use_threads=False).aggregate([(name, "first") for name in POSITION.names])
        once = once.select([*KEY, *(f"{name}_first" for name in POSITION.names)])
        once = once.rename_columns([*KEY, *POSITION.names])
        keys = table.select(KEY).append_column("row", pa.array(range(table.num_rows), pa.int64()))
        positions = keys.join(once, list(KEY)).sort_by("row")
        for name in POSITION.names:
            table = table.append_column(name, positions[name])
        return rows_of(files.sparkSession, table, StructType([*fields, *POSITION.fields]))

    def _index_of(self, packs: list[str]) -> pa.Table:
        """Return the index of packs (columns ``INDEX``). An index never changes, so each is read once."""
        known = _INDEXES_READ.get(self.location.url, {})
        indexes = {pack: known[pack] if pack in known else self._read_index(pack) for pack in packs}
        _INDEXES_READ[self.location.url] = {pack: index for pack, index in indexes.items() if index.num_rows}
        return pa.concat_tables([arrow_schema(INDEX).empty_table(), *indexes.values()])

    def _read_index(self, pack: str) -> pa.Table:
        names = pa.RecordBatch.from_pydict({"pack": [pack]})
        return work_here([names], read_indexes(self.location), arrow_schema(INDEX))

    def prune(self) -> list[str]:
        """Remove the least recently used packs above ``max_bytes``; return the names of the remaining packs."""
        store = open_store(self.location)
        packs = listed_packs(store, PACKS)
        if not packs:
            return []
        indexes, used = listed_packs(store, INDEXES), listed_packs(store, USED)
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
            drop_packs(store, sorted(dropped))
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
    decode: Callable[[TableData, str, Row], Decoded | None],
    *,
    refused: Refusal | None = None,
) -> Iterator[tuple[Row, Decoded]]:
    """Read, in a worker, the files of ``locate`` from the cache or their stores; yield each row and decoded content.

    ``decode`` gets the content or its table, its name for errors, and the row. It raises ``CorruptFileError`` if the
    content is damaged; a damaged file of the cache is then read from its store. It returns None for a file to skip.
    Files from the store that were decoded are added to the cache. Raises the errors of ``read_named`` (``refused`` is
    for it), also ``ObjectNotFoundError``.
    """
    reader = PackReader(cache.location)
    writer = PackWriter(cache.location, cache.room_of_task(cores))
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
            store = worker_store(StoreLocation(store_url))
            for at_once, by_key in _by_size([row for row in cold if row["store_url"] == store_url], cores):
                for key, content in _together(read_named(store, by_key, concurrency=at_once, refused=refused)):
                    row = by_key[key]
                    decoded = decode(content, _name(row), row)
                    if decoded is not None:
                        yield row, decoded
                        writer.add(row, _bytes_of(content))
    writer.write()
    if writer.skipped and cache.max_bytes:
        logger.warning(
            "range cache: no space for %d files of %d bytes of this task, so the next run reads them again: "
            "raise max_range_cache_bytes (%d)",
            writer.skipped,
            writer.skipped_bytes,
            cache.max_bytes,
        )


def _together(files: Iterable[tuple[str, TableData]]) -> Iterator[tuple[str, TableData]]:
    """Yield small files when many of them were read: while threads send requests, each step of decoding waits for them.

    For 4,003 files of 3 KB both took a process 5.5 s, and 6.1 s when each was decoded as soon as it was there.
    """
    waiting: list[tuple[str, TableData]] = []
    waiting_bytes = 0
    for file in files:
        waiting.append(file)
        content = file[1]
        waiting_bytes += len(content) if isinstance(content, bytes) else content.decoded.size_bytes
        if waiting_bytes >= _DECODED_TOGETHER_BYTES:
            yield from waiting
            waiting, waiting_bytes = [], 0
    yield from waiting


def _bytes_of(content: TableData) -> bytes:
    data: bytes = content if isinstance(content, bytes) else content.data
    return data


def _by_size(rows: list[Row], cores: int) -> Iterator[tuple[int, dict[str, Row]]]:
    """Yield how many files to read at once, and these files by name: those that are stated to be small, and others."""
    sizes = [row.get("size_bytes") for row in rows]
    small = [row for row, size in zip(rows, sizes, strict=True) if size is not None and size < _SMALL_BYTES]
    large = [row for row, size in zip(rows, sizes, strict=True) if size is None or size >= _SMALL_BYTES]
    if small:
        at_once = max(_READS_AT_ONCE, min(_SMALL_READS_AT_ONCE, _SMALL_READS_OF_ALL // cores))
        yield at_once, {_name(row): row for row in small}
    if large:
        yield _READS_AT_ONCE, {_name(row): row for row in large}


def _name(row: Row) -> str:
    return f"{METADATA_FOLDER}{row['range_id']}"
