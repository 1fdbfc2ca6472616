"""The accepted design's own parts, each by itself."""

from __future__ import annotations

from typing import Any

import pytest

from lakefs_gc.hard_delete.models import collector, lake, offline_server
from lakefs_gc.hard_delete.models.accepted_operations import ALL, NEW, TODAY, A, B, expired, identical, world
from lakefs_gc.hard_delete.models.lake import Branch, Entry
from lakefs_gc.hard_delete.steps import Recap, Steps
from lakefs_gc.hard_delete.world import Object, World


def play(steps: Steps[Any], where: World) -> tuple[Any, World, list[str]]:
    """Run an operation alone. Reply: its result, the world, and what it says."""
    said: list[str] = []
    reply: Any = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            return end.value, where, said
        if isinstance(step, Recap):
            reply = None
            continue
        where, reply = step.run(where)
        said.append(step.says)


def test_what_is_staged_and_what_was_copied_is_listed() -> None:
    made = world({"a": A, "z": B})
    made = made.with_kv(made.kv.put("copies/" + NEW, "copied"))
    assert play(offline_server.prepare_uncommitted(ALL), made)[0] == {A, B, NEW}
    assert play(offline_server.prepare_uncommitted(ALL.without("tracked_copies")), made)[0] == {A, B}


@pytest.mark.parametrize("newer", [lake.TOMBSTONE, Entry(B, "b")])
def test_a_newer_token_hides_what_a_sealed_one_has(newer: object) -> None:
    made = world({"a": A})
    sealed = made.kv.put("branches/main", Branch("c0", "t2", ("t1",)))
    listed = play(offline_server.prepare_uncommitted(ALL), made.with_kv(sealed))[0]
    assert listed == {A}
    listed = play(offline_server.prepare_uncommitted(ALL), made.with_kv(sealed.put("staging/t2/a", newer)))[0]
    assert A not in listed


def test_a_commit_takes_the_newest_of_each_path() -> None:
    made = world({"a": A, "z": A, "y": A, "b": B})
    made = made.with_kv(made.kv.remove("staging/t1/b"))
    kv = made.kv.put("branches/main", Branch("c0", "t2", ("t1",)))
    kv = kv.put("staging/t2/a", Entry(B, "b")).put("staging/t2/z", lake.TOMBSTONE)
    _, committed, _ = play(lake.commit("main", "c1", "t3"), made.with_kv(kv))
    assert lake.look(committed).staged == {}
    assert lake.look(committed).committed == {"c1/a": (B, "b"), "c1/y": (A, "a")}


def test_lakefs_lists_no_entry_that_looks_like_the_committed_one() -> None:
    assert play(offline_server.prepare_uncommitted(ALL), identical())[0] == {B}
    assert play(offline_server.prepare_uncommitted(ALL.without("identical_listed")), identical())[0] == frozenset()


def test_only_the_commits_that_the_rules_keep_are_active() -> None:
    made = expired()
    assert play(offline_server.active_addresses(), made)[0] == {B}
    assert play(offline_server.active_addresses(), made.with_kv(made.kv.remove(lake.RETENTION)))[0] == {A, B}


@pytest.mark.parametrize(("day", "valid"), [(TODAY, True), (TODAY + 1, True), (TODAY + 2, False)])
def test_a_token_is_valid_for_its_time_and_once(day: int, valid: bool) -> None:
    made = play(offline_server.upload_to_address(NEW, "new", expires=True), world({}))[1]
    late = World(made.kv, made.objects, day)
    linked, after, _ = play(offline_server.link("main", "n", NEW, "new"), late)
    assert linked is valid
    assert lake.look(after).staged == ({"main/n": NEW} if valid else {})
    assert play(offline_server.link("main", "m", NEW, "new"), after)[0] is False


def test_a_mark_has_what_is_old_enough_and_not_in_use_and_new_slices_are_not_listed() -> None:
    made = world({"a": A, "z": B})
    made = made.with_kv(made.kv.remove("staging/t1/z"))
    made = made.with_objects(made.objects.put(NEW, Object("new", TODAY)).put("data/s0/L", Object("late", TODAY)))
    marked, _, said = play(collector.mark(ALL), made)
    assert [address for address, _ in marked] == [B]
    assert "lists slice s0" in said
    assert f"lists slice s{TODAY}" not in said
    everything, _, _ = play(collector.mark(ALL.without("cutoff")), made)
    assert [address for address, _ in everything] == [B, "data/s0/L", NEW]


def test_a_sweep_keeps_what_was_written_again() -> None:
    made = world({"a": A, "z": B})
    made = made.with_kv(made.kv.remove("staging/", whole_prefix=True))
    marked, _, _ = play(collector.mark(ALL), made)
    again = made.with_objects(made.objects.put(B, Object("again", TODAY)))
    _, swept, _ = play(collector.sweep(marked, ALL), again)
    assert [address for address, _ in swept.objects.scan()] == [B]
