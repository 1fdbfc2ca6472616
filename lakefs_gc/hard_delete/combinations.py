"""Make all combinations of a design's operations up to a bound, and search each of them.

A combination is a start world and a multiset of operations, at most one of which may crash. Each operation is a client
of its own, and all of them run in every interleaving, up to a smaller bound beside the design's job and the time. The
job also runs after all operations. These combinations cover others, which are not made:

* **Clients with several operations.** A client that runs one operation after another is one of the schedules of two
  clients that run one operation each. A client that crashes between two operations is a smaller combination.
* **Combinations without the job.** A job that runs to its end before everything else finds nothing to do in a start
  world, so this schedule of a combination with the job is the combination without it.
* **The same operations in another order.** Two orders differ only in the numbers in the names of what they create.

A test checks each of these. Outside the bound are a second crash, a crash in larger combinations, and a second run
of one operation beside a different one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from typing import Any

from lakefs_gc.hard_delete.explorer import Explorer
from lakefs_gc.hard_delete.model import Bound, Kind, Operation, Part, Reading, Scenario

_MOST_WITH_TWO_RUNS = 2
"""The most operations of a combination in which one of them may run twice. Larger ones take most of the time."""


@dataclass(frozen=True)
class Combination:
    """Operations that begin in a world.

    ``beside``: whether the job and the time run beside them. ``crashes``: the name of the part whose first run may
    crash, or empty.
    """

    reading: Reading
    world: str
    parts: tuple[Part, ...]
    beside: bool
    crashes: str = ""

    @property
    def name(self) -> str:
        """Return the name, as ``lakefs-gc designs show`` takes it: "a staged: upload a + commit (crashes)"."""
        reading = f"{self.reading.name}, " if self.reading.name else ""
        return f"{reading}{self.world}: {self.operations}"

    @property
    def operations(self) -> str:
        """Return the names of the operations."""
        names = [part.name for part in self.parts]
        if self.crashes:
            names[names.index(self.crashes)] += " (crashes)"
        return " + ".join(names)

    def scenario(self) -> Scenario:
        """Return the scenario to search."""
        return Scenario(
            self.name,
            self.name,
            self.reading.worlds[self.world],
            (*self._runs(), *(self.reading.background if self.beside else ())),
            self.reading.view,
            self.reading.settle,
        )

    def _runs(self) -> Iterator[Operation]:
        runs: Counter[str] = Counter()
        for number, part in enumerate(self.parts, 1):
            runs[part.name] += 1
            *first, last = part.make(number)
            if part.name == self.crashes and runs[part.name] == 1:
                last = last.crashing()
            for operation in (*first, last):
                repeated = f"{operation.name} ({runs[part.name]})"
                yield operation if runs[part.name] == 1 else replace(operation, name=repeated)


def case(reading: Reading, world: str, *operations: str, crashes: str = "", name: str, **more: Any) -> Scenario:
    """Return a combination as a scenario with a name. ``more``: further fields of ``Scenario``."""
    return replace(combination(reading, world, *operations, crashes=crashes).scenario(), name=name, **more)


def combination(reading: Reading, world: str, *operations: str, crashes: str = "") -> Combination:
    """Return a combination by the names of its operations, in the order in which ``combine`` makes it."""
    numbers = {part.name: number for number, part in enumerate(reading.parts)}
    parts = sorted(operations, key=lambda name: numbers[name])
    beside = len(parts) <= reading.bound.beside
    return Combination(reading, world, tuple(reading.parts[numbers[name]] for name in parts), beside, crashes)


@dataclass(frozen=True)
class Found:
    """The damage in all schedules of a combination."""

    combination: Combination
    kinds: frozenset[Kind]
    states: int


@dataclass(frozen=True)
class Search:
    """The results of all combinations of a reading. ``seconds``: the duration of the search."""

    reading: Reading
    bound: Bound
    results: tuple[Found, ...]
    seconds: float = field(compare=False)

    @property
    def states(self) -> int:
        return sum(result.states for result in self.results)

    def having(self, kind: Kind) -> list[Found]:
        """Return the combinations with a kind of damage, those with the fewest operations and states first."""
        found = [result for result in self.results if kind in result.kinds]
        return sorted(found, key=lambda result: (len(result.combination.parts), result.states))

    def smallest(self, kind: Kind) -> list[Found]:
        """Return the combinations with a kind of damage of which no smaller part has it."""
        smallest: list[Found] = []
        for result in self.having(kind):
            if not any(_contains(result.combination, other.combination) for other in smallest):
                smallest.append(result)
        return smallest


def combine(reading: Reading, bound: Bound | None = None) -> Iterator[Combination]:
    """Yield all combinations of a reading, the small ones first. ``bound``: a smaller bound than its own."""
    limit = bound or reading.bound
    for size in range(1, limit.operations + 1):
        for parts in combinations_with_replacement(reading.parts, size):
            if size > _MOST_WITH_TWO_RUNS and len(set(parts)) < size:
                continue
            for world in reading.worlds:
                beside = size <= limit.beside
                yield Combination(reading, world, parts, beside)
                if size <= limit.with_crash:
                    for name in dict.fromkeys(part.name for part in parts):
                        yield Combination(reading, world, parts, beside, name)


def search_one(combination: Combination) -> Found:
    """Search all schedules of a combination."""
    explored = Explorer(combination.scenario()).explore()
    return Found(combination, explored.found, explored.states)


def search(reading: Reading, bound: Bound | None = None) -> Search:
    """Search all combinations of a reading."""
    began = time.perf_counter()
    results = tuple(search_one(combination) for combination in combine(reading, bound))
    return Search(reading, bound or reading.bound, results, time.perf_counter() - began)


def _contains(whole: Combination, part: Combination) -> bool:
    names, others = Counter(p.name for p in whole.parts), Counter(p.name for p in part.parts)
    return whole.world == part.world and part.crashes in ("", whole.crashes) and others <= names
