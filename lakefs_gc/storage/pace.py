"""How many requests to have under way: more while that makes it quicker, half as many when the store says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_FIRST = 4
_GAIN = 1.1
"""Twice as many requests at once must bring a tenth more, or they only wait for each other."""
_LEAST_SECONDS = 0.25
_ROUNDS_BEFORE_NEXT_TRY = 20


class Pace:
    """Lets at most ``limit`` requests run at once, and adapts ``limit`` between 1 and ``ceiling``.

    After each round (a few requests for each place) it compares what came in a second with the round before: a limit
    that was doubled and brought a gain is doubled again, one that did not is taken back. A SlowDown halves the
    limit, which then grows by one each round. ``clock`` is in seconds.
    """

    def __init__(self, ceiling: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = min(_FIRST, ceiling)
        self._ceiling = ceiling
        self._clock = clock
        self._changed = threading.Condition()
        self._running = 0
        self._stopped = False
        self._round_began = clock()
        self._requests = self._work = 0
        self._slow_downs = 0
        self._rate_before = 0.0
        self._limit_before = 0
        self._rounds_to_wait = 0
        self._careful = False

    @contextmanager
    def request(self) -> Iterator[Callable[[int, int], None]]:
        """A place for one request at a time, waited for.

        Call what it gives, within and after each request, with the work that was done (keys) and the store's
        ``slow_downs`` so far. Whoever makes many should ``give_way`` between them.
        """
        with self._changed:
            self._take_place()
        try:
            yield self._done
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify()

    @property
    def room(self) -> int:
        """How many more could have a place."""
        return max(0, self.limit - self._running)

    def give_way(self) -> None:
        """Wait, for one who has a place, if the limit has fallen below the number of places."""
        with self._changed:
            if self._running > self.limit and not self._stopped:
                self._running -= 1
                self._take_place()

    def _take_place(self) -> None:
        while self._running >= self.limit and not self._stopped:
            self._changed.wait(0.1)
        self._running += 1

    def stop(self) -> None:
        """Let everybody through: the work is over."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _done(self, work: int, slow_downs: int) -> None:
        with self._changed:
            self._requests += 1
            self._work += work
            seconds = self._clock() - self._round_began
            if slow_downs > self._slow_downs:
                # Those that are under way were sent at the old pace: one halving for all of them.
                if seconds >= _LEAST_SECONDS or self._slow_downs == 0:
                    self._change(max(1, self.limit // 2))
                    self._careful = True
                    self._begin_round()
                self._slow_downs = slow_downs
            elif self._requests >= 2 * self.limit and seconds >= _LEAST_SECONDS:
                self._end_round(self._work / seconds)
                self._begin_round()

    def _end_round(self, rate: float) -> None:
        if self._careful:
            self._change(min(self._ceiling, self.limit + 1))
        elif self._limit_before and rate < self._rate_before * _GAIN:
            self._change(self._limit_before)  # it was not worth it
            self._limit_before, self._rounds_to_wait = 0, _ROUNDS_BEFORE_NEXT_TRY
        elif self._rounds_to_wait:
            self._rounds_to_wait -= 1
        elif self.limit < self._ceiling:
            self._limit_before, self._rate_before = self.limit, rate
            self._change(min(self._ceiling, 2 * self.limit))

    def _begin_round(self) -> None:
        self._round_began = self._clock()
        self._requests = self._work = 0

    def _change(self, limit: int) -> None:
        self.limit = limit
        self._changed.notify_all()


class RequestLimit:
    """A ceiling on requests in a second: whoever comes too early waits for its turn. ``clock`` is in seconds."""

    def __init__(
        self,
        per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.per_second = per_second
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._next = clock()

    def wait(self) -> None:
        """Until the next request may be sent."""
        with self._lock:
            turn = max(self._next, self._clock())
            self._next = turn + 1 / self.per_second
        if (seconds := turn - self._clock()) > 0:
            self._sleep(seconds)
