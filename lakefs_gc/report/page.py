"""The model of the page on which a person decides about a mark. All renderings show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from lakefs_gc.engine.records.mark_facts import Amount, LoweredSetting, PathGroup
from lakefs_gc.engine.records.mark_parts import PrefixTotal

BACKUP = "backup"
"""The name of the fact in ``in_force`` that says whether the mark has a backup."""


class NextState(StrEnum):
    """What a person can do about the mark now."""

    empty = "nothing to approve"
    blocked = "blocked"
    backup_missing = "backup missing"
    ready_later = "ready later"
    ready = "ready"
    policy = "waits for its policy"
    approved = "approved"
    swept = "swept"
    failed = "sweep failed"
    restored = "restored"
    superseded = "superseded"
    unknown = "unknown"


@dataclass(frozen=True)
class NextStep:
    """The state of the mark, in one line and one paragraph, with the commands that follow from it."""

    state: NextState
    headline: str
    detail: str
    commands: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    """The checks that an approval must override."""

    @property
    def can_approve(self) -> bool:
        """Return whether an approval is the next step."""
        return self.state in (NextState.blocked, NextState.ready_later, NextState.ready, NextState.policy)


@dataclass(frozen=True)
class CheckRow:
    """One check of a mark: what it found, what that means, and what lets the mark pass."""

    name: str
    result: str
    """``failed``, ``warning`` or ``passed``."""
    answer: str
    message: str
    meaning: str
    override: str


@dataclass(frozen=True)
class FunnelStep:
    """One class of the listed objects. A step with ``is_detail`` is a part of the step before, and not of the sum."""

    name: str
    label: str
    amount: Amount
    share_of_objects: float
    share_of_bytes: float
    is_detail: bool = False


@dataclass(frozen=True)
class AgeRow:
    """The bytes of objects of one age: of all listed objects, of the marked ones, and of those never committed."""

    name: str
    listed_bytes: int
    marked_bytes: int
    never_committed_bytes: int


@dataclass(frozen=True)
class Comparison:
    """One number of this mark, and of the mark before."""

    name: str
    before: int
    now: int
    is_bytes: bool = False


@dataclass(frozen=True)
class RunRow:
    """One mark of the repository, for the table of its last runs."""

    mark_id: str
    created_at: str
    candidates: str
    size: str
    state: str
    deleted: str


@dataclass(frozen=True)
class OutcomeRow:
    """One outcome of the sweep of the mark."""

    name: str
    amount: Amount


@dataclass(frozen=True)
class CurvePoint:
    """What a retention of so many days would free."""

    days: float
    size_bytes: int


@dataclass(frozen=True)
class Fact:
    """One line of a list of names and values."""

    name: str
    value: str


@dataclass(frozen=True)
class MarkPage:
    """Everything that the page of a mark shows, in the order in which it shows it.

    ``funnel`` and ``ages`` are empty for a mark whose facts are unknown. Steps of the funnel without ``is_detail``, but
    for the first, add up to the first. ``forecast`` is empty if there is none.
    """

    mark_id: str
    repository: str
    digest: str
    next: NextStep
    marked: Amount | None
    """None for a mark without sizes."""
    objects: int
    why_empty: str
    failed_checks: tuple[CheckRow, ...]
    passed_checks: tuple[CheckRow, ...]
    funnel: tuple[FunnelStep, ...]
    reasons: tuple[tuple[str, Amount], ...]
    ages: tuple[AgeRow, ...]
    comparison: tuple[Comparison, ...]
    compared_with: str
    groups: tuple[PathGroup, ...]
    groups_note: str
    prefixes: tuple[PrefixTotal, ...]
    sample: tuple[dict[str, str | int], ...]
    in_force: tuple[Fact, ...]
    lowered: tuple[LoweredSetting, ...]
    timing: tuple[Fact, ...]
    consequences: tuple[str, ...]
    files: tuple[Fact, ...]
    facts: tuple[Fact, ...]
    created_at: datetime
    ready_at: datetime | None
    """The time from which a sweep deletes; None if unknown."""
    outcomes: tuple[OutcomeRow, ...] = ()
    last_runs: tuple[RunRow, ...] = ()
    forecast: tuple[CurvePoint, ...] = field(default=())
    forecast_note: str = ""
    """How to add the forecast, if there is none and the mark waits for its sweep."""

    @property
    def explain_command(self) -> str:
        """How to ask about an object of the mark, by its address, or by a path and the last commit that has it."""
        return f"lakefs-gc explain {self.repository} ADDRESS (or lakefs://{self.repository}/COMMIT/PATH)"
