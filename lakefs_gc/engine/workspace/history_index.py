"""The index of a history in the workspace, so that one object is explained without reading every range again.

It has three kinds of rows, in Parquet files below ``_history_index/v4/<key>/``: for a range, a fingerprint of 32 bits
for each of its addresses; for a metarange, the ids of its ranges; and again for a range, its first and last path, as a
metarange states them. All describe files that never change. A fingerprint can only cost a read: a range whose
fingerprints have that of an address is read, and the address is compared. So can the first and last path.

The tasks of a run add the metaranges and ranges that they read from the store, and a question adds what is still
missing. The index may be removed at any time. A file of it that is damaged is ignored, and what it described is read
again.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakefs_gc.engine.spark.workers import worker_store
from lakefs_gc.engine.workspace.fingerprints import Prints, fingerprints
from lakefs_gc.engine.workspace.range_cache import RangeCache, Row
from lakefs_gc.errors import StorageError
from lakefs_gc.formats.addresses import ADDRESS_READING
from lakefs_gc.formats.parquet import parquet_bytes
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.formats.sstable.reader import Table
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.storage.base import ObjectStore

logger = logging.getLogger(__name__)

_FOLDER = "_history_index/v4/"
_MOST_FILES = 12
"""More files than these are merged into one, without what the history no longer has."""
_MOST_NAMES = 1_000_000
"""The most names of ranges that a task holds: 100 MB."""
_SCHEMA = pa.schema(
    [
        ("file_id", pa.string()),
        ("prints", pa.large_binary()),
        ("range_ids", pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        ("min_key", pa.large_binary()),
        ("max_key", pa.large_binary()),
    ]
)

Bounds = tuple[bytes, bytes]
"""The first and the last path of a range."""

Numbers = np.ndarray
"""Positions in ``RangeNames.names``."""


class RangeNames:
    """The ids of ranges, each with a number: many commits name the same ones."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._number_of: dict[str, int] = {}

    def numbers(self, range_ids: Iterable[str]) -> Numbers:
        """Return the numbers of ranges. Adds those that are new."""
        number_of = self._number_of
        numbers = [number_of.setdefault(range_id, len(number_of)) for range_id in range_ids]
        self.names += list(islice(number_of, len(self.names), None))
        return np.array(numbers, np.int64)


@dataclass
class _Rows:
    """Rows of the index: by range, by metarange, and by range."""

    prints: dict[str, Prints] = field(default_factory=dict)
    ranges_of: dict[str, Numbers] = field(default_factory=dict)
    bounds: dict[str, Bounds] = field(default_factory=dict)

    def only(self, kept: Collection[str]) -> _Rows:
        """Return the rows of some files."""
        return _Rows(
            {file_id: each for file_id, each in self.prints.items() if file_id in kept},
            {file_id: each for file_id, each in self.ranges_of.items() if file_id in kept},
            {file_id: each for file_id, each in self.bounds.items() if file_id in kept},
        )

    def __bool__(self) -> bool:
        return bool(self.prints or self.ranges_of or self.bounds)


