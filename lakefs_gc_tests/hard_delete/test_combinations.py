"""The generator makes every combination, what it leaves out is covered, and it finds what was found by hand."""

from __future__ import annotations

from itertools import permutations
from math import comb

import pytest

from lakefs_gc.hard_delete.combinations import Combination, combination, combine, search, search_one
from lakefs_gc.hard_delete.designs import DESIGNS, find_design, find_scenario
from lakefs_gc.hard_delete.explorer import Explorer
from lakefs_gc.hard_delete.model import Kind, Reading, Scenario, one_after_the_other
from lakefs_gc.hard_delete.models import (
    accepted,
    no_copies,
    reference_counter,
    staged_on_store,
    token_states,
    tracked_references,
)

READINGS = [
    pytest.param(reading, id=f"{design.number}-{reading.name}") for design in DESIGNS for reading in design.readings
]
LOST, STAGED, CHANGED, BLOCKED, LEAKED = (
    Kind.COMMITTED_LOST,
    Kind.STAGED_LOST,
    Kind.CHANGED,
    Kind.BLOCKED,
    Kind.LEAKED,
)
COUNTER = reference_counter.AZURE_GOOGLE
FOUND_BY_HAND: list[tuple[Reading, str, tuple[str, ...], str, Kind]] = [
    (staged_on_store.LITERAL, "a staged", ("commit", "branch", "delete branch"), "", LOST),
    (staged_on_store.KIND, "a staged", ("upload a", "commit"), "", CHANGED),
    (token_states.READING, "empty", ("upload a", "commit", "reset"), "", LOST),
    (token_states.READING, "empty", ("link a", "commit", "reset"), "", LOST),
    (tracked_references.KIND, "empty", ("upload a", "delete a", "commit"), "", LOST),
    (tracked_references.LITERAL, "a staged", ("delete a", "commit"), "", LOST),
    (COUNTER, "empty", ("upload a", "delete a", "commit"), "", LOST),
    (reference_counter.AWS, "a staged", ("stage b as A", "delete a"), "", STAGED),
    (reference_counter.AWS_BY_TIME, "a staged", ("stage b as A", "delete a"), "", STAGED),
    (no_copies.FIXED, "a staged", ("move a to b", "delete a"), "move a to b", BLOCKED),
    (no_copies.FIXED, "a staged", ("move a to b", "move a to c"), "move a to b", BLOCKED),
    (no_copies.FIXED, "a staged", ("move a to b", "reset"), "move a to b", LEAKED),
    (no_copies.TIMED, "a staged", ("move a to b", "delete a"), "", STAGED),
    (accepted.BEYOND, "n staged", ("delete n", "commit"), "", LOST),
    (accepted.BEYOND, "one commit expired", ("branch at expired commit",), "", LOST),
    (accepted.BEYOND, "empty", ("upload n",), "", STAGED),
    (accepted.BEYOND, "empty", ("link n",), "", STAGED),
]


@pytest.mark.parametrize(
    ("reading", "world", "operations", "crashes", "kind"),
    FOUND_BY_HAND,
    ids=[" + ".join((*operations, world, kind.name)) for _, world, operations, _, kind in FOUND_BY_HAND],
)
def test_the_generator_finds_what_was_found_by_hand(
    reading: Reading, world: str, operations: tuple[str, ...], crashes: str, kind: Kind
) -> None:
    wanted = combination(reading, world, *operations, crashes=crashes)
    assert wanted in list(combine(reading))
    assert kind in search_one(wanted).kinds


def test_the_shorter_condition_on_aws_is_the_weaker_one() -> None:
    """A time stamp notices an update in another second, so it loses no update there."""
    scenario = combination(reference_counter.AWS_BY_TIME, "a staged", "stage b as A", "delete a").scenario()
    update = ["stage b as A", *["delete a"] * 5]
    events, broken = Explorer(scenario).follow([*update, "time", "stage b as A", "delete a"])
    assert [event.reply for event in events[-2:]] == ["done", "no: it has changed"]
    assert not broken


