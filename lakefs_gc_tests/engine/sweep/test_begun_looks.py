"""A small sweep begins its look before the objects are known (rule 6): what may have changed until they are?"""

from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.collect.references import uncommitted
from lakefs_gc.engine.decide.shown import hidden_twins
from lakefs_gc.engine.sweep import second_look, store_clock, sweep
from lakefs_gc.engine.sweep.run_deletes import run_deletes
from lakefs_gc.errors import StaleLookError
from lakefs_gc.formats.ranges import read_range
from lakefs_gc.storage.local import LocalStore
from lakefs_gc_tests.support.looking import CONTENT, Looking, nothing


def test_the_server_lists_while_the_mark_is_read(looking: Looking) -> None:
    happened = list[str]()

    def wait_for(name: str) -> None:
        while name not in happened:
            time.sleep(0.01)

    def mark_is_read() -> None:
        wait_for("the list begins")
        happened.append("the mark is read")

    looking.around(second_look, "foreign_references", lambda: happened.append("others are read"), nothing)
    looking.around(
        uncommitted,
        "prepare_uncommitted",
        lambda: happened.append("the list begins"),
        lambda: wait_for("heads are read"),
    )
    looking.around(sweep, "read_marked", mark_is_read, nothing)
    looking.around(second_look, "read_heads_ahead", lambda: happened.append("heads are read"), nothing)
    looking.collector.sweep(looking.mark)
    assert happened == ["others are read", "the list begins", "the mark is read", "heads are read"]
    assert looking.collector.swept == {looking.key: "deleted", looking.garbage: "deleted"}


@pytest.mark.parametrize("moves", [False, True], ids=["was moved", "is moved"])
def test_heads_that_were_read_ahead_are_not_taken_for_later_ones(looking: Looking, moves: bool) -> None:
    """The object becomes a hidden twin of a head that no list had when the heads were read."""
    looking.first_commit()

    def move() -> None:
        looking.hide()
        if moves:
            looking.repository.branch("later", "late")

    looking.around(second_look, "read_heads_ahead", nothing, move)
    looking.sweep()


def test_what_was_read_ahead_is_not_read_again(looking: Looking) -> None:
    looking.first_commit()
    looking.hide()
    reads = list[str]()

    def reading(data: bytes, file: str, **options: bool) -> pa.RecordBatch:
        reads.append(file)
        return read_range(data, file, **options)

    looking.patch.setattr(hidden_twins, "read_range", reading)
    looking.collector.sweep(looking.mark)
    assert reads
    assert len(reads) <= 2 * len(set(reads)), "each range twice: its sizes, and then its paths"
    assert looking.collector.swept[looking.key] == "resurrected"


@pytest.mark.parametrize("set_back", [timedelta(), timedelta(hours=2)], ids=["right", "set-back"])
def test_a_look_is_as_old_as_its_beginning(looking: Looking, set_back: timedelta) -> None:
    """Also if the store's clock was set back meanwhile."""
    now, passed, shown = LocalStore.now, timedelta(), timedelta()

    def begin_for_an_hour() -> None:
        nonlocal passed, shown
        passed = timedelta(hours=1)
        shown = passed - set_back

    looking.patch.setattr(LocalStore, "now", lambda store: now(store) + shown)
    steady = SimpleNamespace(time=time.time, monotonic=lambda: time.monotonic() + passed.total_seconds())
    looking.patch.setattr(store_clock, "time", steady)
    with pytest.raises(StaleLookError):
        looking.collector.sweep(looking.mark, live=[], begin_look=begin_for_an_hour, small=True)
    assert looking.repository.store.stat_many([looking.key, looking.garbage]).keys() == {looking.key, looking.garbage}


def test_a_clock_that_is_set_back_while_the_deletes_wait(looking: Looking) -> None:
    now, shown = LocalStore.now, timedelta()
    looking.patch.setattr(LocalStore, "now", lambda store: now(store) + shown)

    def after_waiting(*arguments: Any, **options: Any) -> tuple[int, int]:
        nonlocal shown
        shown = timedelta(hours=-1)
        return run_deletes(*arguments, **options)

    looking.patch.setattr(sweep, "run_deletes", after_waiting)
    with pytest.raises(StaleLookError):
        looking.collector.sweep(looking.mark, live=[], small=True)
    assert looking.repository.store.stat_many([looking.key, looking.garbage]).keys() == {looking.key, looking.garbage}


def test_a_large_sweep_reads_its_objects_first(looking: Looking) -> None:
    """Reading the mark may take minutes, and the look would be older by them."""
    begun = list[int]()
    looking.collector.sweep(looking.mark, live=[], begin_look=lambda: begun.append(1), small=False)
    assert not begun


def test_a_sweep_that_has_nothing_left_does_not_look(looking: Looking) -> None:
    looking.collector.sweep(looking.mark)
    looks = list[int]()
    looking.around(second_look, "foreign_references", lambda: looks.append(1), nothing)
    looking.collector.sweep(looking.mark)
    assert looking.collector.swept == {looking.key: "deleted", looking.garbage: "deleted"}
    assert not looks


@pytest.mark.parametrize("sums", [False, True], ids=["few paths", "contents"])
def test_only_ranges_of_new_heads_are_read_again(looking: Looking, sums: bool) -> None:
    """A branch moves while the server lists, and its new head has the object as a hidden twin."""
    looking.first_commit()
    for number in range(12):
        looking.repository.branch(f"b{number}")
        looking.repository.put("q", CONTENT, branch=f"b{number}")
        looking.repository.put("own", f"{number}", branch=f"b{number}")
        looking.repository.commit(branch=f"b{number}")
    if sums:
        looking.collector.safety = SafetyParameters(max_twin_lookups=1)
    reads = list[str]()

    def reading(data: bytes, file: str, **options: bool) -> pa.RecordBatch:
        reads.append(file)
        return read_range(data, file, **options)

    looking.patch.setattr(hidden_twins, "read_range", reading)
    looking.around(second_look, "read_heads_ahead", nothing, looking.hide)
    looking.sweep()
    ahead = looking.collector.manifest("look_1_twins_ahead_paths")
    assert (ahead.facts["summed"] > 0) is sums
    assert sums or len(reads) <= 2 * len(set(reads)), "each range twice: its sizes, and then its paths"
