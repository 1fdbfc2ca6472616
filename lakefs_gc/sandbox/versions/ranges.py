"""Read, write, compare and merge the ranges and metaranges of one namespace."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from lakefs_gc.errors import ObjectNotFoundError
from lakefs_gc.formats.entry import encode_value
from lakefs_gc.formats.sstable.table_writer import WrittenTable, write_metarange, write_table
from lakefs_gc.sandbox.problems import Conflict, NoChanges
from lakefs_gc.sandbox.state.records import Change, Difference, DifferenceType, Record, compare
from lakefs_gc.sandbox.versions.range_tables import RangeInfo, read_metarange_ranges, read_range_records
from lakefs_gc.storage.base import ObjectStore

METADATA_FOLDER = "_lakefs/"


@dataclass(frozen=True)
class RangeLimits:
    """The conditions for a full range, as in lakeFS.

    A range ends at ``max_size_bytes``, or after a key whose hash is 0 modulo ``raggedness_entries``. So the same
    content is split at the same keys, independent of earlier writes.
    """

    max_size_bytes: int = 20 << 20
    raggedness_entries: int = 50_000

    def break_after(self, key: bytes, size_bytes: int) -> bool:
        """Return whether a range of this size ends with this key."""
        return size_bytes >= self.max_size_bytes or fnv1a_64(key) % self.raggedness_entries == 0


class Committed:
    """The trees of one repository. The name of a tree is its metarange id. The empty id names the empty tree.

    Ranges and metaranges are named by their content and never change: those read are kept for the next
    reader.
    """

    def __init__(self, store: ObjectStore, limits: RangeLimits, *, cached_records: int = 200_000) -> None:
        self._store = store
        self._limits = limits
        self._cached_records = cached_records
        self._cache: OrderedDict[str, _Table] = OrderedDict()
        self._cache_size = 0
        self._lock = threading.Lock()

    # -- reading

    def exists(self, meta_range_id: str) -> bool:
        """Return whether the tree is in the store."""
        try:
            self.ranges(meta_range_id)
        except ObjectNotFoundError:
            return False
        return True

    def ranges(self, meta_range_id: str) -> Sequence[RangeInfo]:
        """Return the ranges of a tree, ascending."""
        return self._metarange(meta_range_id).ranges if meta_range_id else ()

    def records(self, meta_range_id: str, start: bytes = b"") -> Iterator[Record]:
        """Yield the records of a tree, ascending, from the path ``start`` on."""
        if not meta_range_id:
            return
        tree = self._metarange(meta_range_id)
        for info in tree.ranges[bisect_left(tree.keys, start) :]:
            table = self._range(info.id)
            yield from islice(table.records, bisect_left(table.keys, start), None)

    def get(self, meta_range_id: str, key: bytes) -> Record | None:
        """Return the record at a path."""
        return self.getter(meta_range_id)(key)

    def getter(self, meta_range_id: str) -> Callable[[bytes], Record | None]:
        """Return ``get`` for many paths of one tree. It holds what it read last.

        Where many threads share a lock, a look into the cache for each of a million paths takes most of their time.
        """
        tree = self._metarange(meta_range_id) if meta_range_id else _Table()
        range_id, table = "", _Table()

        def get(key: bytes) -> Record | None:
            nonlocal range_id, table
            position = bisect_left(tree.keys, key)
            if position == len(tree.keys) or key < tree.ranges[position].min_key:
                return None
            if tree.ranges[position].id != range_id:
                range_id = tree.ranges[position].id
                table = self._range(range_id)
            position = bisect_left(table.keys, key)
            is_found = position < len(table.keys) and table.keys[position] == key
            return table.records[position] if is_found else None

        return get

    # -- comparing

    def diff(self, left_id: str, right_id: str, start: bytes = b"") -> Iterator[Difference]:
        """Yield the differences of the right tree from the left one, from the path ``start`` on."""
        left, right = self.ranges(left_id), self.ranges(right_id)
        # A range that is in both trees has the same content, and neither tree has other records between its keys.
        shared = {info.id for info in left} & {info.id for info in right}
        return compare(
            self._records_of([info for info in left if info.id not in shared], start),
            self._records_of([info for info in right if info.id not in shared], start),
        )

    def merge_preview(
        self, destination_id: str, source_id: str, base_id: str, start: bytes = b""
    ) -> Iterator[Difference]:
        """Yield the changes of a merge at the destination, including conflicts."""
        for difference in self.diff(destination_id, source_id, start):
            base = _identity(self.get(base_id, difference.key))
            ours, theirs = _identity(difference.left), _identity(difference.right)
            if theirs == base:
                continue  # changed at the destination only
            if ours == base:
                yield difference
            else:
                yield Difference(DifferenceType.CONFLICT, difference.key, difference.left, difference.right)

    # -- writing

    def write(self, items: Iterable[Record | RangeInfo]) -> str:
        """Write a tree of ascending records and whole existing ranges. Return the metarange id."""
        ranges: list[WrittenTable] = []
        pairs: list[tuple[bytes, bytes]] = []
        size_bytes = 0

        def close_range() -> None:
            nonlocal size_bytes
            if pairs:
                table = write_table(pairs, {"type": "ranges"})
                self._put(table)
                ranges.append(table)
                pairs.clear()
                size_bytes = 0

        for item in items:
            if isinstance(item, RangeInfo):
                close_range()
                ranges.append(item.as_written())
                continue
            value = encode_value(item.identity, item.data)
            pairs.append((item.key, value))
            size_bytes += len(item.key) + len(value)
            if self._limits.break_after(item.key, size_bytes):
                close_range()
        close_range()
        metarange = write_metarange(ranges)
        self._put(metarange)
        return metarange.id

    def apply(self, base_id: str, changes: Iterator[Change], *, allow_empty: bool = False) -> str:
        """Apply changes to a tree, and return the new tree. Raise ``NoChanges`` if they change nothing.

        Ranges without a change are reused. A record with the identity of the existing record at its path is not a
        change, so the existing record and its address stay.
        """
        applied = _Applied(self, base_id, changes)
        tree = self.write(applied)
        if not applied.changed and not allow_empty:
            raise NoChanges
        return tree

    def merge(
        self,
        destination_id: str,
        source_id: str,
        base_id: str,
        *,
        strategy: str = "",
        allow_empty: bool = False,
    ) -> str:
        """Return the destination with the changes from the base to the source.

        ``strategy`` is empty, ``source-wins`` or ``dest-wins``: the side that wins if both changed a path.
        Raise ``Conflict`` for such a path without a strategy, and ``NoChanges`` if the source has no changes.
        """
        if source_id == base_id and not allow_empty:
            raise NoChanges
        if destination_id == base_id:
            return source_id
        changes = self._merge_changes(destination_id, source_id, base_id, strategy)
        return self.apply(destination_id, changes, allow_empty=True)

    def _merge_changes(self, destination_id: str, source_id: str, base_id: str, strategy: str) -> Iterator[Change]:
        for difference in self.merge_preview(destination_id, source_id, base_id):
            if difference.type is DifferenceType.CONFLICT:
                if not strategy:
                    raise Conflict
                if strategy == "dest-wins":
                    continue
            yield Change(difference.key, difference.right)

    # -- files

    def records_of(self, info: RangeInfo) -> Sequence[Record]:
        """Return all records of one range."""
        return self._range(info.id).records

    def _records_of(self, ranges: Iterable[RangeInfo], start: bytes) -> Iterator[Record]:
        for info in ranges:
            if info.max_key >= start:
                table = self._range(info.id)
                yield from islice(table.records, bisect_left(table.keys, start), None)

    def _put(self, table: WrittenTable) -> None:
        self._store.put(METADATA_FOLDER + table.id, table.data, if_absent=True)

    def _metarange(self, meta_range_id: str) -> _Table:
        return self._cached(meta_range_id, is_metarange=True)

    def _range(self, range_id: str) -> _Table:
        return self._cached(range_id, is_metarange=False)

    def _cached(self, table_id: str, *, is_metarange: bool) -> _Table:
        with self._lock:
            table = self._cache.get(table_id)
            if table is not None:
                self._cache.move_to_end(table_id)
                return table
        file = METADATA_FOLDER + table_id
        data = self._store.read(file)
        if is_metarange:
            ranges = read_metarange_ranges(data, file=file)
            table = _Table(ranges=ranges, keys=[info.max_key for info in ranges])
        else:
            records = read_range_records(data, file=file)
            table = _Table(records=records, keys=[record.key for record in records])
        with self._lock:
            if table_id not in self._cache:
                self._cache[table_id] = table
                self._cache_size += table.size
            while self._cache_size > self._cached_records and len(self._cache) > 1:
                _, dropped = self._cache.popitem(last=False)
                self._cache_size -= dropped.size
        return table


@dataclass(frozen=True)
class _Table:
    """A decoded range, with the keys of its records, or metarange, with the last keys of its ranges."""

    records: Sequence[Record] = ()
    keys: Sequence[bytes] = ()
    ranges: Sequence[RangeInfo] = ()

    @property
    def size(self) -> int:
        return len(self.records) + len(self.ranges)


class _Applied:
    """The records and whole ranges of a tree with changes. After the walk, ``changed`` tells if any applied."""

    def __init__(self, committed: Committed, base_id: str, changes: Iterator[Change]) -> None:
        self._committed = committed
        self._base_id = base_id
        self._changes = changes
        self._next = next(changes, None)
        self.changed = False

    def __iter__(self) -> Iterator[Record | RangeInfo]:
        for info in self._committed.ranges(self._base_id):
            yield from self._added(before=info.min_key)
            if self._next is None or self._next.key > info.max_key:
                yield info
                continue
            for record in self._committed.records_of(info):
                yield from self._added(before=record.key)
                if self._next is not None and self._next.key == record.key:
                    yield from self._replaced(record, self._next)
                    self._next = next(self._changes, None)
                else:
                    yield record
        yield from self._added(before=None)

    def _added(self, *, before: bytes | None) -> Iterator[Record]:
        while self._next is not None and (before is None or self._next.key < before):
            if self._next.record is not None:
                self.changed = True
                yield self._next.record
            self._next = next(self._changes, None)

    def _replaced(self, record: Record, change: Change) -> Iterator[Record]:
        if change.record is None:
            self.changed = True
        elif change.record.identity == record.identity:
            yield record
        else:
            self.changed = True
            yield change.record


def _identity(record: Record | None) -> bytes | None:
    return None if record is None else record.identity


def fnv1a_64(data: bytes) -> int:
    """Return the 64-bit FNV-1a hash, by which lakeFS chooses the last keys of ranges."""
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return digest
