"""A clock for tests that advances only when a test advances it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta


@dataclass
class FakeClock:
    """A clock that changes only by ``advance``."""

    now: datetime = field(default_factory=lambda: datetime(2026, 7, 1, 12, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **duration: float) -> None:
        self.now += timedelta(**duration)
