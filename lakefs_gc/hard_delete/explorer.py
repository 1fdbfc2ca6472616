"""Search the schedules of a scenario: all of them, the shortest that breaks it, or many at random.

A state is the world and, for each operation, the replies that it received. A generator depends on its replies only, so
two schedules with the same replies and the same world are one state. Generators cannot be copied; instead, a new one is
run with the same replies, once for each history (``_Local``).

Two reductions, both based on the footprints of the steps, keep the search small and omit no reachable world:

* **Undisturbed reads come first.** If an operation's next step only reads, and no other operation could ever write what
  it reads, the step has the same reply now and later and does not change the world. No other order is tried (a
  persistent set of one).
* **Sleep sets.**  After all schedules that begin with step A have been tried, schedules that begin with B and then A
  are skipped if A and B are independent. With state hashing, a state that is reached again is searched again for
  the steps that slept at the earlier visit and do not sleep now.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lakefs_gc.hard_delete.model import Kind, Operation, Scenario, damage, garbage
from lakefs_gc.hard_delete.steps import DEADLINES, Program, Recap, Sleep, Step, Steps, any_touch
from lakefs_gc.hard_delete.world import World

_LONG_AFTER_TICKS = 100
Move = tuple[int, bool]
"""The number of an operation, and whether it crashes (True) or proceeds."""


class ModelError(Exception):
    """A model contradicts itself: a bug of this package, not of the design."""


@dataclass(frozen=True)
class Event:
    """A line of a trace."""

    operation: str
    text: str
    reply: str = ""


@dataclass(frozen=True)
class Trace:
    """A schedule that breaks something. ``afterwards``: the steps of the design's own cleanup after all operations."""

    kind: Kind
    detail: str
    events: tuple[Event, ...]
    afterwards: tuple[Event, ...] = ()


@dataclass(frozen=True)
class Exploration:
    """The extent and result of a search. ``worlds``: all reached worlds without deadlines, if they were kept."""

    states: int
    steps: int
    found: frozenset[Kind]
    worlds: frozenset[World] = field(repr=False, default_factory=frozenset)


class _Local:
    """An operation after some replies: its next step, or its end; one object for each history of replies.

    Histories that a ``Recap`` declares equal share a ``_Local``, which they look up in ``known``. All ended operations,
    including crashed ones, share ``over``, which is created first.
    """

    __slots__ = (
        "_known",
        "_next",
        "_over",
        "begun",
        "index",
        "operation",
        "reads",
        "recap",
        "replies",
        "step",
        "writes",
    )

    def __init__(
        self,
        index: int,
        operation: Operation,
        replies: tuple[Any, ...],
        known: _Known | None = None,
        over: _Local | None = None,
    ) -> None:
        self.index = index
        self.operation = operation
        self.replies = replies
        self.begun = bool(replies)
        self._known = known
        self._over = over or self
        self._next: dict[Hashable, _Local] = {}
        self.recap: tuple[Hashable, Hashable] | None = None
        self.step = self._replay() if over else None
        self.reads = self.step.reads if self.step else ()
        self.writes = self.step.writes if self.step else ()

    def after(self, reply: Hashable) -> _Local:
        if reply not in self._next:
            local = _Local(self.index, self.operation, (*self.replies, reply), self._known, self._over)
            if local.step is None:
                local = self._over
            elif local.recap is not None and self._known is not None:
                local = self._known.setdefault((self.index, local.recap), local)
            self._next[reply] = local
        return self._next[reply]

    def _replay(self) -> Step | None:
        """Run the generator to this point. ``recap`` is the one directly before the step, if any."""
        program = self.operation.program()
        try:
            step = self._skip(program, next(program))
            for reply in self.replies:
                step = self._skip(program, program.send(reply))
        except StopIteration:
            return None
        if not all(any_touch((key,), self.operation.may_write) for key in step.writes):
            raise ModelError(
                f"{self.operation.name} writes {step.writes}, but declares only {self.operation.may_write}"
            )
        return step

    def _skip(self, program: Steps[Any], step: Step) -> Step:
        self.recap = None
        while isinstance(step, Recap):
            self.recap = (step.place, step.value)
            step = program.send(None)
        return step


_Known = dict[Hashable, _Local]


class _State:
    """A state. It is compared and hashed for each step of a search, so its hash is computed once."""

    __slots__ = ("_hash", "locals", "world")

    def __init__(self, world: World, locals_: tuple[_Local, ...]) -> None:
        self.world = world
        self.locals = locals_
        self._hash = hash((world, locals_))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _State)
            and self._hash == other._hash
            and self.locals == other.locals
            and self.world == other.world
        )


