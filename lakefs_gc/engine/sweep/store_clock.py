"""The clock of the store during a sweep. It may be set back, and so may the clocks of the machines."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta

from lakefs_gc.storage.base import ObjectStore

CLOCK_GRAIN = timedelta(seconds=1)
"""How much later than stated a store's time may be. HEAD, GET and its clock report whole seconds, a listing reports
milliseconds."""


_APART_SECONDS = 60
"""How much the clocks of a store's machines may differ."""


class StoreClock:
    """The store's clock, read once and extrapolated: the clocks of executors may be wrong, each by another amount."""

    def __init__(self, store: ObjectStore) -> None:
        self._time, self._steady = time.time(), time.monotonic()
        self._store_time = (store.now() + CLOCK_GRAIN).timestamp()

    def latest(self) -> float:
        """Return the latest possible time on the store's clock, in seconds since 1970."""
        # The wall clock may be set back meanwhile; the steady clock stands still while the machine sleeps.
        return self._store_time + max(time.time() - self._time, time.monotonic() - self._steady)


@dataclass(frozen=True)
class Deadline:
    """Until when deletes may begin, in seconds since 1970 on the store's clock, which showed ``set_at`` then."""

    set_at: float
    until: float

    def has_passed(self, store_time: float) -> bool:
        """Return whether no delete may begin at this time. One before ``set_at``: the clock was set back."""
        return not self.set_at - _APART_SECONDS <= store_time <= self.until


class LookAge:
    """The age of a second look that begins now, and how old it may become.

    A look may miss what becomes referenced while it runs, so its age counts from its first call.
    """

    def __init__(self, store: ObjectStore, max_age_minutes: float) -> None:
        self._store, self._clock = store, StoreClock(store)
        self._until = self._clock.latest() - CLOCK_GRAIN.total_seconds() + max_age_minutes * 60

    def deadline(self) -> Deadline | None:
        """Return until when deletes may begin; None: the look is too old."""
        now = self._store.now().timestamp()
        seconds_left = self._until - max(now, self._clock.latest())
        return Deadline(now, now + seconds_left) if seconds_left >= 0 else None
