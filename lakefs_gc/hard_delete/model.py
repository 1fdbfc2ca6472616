"""The description of a design: its operations, the combinations and scenarios to try, and the invariants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from lakefs_gc.hard_delete.steps import CLOCK, Program, Recap, Steps, Tick
from lakefs_gc.hard_delete.world import World


class Kind(StrEnum):
    """The kinds of damage, the worst first."""

    COMMITTED_LOST = "a committed entry lost its object"
    CHANGED = "committed data changed"
    STAGED_LOST = "a staged entry lost its object"
    BLOCKED = "an operation waits forever"
    LEAKED = "an object that nothing references stays forever"


@dataclass(frozen=True)
class View:
    """What users of a lake see: branch and path, mapped to an address (``staged``), or to address and content.

    ``kept``: addresses that a commit without a branch contains. They are not garbage of uncommitted data: retention
    rules decide about them.
    """

    staged: Mapping[str, str]
    committed: Mapping[str, tuple[str, str]]
    kept: frozenset[str] = frozenset()


ViewOf = Callable[[World], View]


def damage(world: World, view: View) -> dict[Kind, str]:
    """Return the damage in a world that nothing can repair, each kind with an example."""
    found: dict[Kind, str] = {}
    for place, address in view.staged.items():
        if address not in world.objects:
            found.setdefault(Kind.STAGED_LOST, f"{place} is staged as {address}, which does not exist")
    for place, (address, content) in view.committed.items():
        stored = world.objects.get(address)
        if stored is None:
            found.setdefault(Kind.COMMITTED_LOST, f"{place} is committed as {address}, which does not exist")
        elif stored.content != content:
            found.setdefault(Kind.CHANGED, f"{place} was committed as {content!r} and now reads {stored.content!r}")
    return found


def garbage(world: World, view: View) -> list[str]:
    """Return the objects that nothing references."""
    used = {*view.kept, *view.staged.values(), *(address for address, _ in view.committed.values())}
    return [address for address, _ in world.objects.scan() if address not in used]


@dataclass(frozen=True)
class Operation:
    """One run of a program.

    ``may_write``: footprints of everything that it could ever write, which the explorer enforces. ``at_most_ticks``:
    the maximum duration of the operation (a server's request ends eventually), or None. ``may_crash``: it may stop
    after any of its steps.
    """

    name: str
    program: Program
    may_write: tuple[str, ...]
    at_most_ticks: int | None = None
    may_crash: bool = False

    def crashing(self) -> Operation:
        """Return the same operation, which may crash."""
        return replace(self, may_crash=True)


@dataclass(frozen=True)
class Scenario:
    """Operations that may begin in a world at any time, and the expected damage.

    Only an operation with ``may_crash`` stops in the middle. ``settle``: the design's own cleanup, which runs
    repeatedly and long after all operations have ended; garbage that remains then is permanent. ``expected``: exactly
    what the explorer must find. ``documented``: the section of the document with this trace, or empty if only the
    explorer found it. ``moral``: what a reader learns from it. ``shown_by``: steps that show the moral, each an
    operation and the beginning of its text, in the order of the shortest trace of the worst damage. ``taken_out``: the
    ingredient that the design is tried without. ``bounded_by``: the limit that prevents a trace of the complete design.
    """

    name: str
    question: str
    world: World
    operations: tuple[Operation, ...]
    view: ViewOf
    settle: tuple[Program, ...] = ()
    expected: frozenset[Kind] = field(default_factory=frozenset)
    documented: str = ""
    moral: str = ""
    shown_by: tuple[tuple[str, str], ...] = ()
    taken_out: str = ""
    bounded_by: str = ""


@dataclass(frozen=True)
class Part:
    """An operation that combinations are made of.

    ``make`` returns its run with a number from 1 on: a request, after what its client does before, if anything. Only
    the request crashes. Whatever a run creates (an
    object, a staging token, a commit, a branch) has the number in its name, so two runs in one combination differ.
    """

    name: str
    make: Callable[[int], tuple[Operation, ...]]


@dataclass(frozen=True)
class Bound:
    """The size of combinations.

    ``operations``: the most operations. ``beside``: the most operations beside which the job and the time run; after
    larger combinations only the cleanup runs. ``with_crash``: the most operations if one of them may crash.
    """

    operations: int
    beside: int
    with_crash: int

    def at_most(self, operations: int) -> Bound:
        """Return the part of this bound that has at most so many operations."""
        return Bound(*(min(operations, most) for most in (self.operations, self.beside, self.with_crash)))


@dataclass(frozen=True)
class Reading:
    """One reading of a design's document, and everything that its combinations are made of.

    ``text``: what is read in this way, if the document can be read in several. ``background``: what runs beside the
    operations: the design's job, and the time.
    """

    name: str
    text: str
    worlds: Mapping[str, World]
    parts: tuple[Part, ...]
    bound: Bound
    view: ViewOf
    settle: tuple[Program, ...] = ()
    background: tuple[Operation, ...] = ()


@dataclass(frozen=True)
class Open:
    """A question that the document leaves open, an operation that it only names, or an assumption.

    ``answer``: how the model treats it, or why it is out.
    """

    topic: str
    answer: str


@dataclass(frozen=True)
class Design:
    """A design for deleting data. ``number`` as in the document of the rejected designs; 6 is the accepted one.

    ``picture``: who writes what, and who deletes, as a few lines of text.
    """

    number: int
    name: str
    idea: str
    readings: tuple[Reading, ...]
    scenarios: tuple[Scenario, ...]
    opens: tuple[Open, ...] = ()
    picture: str = ""
    accepted: bool = False


def kinds(*found: Kind) -> frozenset[Kind]:
    """Return the expected damage of a scenario."""
    return frozenset(found)


def clock(ticks: int) -> Operation:
    """Return the passing of time, as an operation that can proceed at any moment."""

    def pass_time() -> Steps[None]:
        for _ in range(ticks):
            yield Tick(text="time passes")

    return Operation("time", pass_time, may_write=(CLOCK,))


def one_after_the_other(*programs: Program) -> Program:
    """Return the program of one client that runs several programs, one after the other."""

    def run() -> Steps[Any]:
        for number, program in enumerate(programs):
            yield Recap(number, None)
            yield from _numbered(number, program())

    return run


def _numbered(number: int, steps: Steps[Any]) -> Steps[None]:
    """Yield the same steps, with recaps that distinguish the programs of one client."""
    reply: Any = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration:
            return
        reply = yield replace(step, place=(number, step.place)) if isinstance(step, Recap) else step
