"""The clock of the sandbox, which a test may replace."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""The time, in UTC."""


def system_clock() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)
