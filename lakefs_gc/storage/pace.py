"""The number of parallel requests: it grows while that is faster, and is halved when the store answers SlowDown."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_FIRST = 4
_GAIN = 1.1
"""Twice as many parallel requests must be at least 10 % faster; otherwise they only wait for each other."""
_SHORTEST_ROUND_SECONDS = 0.25
_ROUNDS_OF_TRIAL = 2
"""A limit is only given up after so many rounds: the first one opens connections, and may fall into a busy moment."""
_ROUNDS_BEFORE_NEXT_DOUBLING = 20


class Pace:
    """Permits at most ``limit`` parallel requests, and adapts ``limit`` between 1 and ``ceiling``.

    After each round (a few requests per slot) it compares the work per second with that of the previous round. A limit
    that was doubled and was faster is doubled again; one that was not faster in two rounds is restored. A SlowDown
    halves the limit, which then grows by one each round. ``clock`` is in seconds.
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
        self._rounds_not_faster = self._rounds_to_wait = 0
        self._careful = False

    @contextmanager
    def request(self) -> Iterator[Callable[[int, int], None]]:
        """Wait for a slot, and hold it for one request at a time.

        Call the yielded function after each request with the work that was done (keys) and the store's ``slow_downs``.
        Between many requests in one slot, call ``give_way``.
        """
        with self._changed:
            self._take_slot()
        try:
            yield self._done
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify()

    @property
    def room(self) -> int:
        """Return the number of free slots."""
        return max(0, self.limit - self._running)

    def give_way(self) -> None:
        """Release the caller's slot and wait for a new one if the limit has fallen below the number of used slots."""
        with self._changed:
            if self._running > self.limit and not self._stopped:
                self._running -= 1
                self._take_slot()

    def _take_slot(self) -> None:
        while self._running >= self.limit and not self._stopped:
            self._changed.wait(0.1)
        self._running += 1

    def stop(self) -> None:
        """Let every waiting caller pass, because the work is over."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _done(self, work: int, slow_downs: int) -> None:
        with self._changed:
            self._requests += 1
            self._work += work
            seconds = self._clock() - self._round_began
            if slow_downs > self._slow_downs:
                # Requests in progress were sent at the old pace, so all their SlowDowns halve the limit once.
                if seconds >= _SHORTEST_ROUND_SECONDS or self._slow_downs == 0:
                    self._change(max(1, self.limit // 2))
                    self._careful = True
                    self._begin_round()
                self._slow_downs = slow_downs
            elif self._requests >= 2 * self.limit and seconds >= _SHORTEST_ROUND_SECONDS:
                self._end_round(self._work / seconds)
                self._begin_round()

    def _end_round(self, rate: float) -> None:
        if self._careful:
            self._change(min(self._ceiling, self.limit + 1))
        elif self._limit_before and rate < self._rate_before * _GAIN:
            self._rounds_not_faster += 1
            if self._rounds_not_faster == _ROUNDS_OF_TRIAL:
                self._change(self._limit_before)
                self._limit_before, self._rounds_to_wait = 0, _ROUNDS_BEFORE_NEXT_DOUBLING
        elif self._rounds_to_wait:
            self._rounds_to_wait -= 1
        elif self.limit < self._ceiling:
            self._limit_before, self._rate_before, self._rounds_not_faster = self.limit, rate, 0
            self._change(min(self._ceiling, 2 * self.limit))

    def _begin_round(self) -> None:
        self._round_began = self._clock()
        self._requests = self._work = 0

    def _change(self, limit: int) -> None:
        self.limit = limit
        self._changed.notify_all()


class RequestLimit:
    """A maximum of requests per second: a caller waits until its turn. ``clock`` is in seconds."""

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
        """Wait until the next request may be sent."""
        with self._lock:
            turn = max(self._next, self._clock())
            self._next = turn + 1 / self.per_second
        if (seconds := turn - self._clock()) > 0:
            self._sleep(seconds)
