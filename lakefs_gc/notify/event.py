"""The events that people are notified of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class EventKind(StrEnum):
    """What happened. The values are stable: receivers filter by them."""

    mark_waits = "mark_waits_for_approval"
    check_failed = "check_failed"
    run_failed = "run_failed"
    swept = "swept"


@dataclass(frozen=True)
class Event:
    """One event of one run. Its texts contain no credentials."""

    kind: EventKind
    repository: str
    run_key: str
    """The partition: ``<repository>/<run>``."""
    at: datetime
    """When it happened, in UTC."""
    message: str
    """What happened, in one or two sentences."""
    remedy: str = ""
    """What to do. Empty: nothing."""
    mark_id: str = ""
    dagster_run_id: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Values for programs, as JSON has them: digest, objects, bytes, outcomes, and what the page of a mark shows."""
    page: str = ""
    """The page of the mark as text with aligned columns, as ``lakefs-gc show`` prints it. Empty: not about a mark."""

    def to_json(self) -> dict[str, Any]:
        """Return the event with values that JSON has."""
        return {
            "kind": self.kind.value,
            "repository": self.repository,
            "run_key": self.run_key,
            "at": self.at.isoformat(),
            "message": self.message,
            "remedy": self.remedy,
            "mark_id": self.mark_id,
            "dagster_run_id": self.dagster_run_id,
            "facts": dict(self.facts),
            "page": self.page,
        }


Notify = Callable[[Event], None]
"""Sends an event. An exception means that it was not sent; it is then sent again later."""
