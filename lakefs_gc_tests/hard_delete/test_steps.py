"""The world's steps do what the real stores do."""

from __future__ import annotations

import pytest

from lakefs_gc.hard_delete.models import lake
from lakefs_gc.hard_delete.steps import CopyData, Drop, Get, Put, Remove, Scan, Set, SetCounter, SetIf
from lakefs_gc.hard_delete.world import AZURE, GCS, S3, Object, Provider, Table, World

ROWS = World(Table({"a/1": 1, "a/2": 2, "a/3": 3, "ab": 4}), Table({"A": Object("data", 3, counter=1)}), clock=5)


def test_set_if_compares_with_the_stored_value() -> None:
    changed, done = SetIf("a/1", 9, 1, text="").run(ROWS)
    assert (changed.kv.get("a/1"), done) == (9, True)
    assert SetIf("a/1", 9, 2, text="").run(ROWS) == (ROWS, False)
    assert SetIf("new", 9, None, text="").run(ROWS)[1] is True
    assert SetIf("a/1", 9, None, text="").run(ROWS)[1] is False


def test_scan_reads_a_page() -> None:
    assert Scan("a/", text="").run(ROWS)[1] == (("a/1", 1), ("a/2", 2), ("a/3", 3))
    assert Scan("a/", "2", text="").run(ROWS)[1] == (("a/2", 2), ("a/3", 3))
    assert Scan("a/", "", "2", text="").run(ROWS)[1] == (("a/1", 1),)


def test_drop_of_a_prefix_keeps_other_prefixes() -> None:
    assert [key for key, _ in Drop("a/", text="").run(ROWS)[0].kv.scan()] == ["ab"]
    assert [key for key, _ in Drop("a/1", text="").run(ROWS)[0].kv.scan()] == ["a/2", "a/3", "ab"]


def test_a_world_is_not_changed_by_a_step() -> None:
    before = hash(ROWS)
    for step in (Set("a/1", 0, text=""), Put("B", "new", text=""), Remove("A", text=""), Drop("a/", text="")):
        assert step.run(ROWS)[0] != ROWS
    assert hash(ROWS) == before
    assert Get("a/1", text="").run(ROWS) == (ROWS, 1)


def test_worlds_with_equal_content_are_equal() -> None:
    there_and_back = Drop("b", text="").run(Set("b", 1, text="").run(ROWS)[0])[0]
    assert there_and_back == ROWS
    assert hash(there_and_back) == hash(ROWS)


@pytest.mark.parametrize(("provider", "second"), [(S3, True), (AZURE, False), (GCS, False)])
def test_only_some_stores_notice_that_metadata_changed(provider: Provider, second: bool) -> None:
    seen = ROWS.objects.get("A")
    assert seen is not None
    changed, first = SetCounter(provider, "A", 2, seen, text="").run(ROWS)
    assert first is True
    again, done = SetCounter(provider, "A", 0, seen, text="").run(changed)
    assert done is second
    stored = again.objects.get("A")
    assert stored is not None
    assert stored.counter == (0 if second else 2)


@pytest.mark.parametrize("provider", [S3, AZURE, GCS])
def test_every_store_notices_that_the_content_changed_or_was_deleted(provider: Provider) -> None:
    seen = ROWS.objects.get("A")
    assert seen is not None
    replaced = Put("A", "other", counter=1, text="").run(ROWS)[0]
    assert SetCounter(provider, "A", 2, seen, text="").run(replaced)[1] is False
    assert SetCounter(provider, "A", 2, seen, text="").run(Remove("A", text="").run(ROWS)[0])[1] is False


def test_a_copy_has_the_time_of_the_copying() -> None:
    copied, made = CopyData("A", "B", text="").run(ROWS)
    assert made == copied.objects.get("B") == Object("data", modified=5)
    assert CopyData("none", "B", text="").run(ROWS) == (ROWS, None)


def test_users_see_the_newest_token_and_the_commits_of_branches() -> None:
    world = lake.lake(
        {"A": "a", "B": "b", "C": "c"},
        {"main": ("c2", "t2", {"x": "B"})},
        {"c2": ("c1", {"x": "A"}), "c1": ("c0", {"y": "C"}), "other": ("c0", {"z": "C"})},
    )
    sealed = lake.Branch("c2", "t2", ("t1",))
    world = world.with_kv(world.kv.put("branches/main", sealed).put("staging/t1/x", lake.Entry("A", "a")))
    world = world.with_kv(world.kv.put("staging/t1/v", lake.Entry("C", "c")).put("staging/t2/v", lake.TOMBSTONE))
    view = lake.view(world)
    assert view.staged == {"main/x": "B"}
    assert view.committed == {"c2/x": ("A", "a"), "c1/y": ("C", "c")}
    heads_only = world.with_kv(world.kv.put(lake.RETENTION, lake.HEADS_ONLY))
    assert lake.view(heads_only).committed == {"c2/x": ("A", "a")}
