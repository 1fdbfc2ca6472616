"""The records of ranges and staging areas, and functions on sorted sequences of records."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple, TypeVar

from lakefs_gc.formats.entry import Entry, decode_entry, encode_entry, entry_identity
from lakefs_gc.formats.protobuf import decode_fields, integer

T = TypeVar("T")

# Tuples, because frozen dataclasses take four times as long to make: a preparation makes millions.


class Record(NamedTuple):
    """A logical path (its bytes) and its entry as it is stored: ``data`` is an ``Entry`` message."""

    key: bytes
    identity: bytes
    data: bytes

    @property
    def path(self) -> str:
        """Return the logical path."""
        return self.key.decode()

    @property
    def entry(self) -> Entry:
        """Return the entry."""
        return decode_entry(self.data, file=self.path)

    @property
    def size_bytes(self) -> int:
        """Return the size of the entry, without the fields after it: a diff of a large branch has only sizes."""
        for number, value in decode_fields(self.data, file=""):
            if number == 3:
                return integer(value, file="")
        return 0


class Change(NamedTuple):
    """A change to a path: a new record, or None for a removal."""

    key: bytes
    record: Record | None


class DifferenceType(StrEnum):
    """The kind of a difference between the left and the right side. The values are those of the API."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    CONFLICT = "conflict"


class Difference(NamedTuple):
    """A path at which two trees differ: ``left`` is None where it was added, ``right`` where it was
    removed.
    """

    type: DifferenceType
    key: bytes
    left: Record | None
    right: Record | None


def record_of(path: str, entry: Entry) -> Record:
    """Return the record of an entry at a path."""
    return Record(path.encode(), entry_identity(entry), encode_entry(entry))


def overlay(layers: Iterable[Iterator[Change]]) -> Iterator[Change]:
    """Yield sorted layers of changes as one layer. For each key the first layer that has it takes precedence."""
    last: bytes | None = None
    # For equal keys, the merge yields the change of the earlier layer first.
    for change in heapq.merge(*layers, key=lambda change: change.key):
        if change.key != last:
            last = change.key
            yield change


def present(changes: Iterable[Change]) -> Iterator[Record]:
    """Yield the records of changes, without removals."""
    return (change.record for change in changes if change.record is not None)


def compare(left: Iterator[Record], right: Iterator[Record]) -> Iterator[Difference]:
    """Yield the paths at which two sorted trees differ; records of the same identity do not, whatever their address."""
    old, new = next(left, None), next(right, None)
    while old is not None and new is not None:
        if old.key < new.key:
            yield Difference(DifferenceType.REMOVED, old.key, old, None)
            old = next(left, None)
        elif new.key < old.key:
            yield Difference(DifferenceType.ADDED, new.key, None, new)
            new = next(right, None)
        else:
            if old.identity != new.identity:
                yield Difference(DifferenceType.CHANGED, old.key, old, new)
            old, new = next(left, None), next(right, None)
    while old is not None:
        yield Difference(DifferenceType.REMOVED, old.key, old, None)
        old = next(left, None)
    while new is not None:
        yield Difference(DifferenceType.ADDED, new.key, None, new)
        new = next(right, None)


def upper_bound(prefix: bytes) -> bytes:
    """Return the first key after all keys that start with ``prefix``, or an empty key if none exists."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b""


def list_level(
    start_at: Callable[[bytes], Iterator[T]],
    key_of: Callable[[T], bytes],
    *,
    prefix: bytes,
    delimiter: bytes,
    after: bytes,
    amount: int,
) -> tuple[list[T | bytes], bool]:
    """Return a page of a sorted sequence: items, and common prefixes (bytes) up to the delimiter; whether more follow.

    ``start_at(key)`` walks the sequence from ``key`` on.
    """
    page: list[T | bytes] = []
    items = start_at(max(prefix, after))
    item = next(items, None)
    while item is not None:
        key = key_of(item)
        if not key.startswith(prefix):
            break
        element: T | bytes = item
        if delimiter and (end := key.find(delimiter, len(prefix))) >= 0:
            element = key = key[: end + len(delimiter)]
        if key != after:
            page.append(element)
            if len(page) > amount:
                return page[:amount], True
        if isinstance(element, bytes):
            following = upper_bound(element)
            items = start_at(following) if following else iter(())
        item = next(items, None)
    return page, False
