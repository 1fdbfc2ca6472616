"""The world that operations share: a key-value store, an object store, and a clock, all of them immutable.

Keys are strings with slashes. Values are hashable. Time is counted in ticks: one tick is the time that a design waits
before it assumes that no client works with an object any more (lakeFS: 24 hours).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)


class Table(Generic[Value]):
    """An immutable, hashable mapping: each change returns a new one."""

    __slots__ = ("_hash", "_rows")

    def __init__(self, rows: Mapping[str, Value] | None = None) -> None:
        self._rows: dict[str, Value] = dict(rows or {})
        self._hash = hash(frozenset(self._rows.items()))

    def get(self, key: str) -> Value | None:
        return self._rows.get(key)

    def put(self, key: str, value: Value) -> Table[Value]:
        return Table({**self._rows, key: value})

    def remove(self, prefix: str, *, whole_prefix: bool = False) -> Table[Value]:
        """Return the table without one key, or without all keys that begin with it."""
        if whole_prefix:
            return Table({key: value for key, value in self._rows.items() if not key.startswith(prefix)})
        return Table({key: value for key, value in self._rows.items() if key != prefix}) if prefix in self else self

    def scan(self, prefix: str = "") -> Iterator[tuple[str, Value]]:
        """Yield the rows with keys that begin with the prefix, in the order of the keys."""
        return ((key, self._rows[key]) for key in sorted(self._rows) if key.startswith(prefix))

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Table) and self._hash == other._hash and self._rows == other._rows)

    def __repr__(self) -> str:
        return f"Table({dict(sorted(self._rows.items()))})"


@dataclass(frozen=True)
class Object:
    """An object of the store. ``modified`` in ticks; ``metageneration`` counts the changes of its metadata."""

    content: str
    modified: int = 0
    counter: int | None = None
    metageneration: int = 1

    def __str__(self) -> str:
        return "exists" + (f", with counter {self.counter}" if self.counter is not None else "")


@dataclass(frozen=True)
class Provider:
    """The behaviour of an object store: whether a condition on a write notices changed metadata.

    ``notices_metadata``: Azure's ETag and Google's metageneration change with the metadata. S3's ETag is of the
    content alone. Metadata are changed there by copying the object onto itself, which also changes its time stamp.
    ``notices_time``: the condition is on that time stamp, which counts seconds.
    """

    name: str
    notices_metadata: bool = False
    notices_time: bool = False

    def version(self, stored: Object) -> Hashable:
        """Return what a condition on a metadata write can compare."""
        if self.notices_metadata:
            return stored.content, stored.metageneration
        return (stored.content, stored.modified) if self.notices_time else stored.content


S3 = Provider("AWS")
S3_BY_TIME = Provider("AWS, by time stamp", notices_time=True)
AZURE = Provider("Azure", notices_metadata=True)
GCS = Provider("Google", notices_metadata=True)


class World:
    """Everything that operations share. ``deadlines``: the tick by which each running operation must end.

    Each step of a search makes one, so its hash is computed once and it has slots.
    """

    __slots__ = ("_hash", "clock", "deadlines", "kv", "objects")

    def __init__(
        self,
        kv: Table[Any] | None = None,
        objects: Table[Object] | None = None,
        clock: int = 0,
        deadlines: Table[int] | None = None,
    ) -> None:
        self.kv = Table[Any]() if kv is None else kv
        self.objects = Table[Object]() if objects is None else objects
        self.clock = clock
        self.deadlines = Table[int]() if deadlines is None else deadlines
        self._hash = hash((self.kv, self.objects, clock, self.deadlines))

    def with_kv(self, kv: Table[Any]) -> World:
        return World(kv, self.objects, self.clock, self.deadlines)

    def with_objects(self, objects: Table[Object]) -> World:
        return World(self.kv, objects, self.clock, self.deadlines)

    def at(self, clock: int) -> World:
        """Return the same world at another time."""
        return World(self.kv, self.objects, clock, self.deadlines)

    def without_deadlines(self) -> World:
        return World(self.kv, self.objects, self.clock)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, World)
            and self._hash == other._hash
            and self.clock == other.clock
            and self.kv == other.kv
            and self.objects == other.objects
            and self.deadlines == other.deadlines
        )

    def __repr__(self) -> str:
        return f"World({self.kv}, {self.objects}, {self.clock}, {self.deadlines})"