class Explorer:
    """The search of one scenario. Without ``trusts_recaps`` each ``Recap`` is ignored: slow, with the same result."""

    def __init__(self, scenario: Scenario, *, trusts_recaps: bool = True) -> None:
        self.scenario = scenario
        known: _Known | None = {} if trusts_recaps else None
        self._over = [_Local(i, op, ()) for i, op in enumerate(scenario.operations)]
        self._broken: dict[World, frozenset[Kind]] = {}
        begun = tuple(_Local(i, op, (), known, self._over[i]) for i, op in enumerate(scenario.operations))
        self._start = _State(scenario.world, begun)

    # -- all schedules

    def explore(self, *, reduce: bool = True, keep_worlds: bool = False) -> Exploration:
        """Search every state, depth first."""
        slept: dict[_State, frozenset[Move]] = {}
        found: set[Kind] = set()
        steps = 0
        stack: list[tuple[_State, frozenset[Move]]] = [(self._start, frozenset())]
        while stack:
            state, sleep = stack.pop()
            earlier = slept.get(state)
            moves = self._moves(state)
            chosen = self._chosen(state, moves) if reduce else moves
            if earlier is None:
                found |= self._found(state, moves)
                slept[state] = sleep
                todo = [move for move in chosen if move not in sleep]
            else:
                todo = [move for move in chosen if move in earlier and move not in sleep]
                slept[state] = earlier & sleep
            successors = []
            for move in todo:
                steps += 1
                awake = (
                    frozenset(other for other in sleep if self._independent(state, other, move)) if reduce else sleep
                )
                successors.append((self._successor(state, move), awake if reduce else frozenset()))
                sleep |= {move}
            # All schedules of the first move are searched before those of the second, which sleeps on them.
            stack.extend(reversed(successors))
        worlds = {state.world.without_deadlines() for state in slept} if keep_worlds else ()
        return Exploration(len(slept), steps, frozenset(found), frozenset(worlds))

    def shortest(self, kind: Kind) -> Trace | None:
        """Return the shortest schedule with this kind of damage, from a breadth-first search."""
        came_from: dict[_State, tuple[_State, Move] | None] = {self._start: None}
        queue = deque([self._start])
        while queue:
            state = queue.popleft()
            moves = self._moves(state)
            if kind in self._found(state, moves):
                return self._told(kind, state, came_from)
            # Crashes first: of several shortest schedules, the one in which an operation crashes as early as possible.
            for move in sorted(moves, key=lambda move: not move[1]):
                successor = self._successor(state, move)
                if successor not in came_from:
                    came_from[successor] = (state, move)
                    queue.append(successor)
        return None

    def roam(self, walks: int, seed: int = 0) -> Exploration:
        """Try random schedules, for scenarios that are too large for a complete search."""
        chance = random.Random(seed)
        states: set[_State] = set()
        found: set[Kind] = set()
        steps = 0
        for _ in range(walks):
            state = self._start
            while True:
                moves = self._moves(state)
                states.add(state)
                found |= self._found(state, moves)
                if not moves:
                    break
                # A crash must be rarer than a step, or it would end most schedules early.
                likely = [move for move in moves if not move[1]]
                move = chance.choice(moves if not likely or chance.random() < 0.05 else likely)
                state = self._successor(state, move)
                steps += 1
        return Exploration(len(states), steps, frozenset(found))

    def follow(self, schedule: list[str]) -> tuple[list[Event], dict[Kind, str]]:
        """Take the steps of the named operations in this order; return what they did, and the damage.

        ``crash NAME`` crashes an operation. Raise ``ModelError`` if an operation cannot proceed.
        """
        events: list[Event] = []
        state = self._start
        numbers = {operation.name: i for i, operation in enumerate(self.scenario.operations)}
        for name in schedule:
            move = (numbers[name.removeprefix("crash ")], name.startswith("crash "))
            if move not in self._moves(state):
                raise ModelError(f"{name} cannot proceed after {len(events)} steps of the schedule")
            state, event = self._after(state, move)
            events.append(event)
        return events, damage(state.world, self.scenario.view(state.world))

    # -- states

    def _moves(self, state: _State) -> list[Move]:
        moves = [(x.index, False) for x in state.locals if x.step is not None and x.step.can_run(state.world)]
        moves += [(x.index, True) for x in state.locals if x.operation.may_crash and x.step and x.begun]
        return moves

    def _after(self, state: _State, move: Move) -> tuple[_State, Event]:
        """Return the state after a move, and what a trace shows of it."""
        index, crashes = move
        step, name = state.locals[index].step, state.locals[index].operation.name
        if step is None:
            raise ModelError(f"{name} has ended")
        if crashes:
            return self._successor(state, move), Event(name, "crashes")
        return self._successor(state, move), Event(name, step.text, _shown(step, step.run(state.world)[1]))

    def _successor(self, state: _State, move: Move) -> _State:
        index, crashes = move
        local = state.locals[index]
        step, operation, world = local.step, local.operation, state.world
        if crashes or step is None:
            successor = self._over[index]
        else:
            world, reply = step.run(world)
            successor = local.after(reply)
        if operation.at_most_ticks is not None:
            deadlines = world.deadlines
            if not local.begun and successor.step is not None:
                deadlines = deadlines.put(operation.name, world.clock + operation.at_most_ticks)
            elif successor.step is None:
                deadlines = deadlines.remove(operation.name)
            if deadlines is not world.deadlines:
                world = World(world.kv, world.objects, world.clock, deadlines)
        locals_ = (*state.locals[:index], successor, *state.locals[index + 1 :])
        return _State(world, locals_)

    def _chosen(self, state: _State, moves: list[Move]) -> list[Move]:
        """Return the moves to try: one undisturbed read if possible, otherwise all."""
        for index, crashes in moves:
            local = state.locals[index]
            step = local.step
            if (
                crashes
                or step is None
                or local.writes
                or (local.operation.at_most_ticks is not None and not local.begun)
            ):
                continue
            for other in state.locals:
                if other.index != index and other.step and any_touch(local.reads, other.operation.may_write):
                    break
            else:
                return [(index, False)]
        return moves

    def _independent(self, state: _State, one: Move, other: Move) -> bool:
        if one[0] == other[0]:
            return False
        (reads, writes), (other_reads, other_writes) = self._footprint(state, one), self._footprint(state, other)
        return not any_touch(writes, other_reads + other_writes) and not any_touch(other_writes, reads)

    def _footprint(self, state: _State, move: Move) -> tuple[tuple[str, ...], tuple[str, ...]]:
        local = state.locals[move[0]]
        limits = (DEADLINES,) if local.operation.at_most_ticks is not None else ()
        if move[1] or local.step is None:
            return (), limits
        return local.reads, (*local.writes, *limits)

    # -- what is broken

    def _found(self, state: _State, moves: list[Move]) -> frozenset[Kind]:
        world = state.world
        if world not in self._broken:
            self._broken[world] = frozenset(damage(world, self.scenario.view(world)))
        found = self._broken[world]
        # A crash is only possible, not necessary: a state in which operations can only crash is an end.
        if all(crashes for _, crashes in moves):
            found |= self._at_the_end(state)[0].keys()
        return found

    def _at_the_end(self, state: _State) -> tuple[dict[Kind, str], tuple[Event, ...]]:
        found: dict[Kind, str] = {}
        for local in state.locals:
            # An operation that sleeps only waits for more time than the scenario has.
            if local.step is not None and not isinstance(local.step, Sleep):
                found.setdefault(Kind.BLOCKED, f"{local.operation.name} waits: {local.step.text}")
        world, events = state.world, []
        for program in self.scenario.settle:
            world = world.at(world.clock + _LONG_AFTER_TICKS)
            for event, changed in _run_alone(program, world):
                world = changed
                events.append(event)
        view = self.scenario.view(world)
        found |= damage(world, view)
        for address in garbage(world, view):
            found.setdefault(Kind.LEAKED, f"{address} still exists, and nothing references it")
        return found, tuple(events)

    def _told(self, kind: Kind, end: _State, came_from: dict[_State, tuple[_State, Move] | None]) -> Trace:
        events: list[Event] = []
        state = end
        while (step := came_from[state]) is not None:
            state, move = step
            events.append(self._after(state, move)[1])
        now = damage(end.world, self.scenario.view(end.world))
        if kind in now:
            return Trace(kind, now[kind], tuple(reversed(events)))
        later, afterwards = self._at_the_end(end)
        return Trace(kind, later[kind], tuple(reversed(events)), afterwards)


def _run_alone(program: Program, world: World) -> Iterator[tuple[Event, World]]:
    running = program()
    try:
        step = next(running)
        while True:
            if isinstance(step, Recap):
                step = running.send(None)
                continue
            if not step.can_run(world):
                raise ModelError(f"the cleanup waits forever: {step.text}")
            world, reply = step.run(world)
            yield Event("cleaning up", step.text, _shown(step, reply)), world
            step = running.send(reply)
    except StopIteration:
        return


def _shown(step: Step, reply: Any) -> str:
    if reply is None or reply == ():
        return "nothing" if step.reads and not step.writes and not isinstance(step, Sleep) else ""
    if isinstance(reply, bool):
        return "done" if reply else "no: it has changed"
    if isinstance(reply, tuple):
        return ", ".join(str(row[0]).rpartition("/")[2] if isinstance(row, tuple) else str(row) for row in reply)
    return str(reply)