@dataclass
class HistoryIndex:
    """The index of one namespace: what ``read`` found, and what was added since."""

    store: ObjectStore
    folder: str
    prints: dict[str, Prints] = field(default_factory=dict)
    ranges_of: dict[str, Numbers] = field(default_factory=dict)
    bounds: dict[str, Bounds] = field(default_factory=dict)
    ranges: RangeNames = field(default_factory=RangeNames)
    _files: list[str] = field(default_factory=list)
    _new: _Rows = field(default_factory=_Rows)

    @classmethod
    def read(cls, store: ObjectStore, known: KnownFolders) -> HistoryIndex:
        """Read the index of a namespace from the workspace. It is empty if the workspace cannot be read."""
        index = cls(store, _folder_of(known))
        try:
            keys = [key for batch in store.list(index.folder) for key in batch.column("address").to_pylist()]
            for key, content in store.read_many(keys):
                index._load(key, content)
        except StorageError as error:
            logger.warning("the index of the history cannot be read: %s", error.message)
        return index

    def _load(self, key: str, content: bytes) -> None:
        try:
            table = pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
            if table.schema.remove_metadata() != _SCHEMA:
                raise ValueError("it has other columns")
        except (pa.ArrowException, OSError, ValueError) as error:
            logger.warning("the index of the history: %s is damaged, and is ignored: %s", key, str(error)[:200])
            return
        self._files.append(key)
        for batch in table.to_batches():
            self._load_metaranges(batch.filter(pc.is_valid(batch.column("range_ids"))))
            rows = batch.filter(pc.is_null(batch.column("range_ids")))
            columns = (rows.column(name) for name in ("file_id", "prints", "min_key", "max_key"))
            for file_id, prints, min_key, max_key in zip(*columns, strict=True):
                if prints.is_valid:
                    self.prints[file_id.as_py()] = np.frombuffer(prints.as_buffer(), np.uint32)
                elif min_key.is_valid and max_key.is_valid:
                    widen(self.bounds, file_id.as_py(), (min_key.as_py(), max_key.as_py()))

    def _load_metaranges(self, metaranges: pa.RecordBatch) -> None:
        """Add metaranges (columns ``_SCHEMA``) without a step for each name: 30,000 commits may have three million."""
        lists = metaranges.column("range_ids")
        flat = lists.flatten()
        of_dictionary = self.ranges.numbers(flat.dictionary.to_pylist())
        numbers = of_dictionary[flat.indices.to_numpy(zero_copy_only=False)]
        ends = np.cumsum(pc.list_value_length(lists).to_numpy(zero_copy_only=False))
        each = np.split(numbers, ends[:-1]) if len(ends) else []
        self.ranges_of.update(zip(metaranges.column("file_id").to_pylist(), each, strict=True))

    def may_have(self, file_id: str, wanted: Prints) -> bool:
        """Return whether a range may have an address with one of the fingerprints. True for one not in the index."""
        prints = self.prints.get(file_id)
        if prints is None:
            return True
        if len(wanted) > 4:
            return bool(np.isin(wanted, prints).any())
        return any(bool((prints == each).any()) for each in wanted)

    def may_have_path(self, file_id: str, paths: Collection[bytes]) -> bool:
        """Return whether a range may have one of ``paths``, or one below a path that ends in a slash.

        True for a range not in the index.
        """
        if file_id not in self.bounds:
            return True
        first, last = self.bounds[file_id]
        # Everything below a path sorts after it, and before everything else that sorts after it.
        return any(path <= last and (first[: len(path)] if path.endswith(b"/") else first) <= path for path in paths)

    def add(self, prints: Mapping[str, Prints]) -> None:
        """Add ranges that were read. ``write`` makes them durable."""
        self._new.prints |= prints
        self.prints |= prints

    def add_metarange(self, metarange_id: str, bounds: Mapping[str, Bounds]) -> None:
        """Add a metarange that was read, with the bounds of its ranges in their order. ``write`` makes it durable."""
        self.ranges_of[metarange_id] = self._new.ranges_of[metarange_id] = self.ranges.numbers(bounds)
        for range_id, each in bounds.items():
            if widen(self.bounds, range_id, each):
                self._new.bounds[range_id] = self.bounds[range_id]

    def write(self, existing: Collection[str]) -> None:
        """Write what was added. ``existing`` are the metadata files of the namespace. A failure is only logged."""
        merges = len(self._files) >= _MOST_FILES
        if not (self._new or merges):
            return
        rows = _Rows(self.prints, self.ranges_of, self.bounds).only(set(existing)) if merges else self._new
        try:
            _write(self.store, self.folder, rows, self.ranges.names)
            if merges:
                self.store.delete_many(self._files)
        except StorageError as error:
            logger.warning("the index of the history cannot be written: %s", error.message)
        self._new = _Rows()


def widen(known: dict[str, Bounds], range_id: str, bounds: Bounds) -> bool:
    """Make the known bounds of a range include ``bounds``, and return whether that changed them.

    All metaranges state the same. If they do not, a range is read rather than left out.
    """
    before = known.get(range_id)
    if before == bounds:
        return False
    wider = bounds if before is None else (min(before[0], bounds[0]), max(before[1], bounds[1]))
    known[range_id] = wider
    return wider != before


