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
