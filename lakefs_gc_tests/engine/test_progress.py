"""What a person who waits is shown, and that nothing of it can end a run."""

from __future__ import annotations

import logging
import threading

import pytest

from lakefs_gc.engine.progress import Progress, Tasks, title_of


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> Progress:
    return Progress(clock)


def test_steps_have_plain_titles() -> None:
    assert title_of("store_listing_young") == "listing the store"
    assert title_of("foreign_files_found") == "reading other repositories"
    assert title_of("look_12_twins_head_ranges") == "second look: looking for objects to protect"
    assert title_of("sweep_round_1") == "sweeping"
    assert title_of("unknown_step") == "unknown step"


def test_a_listing_is_compared_with_the_last_one(progress: Progress, clock: Clock) -> None:
    assert str(progress.snapshot()) == "None"
    with progress.step("store_listing"):
        assert progress.expect("objects", lambda: 9_000) == 9_000
        progress.count("objects")
        clock.now += 4
        assert str(progress.snapshot()) == "listing the store (4 s): 0 of about 9,000 objects"
        progress.count("objects", 1_200)
        clock.now += 4
        progress.tasks = lambda: Tasks(3, 10)
        assert str(progress.snapshot()) == (
            "listing the store (8 s): 1,200 of about 9,000 objects, 150 per second, about 52 s left, 3 of 10 tasks"
        )
        progress.count("objects", 1_200, running=7_800)
        assert str(progress.snapshot()) == (
            "listing the store (8 s): about 3,540 of about 9,000 objects, 442 per second, about 12 s left"
        )
    assert progress.snapshot() is None


def test_tasks_share_the_work_of_a_step(progress: Progress, clock: Clock) -> None:
    progress.tasks = lambda: Tasks(16, 64)
    with progress.step("committed", ("ranges", 6_000)):
        clock.now += 60
        assert str(progress.snapshot()) == (
            "reading committed data (1 min 0 s): about 1,500 of 6,000 ranges, 25 per second, about 3 min 0 s left"
        )


def test_a_sweep_shows_what_it_has_deleted_during_its_second_looks(progress: Progress, clock: Clock) -> None:
    with progress.step("sweep"):
        with progress.step("sweep_deletes"):
            progress.count("objects", total=1_000_000, running=100_000)
            progress.tasks = lambda: Tasks(2, 4)
            clock.now += 10
            assert str(progress.snapshot()).startswith("deleting objects (10 s): about 50,000 of 1,000,000 objects")
        progress.count("objects", 100_000, total=1_000_000)
        with progress.step("sweep_deletes"):
            progress.count("objects", 100_000, total=1_000_000, running=100_000)
            clock.now += 10
            assert "about 150,000 of 1,000,000 objects, 5,000 per second, about 2 min 50 s left" in str(
                progress.snapshot()
            )
        progress.tasks = lambda: None
        with progress.step("look_2_committed"):
            assert str(progress.snapshot()) == (
                "second look: reading committed data (0 s): 100,000 of 1,000,000 objects"
            )


def test_a_step_of_a_fixed_duration_shows_what_is_left(progress: Progress, clock: Clock) -> None:
    with progress.step("waiting_for_commits", seconds=900):
        clock.now += 12
        assert str(progress.snapshot()) == "waiting until commits in progress have ended (12 s): 14 min 48 s left"


def test_an_error_of_the_progress_ends_nothing(progress: Progress, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("Spark is stopping")

    progress.count("objects", 5)  # without a step
    with progress.step("store_listing"):
        assert progress.expect("objects", fail) == 0
        progress.tasks = fail
        progress.count("objects", 5)
        assert str(progress.snapshot()) == "listing the store (0 s): 5 objects"
        caplog.set_level(logging.INFO)
        broken = logging.Handler()
        broken.emit = lambda record: fail()  # type: ignore[method-assign]
        logging.getLogger("lakefs_gc.engine.progress").addHandler(broken)
        try:
            progress.log_every_seconds = 0.01
            with progress.logged():
                [thread] = (each for each in threading.enumerate() if each.name == "progress")
                thread.join(0.2)
                assert thread.is_alive()
        finally:
            logging.getLogger("lakefs_gc.engine.progress").removeHandler(broken)
    thread.join(5)
    assert not thread.is_alive()


def test_the_log_has_a_line_from_time_to_time(progress: Progress, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lakefs_gc.engine.progress")
    logged = threading.Event()
    counted = progress.snapshot

    def snapshot() -> object:
        logged.set()
        return counted()

    progress.snapshot = snapshot  # type: ignore[method-assign, assignment]
    progress.log_every_seconds = 3600
    with progress.logged():
        progress.log_every_seconds = 0.01
        with progress.logged():
            assert not logged.wait(0.05), "only the outermost block logs"
    with progress.step("missing"), progress.logged():
        assert logged.wait(5)
        logged.clear()
        assert logged.wait(5)
    assert "looking for missing objects" in caplog.text
