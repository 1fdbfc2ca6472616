"""The atomic steps. An operation yields a step, the explorer executes it, and sends the reply to the operation.

``text`` is the text in a trace, with the number of the step in the design document if it has one. ``reads`` and
``writes`` name what the step touches: keys, or everything below a prefix that ends in a slash. Two steps can be taken
in either order if neither writes what the other touches.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar

from lakefs_gc.hard_delete.world import Object, Provider, World

Result = TypeVar("Result")
OBJECTS = "objects/"
"""The prefix of the object store in footprints."""
CLOCK = "clock"
DEADLINES = "deadlines"


@dataclass(frozen=True)
class Step:
    """An atomic step."""

    text: str = field(kw_only=True)

    @property
    def reads(self) -> tuple[str, ...]:
        return ()

    @property
    def writes(self) -> tuple[str, ...]:
        return ()

    def can_run(self, world: World) -> bool:
        """Return whether the step can be taken now; otherwise it waits."""
        return True

    def run(self, world: World) -> tuple[World, Any]:
        """Return the world after the step, and the reply."""
        raise NotImplementedError


Steps = Generator[Step, Any, Result]
"""An operation, or a part of one."""
Program = Callable[[], Steps[Any]]


def touches(one: str, other: str) -> bool:
    """Return whether two footprints have a key in common."""
    if one == other:
        return True
    return (one.endswith("/") and other.startswith(one)) or (other.endswith("/") and one.startswith(other))


@cache
def any_touch(ones: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Return whether two sets of footprints have a key in common."""
    return any(touches(one, other) for one in ones for other in others)


# -- the key-value store


@dataclass(frozen=True)
class Get(Step):
    """Reply: the value, or None."""

    key: str

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.key,)

    def run(self, world: World) -> tuple[World, Any]:
        return world, world.kv.get(self.key)


@dataclass(frozen=True)
class Set(Step):
    """Write a key, whatever its old value. Reply: None."""

    key: str
    value: Hashable

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.key,)

    def run(self, world: World) -> tuple[World, Any]:
        return world.with_kv(world.kv.put(self.key, self.value)), None


@dataclass(frozen=True)
class SetIf(Step):
    """Write a key only if its value is still ``expected`` (None: no such key). Reply: whether it was."""

    key: str
    value: Hashable
    expected: Hashable

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.key,)

    def run(self, world: World) -> tuple[World, Any]:
        if world.kv.get(self.key) != self.expected:
            return world, False
        return world.with_kv(world.kv.put(self.key, self.value)), True


@dataclass(frozen=True)
class Drop(Step):
    """Delete a key, or with a final slash everything below it. Reply: None."""

    key: str

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.key,)

    def run(self, world: World) -> tuple[World, Any]:
        return world.with_kv(world.kv.remove(self.key, whole_prefix=self.key.endswith("/"))), None


@dataclass(frozen=True)
class DropIf(Step):
    """Delete a key only if its value is still ``expected``. Reply: whether it was."""

    key: str
    expected: Hashable

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.key,)

    def run(self, world: World) -> tuple[World, Any]:
        if world.kv.get(self.key) != self.expected:
            return world, False
        return world.with_kv(world.kv.remove(self.key)), True


@dataclass(frozen=True)
class Scan(Step):
    """Read a page: the rows below ``prefix`` with a key in [``first``, ``end``). Reply: pairs of key and value."""

    prefix: str
    first: str = ""
    end: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.prefix,)

    def run(self, world: World) -> tuple[World, Any]:
        rows = world.kv.scan(self.prefix)
        names = ((key, key.removeprefix(self.prefix), value) for key, value in rows)
        return world, tuple(
            (key, value) for key, name, value in names if name >= self.first and (not self.end or name < self.end)
        )


@dataclass(frozen=True)
class Await(Step):
    """Wait until ``until`` accepts the value of a key. Reply: the value."""

    key: str
    until: Callable[[Any], bool]

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.key,)

    def can_run(self, world: World) -> bool:
        return self.until(world.kv.get(self.key))

    def run(self, world: World) -> tuple[World, Any]:
        return world, world.kv.get(self.key)


# -- the object store


@dataclass(frozen=True)
class Put(Step):
    """Write an object. Reply: None."""

    address: str
    content: str
    counter: int | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        return (CLOCK,)

    @property
    def writes(self) -> tuple[str, ...]:
        return (OBJECTS + self.address,)

    def run(self, world: World) -> tuple[World, Any]:
        written = Object(self.content, world.clock, self.counter)
        return world.with_objects(world.objects.put(self.address, written)), None


