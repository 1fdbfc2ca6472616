"""How many requests run at once: by what a made-up store gains from them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise

from lakefs_gc.storage.pace import Pace


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def run(pace: Pace, clock: Clock, keys_per_second: Callable[[int], float], seconds: float) -> list[int]:
    """The limit at each request, with a store that gives so many keys a second at so many requests at once."""
    limits = []
    until = clock.seconds + seconds
    while clock.seconds < until:
        limits.append(pace.limit)
        clock.seconds += 1000 / keys_per_second(pace.limit)
        with pace.request() as done:
            done(1000, 0)
    return limits


def test_grows_while_it_gains() -> None:
    clock = Clock()
    limits = run(Pace(32, clock), clock, lambda limit: 30_000 * limit, 10)
    assert limits[0] == 4
    assert limits[-1] == 32
    assert max(limits) == 32, "never above the ceiling"


def test_one_slow_round_does_not_end_the_growth() -> None:
    """Each new limit begins slowly, because its connections are opened."""
    clock, since = Clock(), dict[int, float]()

    def keys_per_second(limit: int) -> float:
        is_new = limit > 4 and clock.seconds - since.setdefault(limit, clock.seconds) < 0.24
        return 30_000 if is_new else 30_000 * limit

    limits = run(Pace(32, clock), clock, keys_per_second, 4)
    assert limits[-1] == 32


def test_stays_where_more_gains_nothing() -> None:
    clock = Clock()
    limits = run(Pace(64, clock), clock, lambda limit: 30_000.0 * min(limit, 8), 60)
    assert sorted(limits)[len(limits) // 2] == 8
    assert max(limits) == 16


def test_halves_when_told_to_slow_down_and_then_grows_slowly() -> None:
    clock = Clock()
    pace = Pace(32, clock)
    run(pace, clock, lambda limit: 30_000 * limit, 10)
    clock.seconds += 1
    with pace.request() as done:
        done(0, 1)
    with pace.request() as done:
        done(0, 9)  # the others that were under way
    assert pace.limit == 16
    limits = run(pace, clock, lambda limit: 30_000 * limit, 4)
    assert limits[0] == 16
    assert all(0 <= later - earlier <= 1 for earlier, later in pairwise(limits))
    assert limits[-1] > 20
    for count in range(10, 40):
        clock.seconds += 1
        with pace.request() as done:
            done(0, count)
    assert pace.limit == 1, "and never less"


def test_no_more_at_once_than_the_limit() -> None:
    pace = Pace(3)
    running = most = 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal running, most
        for _ in range(10):
            with pace.request():
                with lock:
                    running += 1
                    most = max(most, running)
                time.sleep(0.002)
                with lock:
                    running -= 1

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 3


def test_nobody_waits_after_the_end() -> None:
    pace = Pace(1)
    with pace.request():
        threading.Timer(0.05, pace.stop).start()
        began = time.monotonic()
        with pace.request():
            assert time.monotonic() - began < 5


def test_a_place_is_given_up_when_the_limit_falls() -> None:
    clock = Clock()
    pace = Pace(4, clock)
    second_came = threading.Event()
    second_may_end = threading.Event()

    def second() -> None:
        with pace.request():
            second_came.set()
            second_may_end.wait(10)

    thread = threading.Thread(target=second)
    thread.start()
    assert second_came.wait(10)
    with pace.request() as done:
        assert pace.room == 2
        for count in (1, 2):
            clock.seconds += 1
            done(0, count)
        assert pace.limit == 1
        assert pace.room == 0
        threading.Timer(0.05, second_may_end.set).start()
        pace.give_way()
        assert second_may_end.is_set(), "waited for the other one"
        pace.give_way()  # with nobody else it does not wait
    thread.join()
    assert pace.room == 1
