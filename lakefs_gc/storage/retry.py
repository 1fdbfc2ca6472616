"""How often, and after which pauses, a failed call to a store is repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with full jitter: the pause after try n is random in 0 … ``base_seconds`` · 2ⁿ⁻¹.

    ``tries`` includes the first call. The defaults wait 13 seconds on average, and 26 at most, before they give up.
    ``tries_when_slow`` applies if the store only asked to slow down: many parallel callers can delay each other for a
    minute.
    """

    tries: int = 8
    tries_when_slow: int = 14
    base_seconds: float = 0.2
    max_seconds: float = 20.0

    def pause_seconds(self, failures: int) -> float:
        """Return the pause in seconds after ``failures`` (>= 1) failed tries."""
        return random.uniform(0, min(self.max_seconds, self.base_seconds * 2 ** (failures - 1)))