class RunIndex:
    """Collects, in a task of a run, what the index has of the files that it reads from the store, not from the cache.

    What is in the cache is in the index, too. Without a cache nothing is collected: each run would add every file.
    """

    def __init__(self, cache: RangeCache, known: KnownFolders) -> None:
        self._cache, self._known = cache, known
        self._rows, self._ranges, self._names = _Rows(), RangeNames(), 0

    def add(self, row: Row, entries: Iterable[pa.RecordBatch]) -> None:
        """Add a file of ``read_through``; ``entries`` have every address that it has in the namespace."""
        if self._is_new(row):
            found = [fingerprints(rows.column("address")) for rows in entries]
            self._rows.prints[row["range_id"]] = np.concatenate(found) if found else np.empty(0, np.uint32)

    def read_metarange(self, row: Row, data: bytes | Table, file: str) -> None:
        """Read a metarange of ``read_through`` and add it. Raise ``CorruptRangeError``."""
        if self._is_new(row):
            self.add_metarange(row, read_metarange(data, file))

    def add_metarange(self, row: Row, metarange: pa.RecordBatch) -> None:
        """Add a metarange of ``read_through``; ``metarange`` has the columns ``METARANGE_SCHEMA``."""
        if not self._is_new(row):
            return
        names = metarange.column("range_id").to_pylist()
        self._rows.ranges_of[row["range_id"]] = self._ranges.numbers(names)
        firsts, lasts = (metarange.column(name).to_pylist() for name in ("min_key", "max_key"))
        for name, *each in zip(names, firsts, lasts, strict=True):
            widen(self._rows.bounds, name, (each[0], each[1]))
        self._names += len(names)
        if self._names >= _MOST_NAMES:
            self.write()

    def _is_new(self, row: Row) -> bool:
        return not row["pack"] and self._cache.max_bytes > 0

    def write(self) -> None:
        """Write what was added. A failure is only logged: the next question reads these files again."""
        if self._rows:
            try:
                store = worker_store(self._cache.location)
                _write(store, _folder_of(self._known), self._rows, self._ranges.names)
            except StorageError as error:
                logger.warning("the index of the history cannot be written: %s", error.message)
        self._rows, self._ranges, self._names = _Rows(), RangeNames(), 0


def _folder_of(known: KnownFolders) -> str:
    # How addresses are read decides which fingerprints a range has.
    meaning = repr((known.store.folder_url, known.folders, known.mounts, ADDRESS_READING))
    return f"{_FOLDER}{hashlib.sha256(meaning.encode()).hexdigest()[:32]}/"


def _write(store: ObjectStore, folder: str, rows: _Rows, names: list[str]) -> None:
    by_kind: tuple[dict[str, Any], ...] = (
        {file_id: each.tobytes() for file_id, each in rows.prints.items()},
        rows.ranges_of,
        {file_id: first for file_id, (first, _) in rows.bounds.items()},
    )
    file_ids = [file_id for kind in by_kind for file_id in kind]
    prints, first = (
        pa.array(
            [value for other in by_kind for value in (kind.values() if other is kind else [None] * len(other))],
            pa.large_binary(),
        )
        for kind in (by_kind[0], by_kind[2])
    )
    last = [*[None] * (len(file_ids) - len(rows.bounds)), *(last for _, last in rows.bounds.values())]
    columns = [
        pa.array(file_ids, pa.string()),
        prints,
        _lists(by_kind, names),
        first,
        pa.array(last, pa.large_binary()),
    ]
    content = parquet_bytes(
        pa.record_batch(columns, schema=_SCHEMA),
        compression="none",
        use_dictionary=["range_ids.list.element"],
    )
    store.put(f"{folder}{uuid.uuid4().hex}.parquet", content)


def _lists(by_kind: tuple[dict[str, Any], ...], names: list[str]) -> pa.ListArray:
    """Return the column ``range_ids``: null before and after the metaranges, the second of three kinds of rows."""
    before, metaranges, after = by_kind
    numbers = np.concatenate([np.empty(0, np.int64), *metaranges.values()])
    used, indices = np.unique(numbers, return_inverse=True)
    values = pa.DictionaryArray.from_arrays(
        pa.array(indices, pa.int32()), pa.array([names[number] for number in used.tolist()], pa.string())
    )
    lengths = np.array([0] * len(before) + [len(each) for each in metaranges.values()] + [0] * len(after), np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    is_null = [True] * len(before) + [False] * len(metaranges) + [True] * len(after)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(is_null, pa.bool_()))
