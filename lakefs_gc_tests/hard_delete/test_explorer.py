"""The explorer finds every reachable world, although it omits schedules."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from lakefs_gc.hard_delete.combinations import combine
from lakefs_gc.hard_delete.designs import DESIGNS
from lakefs_gc.hard_delete.explorer import Explorer, ModelError
from lakefs_gc.hard_delete.model import Kind, Operation, Reading, Scenario, View, clock
from lakefs_gc.hard_delete.models import staged_on_store, token_states
from lakefs_gc.hard_delete.steps import (
    Await,
    Get,
    Now,
    Program,
    Put,
    Recap,
    Remove,
    Set,
    SetIf,
    Sleep,
    Steps,
    any_touch,
    touches,
)
from lakefs_gc.hard_delete.world import World

# More states take minutes without the reductions.
TOO_LARGE = {
    (2, "upload-delete-commit"),
    (3, "upload-delete-commit"),
    (3, "crashed-delete-commit"),
    (3, "commit-delete"),
    (4, "upload-commit-reset"),
    (5, "commit-move"),
    (6, "without-wait"),
    (6, "long-commit"),
}
SMALL = [
    pytest.param(scenario, id=f"{design.number}-{scenario.name}")
    for design in DESIGNS
    for scenario in design.scenarios
    if (design.number, scenario.name) not in TOO_LARGE
]


@pytest.mark.parametrize("scenario", SMALL)
def test_the_reductions_and_recaps_omit_no_world(scenario: Scenario) -> None:
    reduced = Explorer(scenario).explore(keep_worlds=True)
    whole = Explorer(scenario, trusts_recaps=False).explore(reduce=False, keep_worlds=True)
    assert reduced.found == whole.found
    assert reduced.worlds == whole.worlds
    assert reduced.states <= whole.states
    assert reduced.steps <= whole.steps


@pytest.mark.parametrize("reading", [token_states.READING, staged_on_store.LITERAL], ids=["4", "1"])
def test_the_reductions_and_recaps_omit_no_world_of_two_operations(reading: Reading) -> None:
    for one in combine(reading, reading.bound.at_most(2)):
        if not one.crashes:
            reduced = Explorer(one.scenario()).explore(keep_worlds=True)
            whole = Explorer(one.scenario(), trusts_recaps=False).explore(reduce=False, keep_worlds=True)
            assert (reduced.found, reduced.worlds) == (whole.found, whole.worlds), one.name


def nothing_seen(world: World) -> View:
    return View({}, {})


def committed_a(world: World) -> View:
    """Return a view in which path a is committed as soon as the key ``done`` exists."""
    return View({}, {"c/a": ("A", "data")} if "done" in world.kv else {})


def scenario(*programs: Program, view: Callable[[World], View] = nothing_seen, **more: Any) -> Scenario:
    writes, crashes = ("k", "x", "y", "done", "objects/"), more.pop("crashes", 0)
    operations = tuple(Operation(f"p{i}", p, writes, may_crash=i < crashes) for i, p in enumerate(programs))
    return Scenario("test", "", World(), (*operations, *more.pop("others", ())), view, **more)


def increment() -> Steps[None]:
    value = yield Get("k", text="reads")
    yield Set("k", (value or 0) + 1, text="writes")


def increment_if() -> Steps[None]:
    done = False
    while not done:
        value = yield Get("k", text="reads")
        done = yield SetIf("k", (value or 0) + 1, value, text="writes")


def last_values(explorer: Explorer, reduce: bool) -> set[Any]:
    return {world.kv.get("k") for world in explorer.explore(reduce=reduce, keep_worlds=True).worlds}


@pytest.mark.parametrize("reduce", [True, False])
def test_a_lost_update_is_one_of_the_schedules(reduce: bool) -> None:
    assert last_values(Explorer(scenario(increment, increment)), reduce) == {None, 1, 2}


def test_a_conditional_write_loses_no_update() -> None:
    explorer = Explorer(scenario(increment_if, increment_if, increment_if))
    ends = [event for event, _ in [explorer.follow(["p0", "p1", "p1", "p0"])]]
    assert [event.reply for event in ends[0]] == ["nothing", "nothing", "done", "no: it has changed"]
    assert last_values(explorer, True) == {None, 1, 2, 3}


def test_independent_operations_need_one_order_each() -> None:
    def write_x() -> Steps[None]:
        yield Set("x", 1, text="writes x")

    def write_y() -> Steps[None]:
        yield Set("y", 1, text="writes y")

    explored = Explorer(scenario(write_x, write_y))
    assert explored.explore(reduce=False).steps == 4
    assert explored.explore().steps == 3


@pytest.mark.parametrize("seed", range(60))
def test_the_reductions_omit_no_world_of_random_programs(seed: int) -> None:
    chance = random.Random(seed)

    def program() -> Program:
        plan = [(chance.choice("RWCB"), chance.choice(("k", "x", "y"))) for _ in range(chance.randint(1, 3))]

        def steps() -> Steps[None]:
            seen = 0
            for kind, key in plan:
                if kind == "R":
                    seen += (yield Get(key, text="reads")) or 0
                elif kind == "W":
                    yield Set(key, seen + 1, text="writes")
                elif kind == "B":
                    yield Set(key, 0, text="writes a shared value")
                else:
                    seen += yield SetIf(key, seen + 2, None, text="writes if the key is absent")

        return steps

    built = scenario(*(program() for _ in range(4)), crashes=seed % 2)
    whole = Explorer(built).explore(reduce=False, keep_worlds=True)
    assert Explorer(built).explore(keep_worlds=True).worlds == whole.worlds


def test_temporary_damage_is_found() -> None:
    def writer() -> Steps[None]:
        yield Set("done", 1, text="commits")
        yield Put("A", "data", text="writes the object")

    def reader() -> Steps[None]:
        yield Get("k", text="reads")

    built = scenario(writer, reader, view=committed_a)
    assert Explorer(built).explore().found == {Kind.COMMITTED_LOST}
    trace = Explorer(built).shortest(Kind.COMMITTED_LOST)
    assert trace is not None
    assert [event.text for event in trace.events] == ["commits"]


def test_a_crash_can_follow_each_step_of_an_operation_that_may_crash() -> None:
    def steps() -> Steps[None]:
        yield Put("A", "data", text="writes the object")
        yield Set("k", 1, text="writes")
        yield Remove("A", text="deletes it")

    assert Explorer(scenario(steps)).explore().found == frozenset()
    assert Explorer(scenario(steps, crashes=1)).explore().found == {Kind.LEAKED}
    trace = Explorer(scenario(steps, crashes=1)).shortest(Kind.LEAKED)
    assert trace is not None
    assert [event.text for event in trace.events] == ["writes the object", "crashes"]
    twice = Explorer(scenario(steps, steps, crashes=1))
    with pytest.raises(ModelError):
        twice.follow(["p0", "crash p0", "p1", "crash p1"])


def test_garbage_is_counted_after_the_cleanup() -> None:
    def leave() -> Steps[None]:
        yield Put("A", "data", text="writes the object")

    def clean() -> Steps[None]:
        yield Recap("here", None)
        now = yield Now(text="reads the clock")
        if now >= 100:
            yield Remove("A", text="deletes it")

    assert Explorer(scenario(leave)).explore().found == {Kind.LEAKED}
    assert Explorer(scenario(leave, settle=(clean,))).explore().found == frozenset()


def test_an_operation_that_waits_in_vain_is_blocked_but_one_that_sleeps_is_not() -> None:
    def wait() -> Steps[None]:
        yield Await("k", lambda value: value is not None, text="waits for k")

    def sleep() -> Steps[None]:
        yield Sleep(5, text="sleeps")

    assert Explorer(scenario(wait)).explore().found == {Kind.BLOCKED}
    assert Explorer(scenario(wait, increment)).explore().found == frozenset()
    assert Explorer(scenario(sleep, others=(clock(1),))).explore().found == frozenset()


@pytest.mark.parametrize(("at_most_ticks", "clocks"), [(0, {0}), (1, {0, 1}), (None, {0, 1, 2})])
def test_time_waits_for_an_operation_with_a_deadline(at_most_ticks: int | None, clocks: set[int]) -> None:
    def slow() -> Steps[None]:
        began = yield Now(text="begins")
        ended = yield Now(text="ends")
        yield Set("k", ended - began, text="writes the duration")

    slowly = Operation("slow", slow, ("k",), at_most_ticks)
    built = Scenario("test", "", World(), (slowly, clock(2)), nothing_seen)
    for reduce in (True, False):
        assert last_values(Explorer(built), reduce) - {None} == clocks


def test_an_undeclared_write_is_a_model_error() -> None:
    def sneaky() -> Steps[None]:
        yield Set("other", 1, text="writes where it said it would not")

    with pytest.raises(ModelError, match="p0 writes"):
        Explorer(scenario(sneaky))


@pytest.mark.parametrize(
    ("one", "other", "touch"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("a/", "a/b", True),
        ("a/b", "a/", True),
        ("a/", "ab", False),
        ("a/", "a/b/", True),
        ("a/b", "a/c", False),
    ],
)
def test_footprints(one: str, other: str, touch: bool) -> None:
    assert touches(one, other) is touch
    assert any_touch((one, "z"), (other,)) is touch
