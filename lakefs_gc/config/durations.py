"""Durations as users write them on the command line."""

from __future__ import annotations

import re

from lakefs_gc.errors import ConfigurationError

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd])")
_HOURS = {"s": 1 / 3600, "m": 1 / 60, "h": 1.0, "d": 24.0}


def parse_duration_hours(text: str) -> float:
    """Return the hours in ``30s``, ``90m``, ``6h`` or ``2d``. Raise ``ConfigurationError`` if the unit is missing."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(
            f"{text!r} is not a duration", remedy="Write a number and its unit, e.g. 30s, 90m, 6h or 2d"
        )
    return float(match[1]) * _HOURS[match[2]]
