"""The parts of the accepted design, each on its own."""

from __future__ import annotations

from typing import Any

import pytest

from lakefs_gc.hard_delete.models import collector, lake, offline_server
from lakefs_gc.hard_delete.models.accepted_operations import ALL, NEW, TODAY, A, B, expired, identical, world
from lakefs_gc.hard_delete.models.lake import Branch, Entry
from lakefs_gc.hard_delete.steps import Recap, Steps
from lakefs_gc.hard_delete.world import Object, World


def play(steps: Steps[Any], world: World) -> tuple[Any, World, list[str]]:
    """Run an operation alone. Return its result, the world after it, and the texts of its steps."""
    texts: list[str] = []
    reply: Any = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            return end.value, world, texts
        if isinstance(step, Recap):
            reply = None
            continue
        world, reply = step.run(world)
        texts.append(step.text)


def test_staged_and_copied_addresses_are_listed() -> None:
    start = world({"a": A, "z": B})
    start = start.with_kv(start.kv.put("copies/" + NEW, "copied"))
    assert play(offline_server.prepare_uncommitted(ALL), start)[0] == {A, B, NEW}
    assert play(offline_server.prepare_uncommitted(ALL.without("tracked_copies")), start)[0] == {A, B}


@pytest.mark.parametrize("newer", [lake.TOMBSTONE, Entry(B, "b")])
def test_an_entry_in_a_newer_token_hides_the_entry_in_a_sealed_token(newer: object) -> None:
    start = world({"a": A})
    sealed = start.kv.put("branches/main", Branch("c0", "t2", ("t1",)))
    listed = play(offline_server.prepare_uncommitted(ALL), start.with_kv(sealed))[0]
    assert listed == {A}
    listed = play(offline_server.prepare_uncommitted(ALL), start.with_kv(sealed.put("staging/t2/a", newer)))[0]
    assert A not in listed


def test_a_commit_takes_the_newest_entry_of_each_path() -> None:
    start = world({"a": A, "z": A, "y": A, "b": B})
    start = start.with_kv(start.kv.remove("staging/t1/b"))
    kv = start.kv.put("branches/main", Branch("c0", "t2", ("t1",)))
    kv = kv.put("staging/t2/a", Entry(B, "b")).put("staging/t2/z", lake.TOMBSTONE)
    _, committed, _ = play(lake.commit("main", "c1", "t3"), start.with_kv(kv))
    assert lake.view(committed).staged == {}
    assert lake.view(committed).committed == {"c1/a": (B, "b"), "c1/y": (A, "a")}


def test_lakefs_omits_a_staged_entry_with_the_content_of_the_committed_entry() -> None:
    assert play(offline_server.prepare_uncommitted(ALL), identical())[0] == {B}
    assert play(offline_server.prepare_uncommitted(ALL.without("identical_listed")), identical())[0] == frozenset()


def test_only_commits_that_the_retention_rules_keep_are_active() -> None:
    start = expired()
    assert play(offline_server.active_addresses(), start)[0] == {B}
    assert play(offline_server.active_addresses(), start.with_kv(start.kv.remove(lake.RETENTION)))[0] == {A, B}


@pytest.mark.parametrize(("day", "valid"), [(TODAY, True), (TODAY + 1, True), (TODAY + 2, False)])
def test_a_link_token_is_valid_once_and_within_its_lifetime(day: int, valid: bool) -> None:
    start = play(offline_server.upload_to_address(NEW, "new", expires=True), world({}))[1]
    late = World(start.kv, start.objects, day)
    linked, after, _ = play(offline_server.link("main", "n", NEW, "new"), late)
    assert linked is valid
    assert lake.view(after).staged == ({"main/n": NEW} if valid else {})
    assert play(offline_server.link("main", "m", NEW, "new"), after)[0] is False


def test_a_mark_has_unused_objects_older_than_the_cutoff_of_all_slices() -> None:
    start = world({"a": A, "z": B})
    start = start.with_kv(start.kv.remove("staging/t1/z"))
    start = start.with_objects(start.objects.put(NEW, Object("new", TODAY)).put("data/s0/L", Object("late", TODAY)))
    marked, _, texts = play(collector.mark(ALL), start)
    assert [address for address, _ in marked] == [B]
    # As in the engine: all slices are listed, and each object is compared with the cutoff.
    assert {"lists slice s0", f"lists slice s{TODAY}"} <= set(texts)
    everything, _, _ = play(collector.mark(ALL.without("cutoff")), start)
    assert [address for address, _ in everything] == [B, "data/s0/L", NEW]


def test_a_sweep_keeps_an_object_that_was_written_again() -> None:
    start = world({"a": A, "z": B})
    start = start.with_kv(start.kv.remove("staging/", whole_prefix=True))
    marked, _, _ = play(collector.mark(ALL), start)
    again = start.with_objects(start.objects.put(B, Object("again", TODAY)))
    _, swept, _ = play(collector.sweep(marked, ALL), again)
    assert [address for address, _ in swept.objects.scan()] == [B]