@dataclass(frozen=True)
class Head(Step):
    """Reply: the ``Object``, or None."""

    address: str

    @property
    def reads(self) -> tuple[str, ...]:
        return (OBJECTS + self.address,)

    def run(self, world: World) -> tuple[World, Any]:
        return world, world.objects.get(self.address)


@dataclass(frozen=True)
class SetCounter(Step):
    """Write an object's metadata if the store sees no difference from ``seen``. Reply: whether it wrote."""

    provider: Provider
    address: str
    counter: int
    seen: Object

    @property
    def reads(self) -> tuple[str, ...]:
        return (CLOCK,) if self.provider.notices_time else ()

    @property
    def writes(self) -> tuple[str, ...]:
        return (OBJECTS + self.address,)

    def run(self, world: World) -> tuple[World, Any]:
        stored = world.objects.get(self.address)
        if stored is None or self.provider.version(stored) != self.provider.version(self.seen):
            return world, False
        changed = replace(stored, counter=self.counter, metageneration=stored.metageneration + 1)
        if self.provider.notices_time:
            changed = replace(changed, modified=world.clock)
        return world.with_objects(world.objects.put(self.address, changed)), True


@dataclass(frozen=True)
class CopyData(Step):
    """Copy an object to another address in the store. Reply: the new ``Object``, or None without a source."""

    source: str
    target: str
    counter: int | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        return (OBJECTS + self.source, CLOCK)

    @property
    def writes(self) -> tuple[str, ...]:
        return (OBJECTS + self.target,)

    def run(self, world: World) -> tuple[World, Any]:
        stored = world.objects.get(self.source)
        if stored is None:
            return world, None
        copied = Object(stored.content, world.clock, self.counter)
        return world.with_objects(world.objects.put(self.target, copied)), copied


@dataclass(frozen=True)
class Remove(Step):
    """Hard-delete an object; a missing object is not an error. Reply: None."""

    address: str

    @property
    def writes(self) -> tuple[str, ...]:
        return (OBJECTS + self.address,)

    def run(self, world: World) -> tuple[World, Any]:
        return world.with_objects(world.objects.remove(self.address)), None


@dataclass(frozen=True)
class ListObjects(Step):
    """Reply: pairs of address and ``Object`` below a prefix, by address."""

    prefix: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        return (OBJECTS + self.prefix,) if not self.prefix or self.prefix.endswith("/") else (OBJECTS,)

    def run(self, world: World) -> tuple[World, Any]:
        return world, tuple(world.objects.scan(self.prefix))


# -- time


@dataclass(frozen=True)
class Now(Step):
    """Reply: the time, in ticks."""

    @property
    def reads(self) -> tuple[str, ...]:
        return (CLOCK,)

    def run(self, world: World) -> tuple[World, Any]:
        return world, world.clock


@dataclass(frozen=True)
class Sleep(Step):
    """Wait for a tick. Reply: None."""

    until: int

    @property
    def reads(self) -> tuple[str, ...]:
        return (CLOCK,)

    def can_run(self, world: World) -> bool:
        return world.clock >= self.until

    def run(self, world: World) -> tuple[World, Any]:
        return world, None


@dataclass(frozen=True)
class Tick(Step):
    """Advance the clock, unless an operation with a deadline is still in progress."""

    @property
    def reads(self) -> tuple[str, ...]:
        return (DEADLINES,)

    @property
    def writes(self) -> tuple[str, ...]:
        return (CLOCK,)

    def can_run(self, world: World) -> bool:
        return all(deadline > world.clock for _, deadline in world.deadlines.scan())

    def run(self, world: World) -> tuple[World, Any]:
        return world.at(world.clock + 1), None


@dataclass(frozen=True)
class Recap(Step):
    """Not a step, but a declaration that from this place on the operation depends on ``value`` only.

    Earlier replies do not matter any more, so the explorer merges two histories that reach the same place with the same
    value.
    """

    text: str = field(kw_only=True, default="")
    place: Hashable
    value: Hashable


@dataclass(frozen=True)
class Note(Step):
    """A step that touches nothing shared: a request begins, or a client works locally."""

    def run(self, world: World) -> tuple[World, Any]:
        return world, None
