"""The index of a history in the workspace, so that one object is explained without reading every range again.

It has three kinds of rows, in Parquet files below ``_history_index/v2/<key>/``: for a range, a fingerprint of 32 bits
for each of its addresses; for a metarange, the ids of its ranges; and again for a range, its first and last path, as a
metarange states them. All describe files that never change. A fingerprint can only cost a read: a range whose
fingerprints have that of an address is read, and the address is compared. So can the first and last path.

The tasks of a run add the ranges that they read from the store, and a question adds what is still missing. The index
may be removed at any time. A file of it that is damaged is ignored, and what it described is read again.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakefs_gc.engine.spark.workers import worker_store
from lakefs_gc.engine.workspace.range_cache import RangeCache, Row
from lakefs_gc.errors import StorageError
from lakefs_gc.formats.addresses import ADDRESS_READING
from lakefs_gc.formats.parquet import parquet_bytes
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.storage.base import ObjectStore

logger = logging.getLogger(__name__)

_FOLDER = "_history_index/v2/"
_MOST_FILES = 12
"""More files than these are merged into one, without what the history no longer has."""
_READ_BYTES = 16  # the end of an address differs most
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_SCHEMA = pa.schema(
    [
        ("file_id", pa.string()),
        ("prints", pa.large_binary()),
        ("range_ids", pa.list_(pa.string())),
        ("min_key", pa.large_binary()),
        ("max_key", pa.large_binary()),
    ]
)

Prints = np.ndarray
"""The fingerprints of the addresses of a range: 32-bit numbers."""

Bounds = tuple[bytes, bytes]
"""The first and the last path of a range."""


@dataclass
class _Rows:
    """Rows of the index: by range, by metarange, and by range."""

    prints: dict[str, Prints] = field(default_factory=dict)
    ranges_of: dict[str, list[str]] = field(default_factory=dict)
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
    ranges_of: dict[str, list[str]] = field(default_factory=dict)
    bounds: dict[str, Bounds] = field(default_factory=dict)
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
            table = pq.read_table(pa.BufferReader(content), page_checksum_verification=True).cast(_SCHEMA)
        except (pa.ArrowException, OSError, ValueError) as error:
            logger.warning("the index of the history: %s is damaged, and is ignored: %s", key, str(error)[:200])
            return
        self._files.append(key)
        for batch in table.to_batches():
            columns = (batch.column(name) for name in _SCHEMA.names)
            for file_id, prints, ranges, min_key, max_key in zip(*columns, strict=True):
                if prints.is_valid:
                    self.prints[file_id.as_py()] = np.frombuffer(prints.as_buffer(), np.uint32)
                elif ranges.is_valid:
                    self.ranges_of[file_id.as_py()] = ranges.as_py()
                elif min_key.is_valid and max_key.is_valid:
                    self._widen(file_id.as_py(), (min_key.as_py(), max_key.as_py()))

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
        self.ranges_of[metarange_id] = self._new.ranges_of[metarange_id] = list(bounds)
        for range_id, each in bounds.items():
            if self._widen(range_id, each):
                self._new.bounds[range_id] = self.bounds[range_id]

    def _widen(self, range_id: str, bounds: Bounds) -> bool:
        """Make the bounds of a range include ``bounds``, and return whether that changed them.

        All metaranges state the same. If they do not, a range is read rather than left out.
        """
        known = self.bounds.get(range_id, bounds)
        wider = min(known[0], bounds[0]), max(known[1], bounds[1])
        if self.bounds.get(range_id) == wider:
            return False
        self.bounds[range_id] = wider
        return True

    def write(self, existing: Collection[str]) -> None:
        """Write what was added. ``existing`` are the metadata files of the namespace. A failure is only logged."""
        merges = len(self._files) >= _MOST_FILES
        if not (self._new or merges):
            return
        rows = _Rows(self.prints, self.ranges_of, self.bounds).only(set(existing)) if merges else self._new
        try:
            _write(self.store, self.folder, rows)
            if merges:
                self.store.delete_many(self._files)
        except StorageError as error:
            logger.warning("the index of the history cannot be written: %s", error.message)
        self._new = _Rows()


class RunIndex:
    """Collects, in a task of a run, the fingerprints of the ranges that it reads from the store, not from the cache.

    What is in the cache is in the index, too. Without a cache nothing is collected: each run would add every range.
    """

    def __init__(self, cache: RangeCache, known: KnownFolders) -> None:
        self._cache, self._known = cache, known
        self._prints: dict[str, Prints] = {}

    def add(self, row: Row, entries: Iterable[pa.RecordBatch]) -> None:
        """Add a file of ``read_through``; ``entries`` have every address that it has in the namespace."""
        if not row["pack"] and self._cache.max_bytes:
            found = [fingerprints(rows.column("address")) for rows in entries]
            self._prints[row["range_id"]] = np.concatenate(found) if found else np.empty(0, np.uint32)

    def write(self) -> None:
        """Write what was added. A failure is only logged: the next question reads these ranges again."""
        if self._prints:
            try:
                _write(worker_store(self._cache.location), _folder_of(self._known), _Rows(self._prints))
            except StorageError as error:
                logger.warning("the index of the history cannot be written: %s", error.message)


def _folder_of(known: KnownFolders) -> str:
    # How addresses are read decides which fingerprints a range has.
    meaning = repr((known.store.folder_url, known.folders, known.mounts, ADDRESS_READING))
    return f"{_FOLDER}{hashlib.sha256(meaning.encode()).hexdigest()[:32]}/"


def _write(store: ObjectStore, folder: str, rows: _Rows) -> None:
    by_kind: tuple[dict[str, Any], ...] = (
        {file_id: each.tobytes() for file_id, each in rows.prints.items()},
        rows.ranges_of,
        {file_id: first for file_id, (first, _) in rows.bounds.items()},
    )
    file_ids = [file_id for kind in by_kind for file_id in kind]
    values = [
        [value for other in by_kind for value in (kind.values() if other is kind else [None] * len(other))]
        for kind in by_kind
    ]
    last = [*[None] * (len(file_ids) - len(rows.bounds)), *(last for _, last in rows.bounds.values())]
    columns = [pa.array(column, each.type) for column, each in zip((file_ids, *values, last), _SCHEMA, strict=True)]
    content = parquet_bytes(
        pa.record_batch(columns, schema=_SCHEMA),
        compression="none",
        write_page_checksum=True,
        use_dictionary=["range_ids.list.element"],
    )
    store.put(f"{folder}{uuid.uuid4().hex}.parquet", content)


def fingerprints(addresses: pa.StringArray) -> Prints:
    """Return a fingerprint of each address, which depends on nothing but its bytes."""
    if not len(addresses):
        return np.empty(0, np.uint32)
    _, offsets, content = addresses.buffers()
    ends = np.frombuffer(offsets, np.int32)[addresses.offset : addresses.offset + len(addresses) + 1]
    lengths, ends = np.diff(ends), ends[1:].astype(np.int64)
    prints = np.empty(len(addresses), np.uint32)
    is_long = lengths >= _READ_BYTES
    if is_long.any():
        # Eight bytes at any position, as one number.
        numbers = np.ndarray((content.size - 7,), "<u8", content, strides=(1,))
        at = ends[is_long]
        mixed = numbers[at - 8] * _FACTORS[0] ^ numbers[at - _READ_BYTES] * _FACTORS[1]
        prints[is_long] = (mixed >> np.uint64(32)).astype(np.uint32)
    for row in np.flatnonzero(~is_long).tolist():
        digest = hashlib.blake2b(addresses[row].as_py().encode(), digest_size=4).digest()
        prints[row] = int.from_bytes(digest, "little")
    return prints
