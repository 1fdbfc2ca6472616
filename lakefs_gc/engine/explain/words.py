"""How answers write times and commit ids."""

from __future__ import annotations

from datetime import datetime

_ID_CHARACTERS = 12


def short(commit_id: str) -> str:
    """Return a commit id as people read it."""
    return commit_id[:_ID_CHARACTERS]


def day(moment: datetime) -> str:
    """Return a time to the minute."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"
