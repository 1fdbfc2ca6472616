"""How often, and after which pauses, a call to a store is made again."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with full jitter: the pause after try n is random in 0 … ``base_seconds`` · 2ⁿ⁻¹.

    ``tries`` counts the first call too. The defaults wait 13 seconds on average, 26 at most, before they
    give up. ``tries_when_slow`` counts where the store only asked to slow down: many callers at once can keep each
    other from their turn for a minute.
    """

    tries: int = 8
    tries_when_slow: int = 14
    base_seconds: float = 0.2
    max_seconds: float = 20.0

    def pause_seconds(self, failures: int) -> float:
        """The pause after ``failures`` (>= 1) failed tries."""
        return random.uniform(0, min(self.max_seconds, self.base_seconds * 2 ** (failures - 1)))
