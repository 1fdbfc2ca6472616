"""Numbers and times in words, as all renderings write them."""

from __future__ import annotations

from datetime import UTC, datetime


def at(time: datetime) -> str:
    """Return a time in UTC to the minute: ``2026-07-01 12:00 UTC``."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def objects_of(count: int) -> str:
    """Return ``1 object`` or ``1,234 objects``."""
    return f"{count:,} object{'' if count == 1 else 's'}"


def percent(share: float) -> str:
    """Return a share in per cent, which is never rounded to 0 or 100."""
    if 0 < share < 0.1:
        return "< 0.1 %"
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.1f} %"