@pytest.mark.parametrize("reading", READINGS)
def test_the_number_of_combinations_is_that_of_the_multisets(reading: Reading) -> None:
    kinds, worlds, bound = len(reading.parts), len(reading.worlds), reading.bound
    assert (bound.operations, bound.beside, bound.with_crash) <= (3, 3, 2)
    plain = [kinds, comb(kinds + 1, 2), comb(kinds, 3)][: bound.operations]
    crashed = [kinds, kinds**2][: bound.with_crash]
    made = list(combine(reading))
    assert len(made) == worlds * (sum(plain) + sum(crashed))
    assert len({one.name for one in made}) == len(made)


@pytest.mark.parametrize("reading", READINGS)
def test_the_job_leaves_every_start_world_as_it_is(reading: Reading) -> None:
    """So the combinations without the job are among those with it.

    The exception is the expired commit of the accepted design: the collector deletes its object, and nothing else does.
    """
    for name, world in reading.worlds.items():
        for operation in reading.background:
            if operation.name != "time" and name != "one commit expired":
                alone = Scenario("", "", world, (operation,), reading.view)
                assert {one.without_deadlines() for one in Explorer(alone).explore(keep_worlds=True).worlds} == {world}


@pytest.mark.parametrize("reading", [token_states.READING, COUNTER, no_copies.FIXED, staged_on_store.LITERAL])
def test_a_client_with_two_operations_finds_nothing_more(reading: Reading) -> None:
    world = next(iter(reading.worlds))
    for one, other in permutations(reading.parts, 2):
        (first,), (second,) = one.make(1), other.make(2)
        writes = (*first.may_write, *second.may_write)
        both = [type(first)("client", one_after_the_other(first.program, second.program), writes)]
        client = Scenario("", "", reading.worlds[world], (*both, *reading.background), reading.view, reading.settle)
        apart = combination(reading, world, one.name, other.name)
        assert Explorer(client).explore().found <= search_one(apart).kinds, (one.name, other.name)


@pytest.mark.parametrize("reading", [token_states.READING, COUNTER, no_copies.FIXED, staged_on_store.LITERAL])
def test_the_order_of_the_operations_makes_no_difference(reading: Reading) -> None:
    for one in combine(reading, reading.bound.at_most(2)):
        if len(one.parts) == 2:
            turned = Combination(reading, one.world, one.parts[::-1], one.beside, one.crashes)
            assert search_one(turned).kinds == search_one(one).kinds, one.name


def test_a_combination_is_found_by_its_name() -> None:
    design = find_design(5)
    wanted = combination(no_copies.FIXED, "a staged", "move a to b", "move a to c", crashes="move a to b")
    assert wanted.name == "locks never expire, a staged: move a to b (crashes) + move a to c"
    assert find_scenario(design, wanted.name).operations[0].may_crash
    assert not find_scenario(design, wanted.name).operations[1].may_crash


def test_two_runs_of_one_operation_differ() -> None:
    scenario = combination(token_states.READING, "empty", "upload a", "upload a").scenario()
    assert [operation.name for operation in scenario.operations] == ["upload a", "upload a (2)", "job"]
    trace = Explorer(scenario).shortest(LEAKED)
    assert trace is not None
    written = {event.text for event in trace.events if event.text.startswith("Upload 1")}
    assert written == {"Upload 1: writes object N1", "Upload 1: writes object N2"}


def test_the_smallest_combinations_contain_no_other() -> None:
    found = search(staged_on_store.LITERAL, staged_on_store.LITERAL.bound.at_most(2))
    smallest = [one.combination.name for one in found.smallest(CHANGED)]
    assert smallest == ["unconditional delete, a staged: upload a + commit"]
    assert len(found.having(CHANGED)) > 1


def test_the_accepted_design_loses_nothing_within_its_limits() -> None:
    found = search(accepted.WITHIN, accepted.WITHIN.bound.at_most(1))
    assert [one.combination.name for one in found.results if one.kinds] == []
