"""Numbers and times in words, as all renderings write them."""

from __future__ import annotations

from datetime import UTC, datetime


def at(time: datetime) -> str:
    """Return a time in UTC to the minute: ``2026-07-01 12:00 UTC``."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def objects_of(count: int) -> str:
    """Return ``1 object`` or ``1,234 objects``."""
    return f"{count:,} object{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a duration in its two greatest units: ``45 s``, ``3 min``, ``2 h 5 min``, ``24 h``, ``4 d``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        days, hours = divmod(hours, 24)
        return f"{days} d {hours} h" if hours else f"{days} d"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def percent(share: float) -> str:
    """Return a share in per cent, which is never rounded to 0 or 100."""
    if 0 < share < 0.1:
        return "< 0.1 %"
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.1f} %"
