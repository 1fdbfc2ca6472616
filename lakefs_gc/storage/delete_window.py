"""The time limits of deletes: how long a delete is tried, and when a restore may assume that it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable

CONNECT_TIMEOUT_SECONDS = 10
READ_TIMEOUT_SECONDS = 60
"""Limits of each request: to connect, and without a byte of the answer. They do not limit an answer that trickles."""

DELETE_DEADLINE_SECONDS = 90
"""No try of a delete is sent later than this, counted from just before its intent was written. The time is enough for
one try that times out and a second one, or for a minute of SlowDown."""

_STORE_CONTINUES_SECONDS = 60
"""How long the store may still execute a request that the client gave up, including clocks of whole seconds."""

DEAD_AFTER_SECONDS = DELETE_DEADLINE_SECONDS + CONNECT_TIMEOUT_SECONDS + READ_TIMEOUT_SECONDS + _STORE_CONTINUES_SECONDS
"""A delete without a known result has ended if its intent is older than this, by the store's clock."""

NOT_TRIED = (
    f"not tried: {DELETE_DEADLINE_SECONDS} s had passed since its intent was begun. The next sweep tries again; if "
    "requests are slow or limited, lower sweep.objects_per_request"
)
"""The error of a key for which no try began in time."""


class DeleteWindow:
    """The time in which the objects of one intent may be deleted.

    It begins when this object is created, before the intent is written. ``wall`` and ``steady`` are clocks of this
    machine, in seconds.
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
        """Whether a try ended without the store's answer, so that the store may still execute it."""

    @property
    def is_over(self) -> bool:
        """Return whether no further try may be sent."""
        # The wall clock may be set back; the steady clock stops while a machine sleeps.
        passed = max(self._wall() - self._opened_wall, self._steady() - self._opened_steady)
        return passed >= self._seconds
