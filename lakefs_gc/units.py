"""Units of size and time."""

from __future__ import annotations

from datetime import UTC, datetime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Zero of Unix time."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def human_bytes(size_bytes: float) -> str:
    """Return a size with its IEC unit: ``1.5 KiB`` for 1536."""
    value, unit = float(size_bytes), _UNITS[0]
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def human_seconds(seconds: float) -> str:
    """Return a duration in its two largest units: ``4 s``, ``2 min 5 s``, ``3 h 20 min``."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def human_duration(seconds: float) -> str:
    """Return a duration rounded to two units: ``3.6 s``, ``45 s``, ``3 min``, ``2 h 5 min``, ``24 h``, ``4 d``.

    For ages and limits, which are often a round number of one unit.
    """
    if seconds < 100:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        days, hours = divmod(hours, 24)
        return f"{days} d {hours} h" if hours else f"{days} d"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
