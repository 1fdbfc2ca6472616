"""What a search for copies of objects found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Copies:
    """For each address, one text for each kind of copy that exists, and what could not be looked at."""

    of: dict[str, list[str]]
    unread: tuple[str, ...] = ()
