"""What there is to say about a design: its operations, the schedules to try, and what must never be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from lakefs_gc.hard_delete.steps import CLOCK, Program, Recap, Steps, Tick
from lakefs_gc.hard_delete.world import World


class Kind(StrEnum):
    """What can go wrong, the worst first."""

    COMMITTED_LOST = "a committed entry lost its object"
    CHANGED = "committed data changed"
    STAGED_LOST = "a staged entry lost its object"
    BLOCKED = "an operation waits for ever"
    LEAKED = "an object that nothing refers to stays for ever"


@dataclass(frozen=True)
class View:
    """What users of a lake see. ``staged``: branch and path to address; ``committed``: to address and content."""

    staged: Mapping[str, str]
    committed: Mapping[str, tuple[str, str]]


Look = Callable[[World], View]


def damage(world: World, view: View) -> dict[Kind, str]:
    """What is broken in a world, whatever happens next; with an example."""
    found: dict[Kind, str] = {}
    for place, address in view.staged.items():
        if address not in world.objects:
            found.setdefault(Kind.STAGED_LOST, f"{place} is staged as {address}, which is gone")
    for place, (address, content) in view.committed.items():
        stored = world.objects.get(address)
        if stored is None:
            found.setdefault(Kind.COMMITTED_LOST, f"{place} is committed as {address}, which is gone")
        elif stored.content != content:
            found.setdefault(Kind.CHANGED, f"{place} was committed as {content!r} and now reads {stored.content!r}")
    return found


def garbage(world: World, view: View) -> list[str]:
    """Objects that nothing refers to."""
    used = {*view.staged.values(), *(address for address, _ in view.committed.values())}
    return [address for address, _ in world.objects.scan() if address not in used]


@dataclass(frozen=True)
class Operation:
    """One run of a program.

    ``may_write``: footprints of everything that it could ever write; the explorer holds it to that. ``at_most_ticks``:
    how long the operation may last (a server's request ends some day), or None. ``reliable``: it does not crash.
    """

    name: str
    program: Program
    may_write: tuple[str, ...]
    at_most_ticks: int | None = None
    reliable: bool = False


@dataclass(frozen=True)
class Scenario:
    """Operations that begin in a world at any time, and what is expected of it.

    ``crashes``: how many operations may stop in the middle. ``settle``: what the design itself does for cleaning up
    when everything is over, again and again if need be, and long after; what is garbage then stays garbage.
    ``expected``: what the explorer must find, nothing else and nothing less. ``documented``: the section of the
    document that tells this trace, or empty for what the explorer found beyond it. ``taken_out``: the ingredient that
    the design is tried without. ``bounded_by``: what keeps a trace that the design does have from happening.
    """

    name: str
    question: str
    world: World
    operations: tuple[Operation, ...]
    look: Look
    settle: tuple[Program, ...] = ()
    crashes: int = 0
    expected: frozenset[Kind] = field(default_factory=frozenset)
    documented: str = ""
    moral: str = ""
    taken_out: str = ""
    bounded_by: str = ""


@dataclass(frozen=True)
class Design:
    """A way to delete data. ``number`` as in the document of the rejected ones; 6 is the accepted one."""

    number: int
    name: str
    idea: str
    scenarios: tuple[Scenario, ...]
    accepted: bool = False


def kinds(*found: Kind) -> frozenset[Kind]:
    """What a scenario is expected to break."""
    return frozenset(found)


def clock(ticks: int) -> Operation:
    """Time, as an operation that can go on at any moment."""

    def pass_time() -> Steps[None]:
        for _ in range(ticks):
            yield Tick(says="a day passes")

    return Operation("time", pass_time, may_write=(CLOCK,), reliable=True)


def one_after_the_other(*programs: Program) -> Program:
    """One client that does several things, each when the one before it is over."""

    def run() -> Steps[Any]:
        for number, program in enumerate(programs):
            yield Recap(number, None)
            yield from _numbered(number, program())

    return run


def _numbered(number: int, steps: Steps[Any]) -> Steps[None]:
    """The same steps. The same place in another program of one client is another place."""
    reply: Any = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration:
            return
        reply = yield replace(step, place=(number, step.place)) if isinstance(step, Recap) else step
