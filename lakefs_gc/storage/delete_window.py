"""How long a delete may be tried, and after how long a restore takes one for dead: both numbers, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable

CONNECT_TIMEOUT_SECONDS = 10
READ_TIMEOUT_SECONDS = 60
"""Of each request: to connect, and without a byte of the answer. They do not bound an answer that trickles."""

DELETE_DEADLINE_SECONDS = 90
"""No try of a delete is sent later than this after the moment before its intent was written. It leaves room for one
try that times out and another one, or for a minute of SlowDown."""

_STORE_GOES_ON_SECONDS = 60
"""How long the store may still carry out a request that the client has given up; clocks of whole seconds included."""

DEAD_AFTER_SECONDS = DELETE_DEADLINE_SECONDS + CONNECT_TIMEOUT_SECONDS + READ_TIMEOUT_SECONDS + _STORE_GOES_ON_SECONDS
"""A delete without a known end whose intent is older than this, by the store's clock, is under way no more."""

NOT_TRIED = (
    f"not tried: {DELETE_DEADLINE_SECONDS} s had passed since its intent was begun (the next sweep tries; where "
    "requests are slow or limited lower sweep.objects_per_request)"
)
"""The error of a key for which no try began in time."""


class DeleteWindow:
    """The time in which what one intent names may be deleted; it opens when this is made, before the intent is written.

    ``wall`` and ``steady`` are clocks of this machine, in seconds.
    """

    def __init__(
        self,
        seconds: float = DELETE_DEADLINE_SECONDS,
        *,
        wall: Callable[[], float] | None = None,
        steady: Callable[[], float] | None = None,
    ) -> None:
        self._seconds, self._wall, self._steady = seconds, wall or time.time, steady or time.monotonic
        self._opened_wall, self._opened_steady = self._wall(), self._steady()
        self.unanswered = False
        """Whether a try ended without the store's answer: the store may carry it out later still."""

    @property
    def is_over(self) -> bool:
        """Whether no further try may be sent."""
        # The one may be set back meanwhile, the other stands still while a machine sleeps.
        passed = max(self._wall() - self._opened_wall, self._steady() - self._opened_steady)
        return passed >= self._seconds
