"""Evaluate retention rules on a forecast table: what they free now and later, and what else holds the rest.

Everything here is arithmetic on a small table, so a question about other rules takes no time and no Spark. The
assumption of all results: no commit, upload, branch or tag is added or removed after the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakefs_gc.engine.forecast.commit_holds import DEFAULT
from lakefs_gc.formats.gc_rules import GCRules

NONE, HEAD = "none", "head"
"""Held by: nothing but the rules; the head of a branch."""
UNREADABLE = "unreadable"
"""A row of the table that is a metadata file which could not be read, and not an object."""
PROTECT_DAYS = "safety.protect.days"
"""The class of ``safety.protect.days``: its ages already include these days. No branch can have a name with a dot."""

EXPIRED, NEVER_COMMITTED, UNKNOWN = "expired", "never_committed", "unknown"
"""Objects that the rules free, that no commit has (free under any rules), and of which it is unknown."""
RULES, HEADS, NEW = "rules", "heads", "new"
"""Objects that stay: the rules keep them; only heads of branches hold them; they are newer than the cutoff."""


@dataclass(frozen=True)
class Total:
    """A number of objects and their bytes."""

    objects: int = 0
    size_bytes: int = 0

    def __add__(self, other: Total) -> Total:
        return Total(self.objects + other.objects, self.size_bytes + other.size_bytes)

    def __sub__(self, other: Total) -> Total:
        return Total(self.objects - other.objects, self.size_bytes - other.size_bytes)

    def to_facts(self) -> dict[str, int]:
        """Return the total as plain values."""
        return {"objects": self.objects, "size_bytes": self.size_bytes}


@dataclass(frozen=True)
class Row:
    """A row of the forecast table: objects that are held in the same way (``schemas.FORECAST``).

    ``ages`` has an age for each class, as ``commit_holds.Hold``. ``new_days`` is by how many whole days the objects are
    newer than the cutoff, negative if they are older. ``branch`` is the only branch whose head has them, as an index
    into ``Forecast.branches``. ``unseen``: a file that no visible commit names has them, so an unknown commit may.
    """

    held_by: str
    branch: int | None
    ages: tuple[int | None, ...]
    new_days: int
    unseen: bool
    total: Total


@dataclass(frozen=True)
class Branch:
    """A branch: its head, the days since its last commit, and what its head has (None: a file could not be read)."""

    name: str
    head: str
    idle_days: int
    shown: Total | None


@dataclass(frozen=True)
class Forecast:
    """A forecast table with its facts.

    ``rules`` are the rules at the time of the run; None if none were set, and then every commit is active.
    ``unreadable`` are the metadata files that could not be read. Objects that they name may seem to be unreferenced.
    """

    classes: tuple[str, ...]
    rows: Sequence[Row]
    branches: Sequence[Branch]
    rules: GCRules | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()

    def covers(self, rules: GCRules | None) -> bool:
        """Return whether these rules can be evaluated: each existing branch with its own rule is a class."""
        names = {branch.name for branch in self.branches}
        return rules is None or (rules.branches.keys() & names) <= set(self.classes)


@dataclass(frozen=True)
class Outlook:
    """What rules free ``days`` after the run, and what holds the rest, in totals.

    ``freed`` maps the rule that kept the objects last (``default``, ``branch main``) or ``NEVER_COMMITTED`` to a total.
    ``kept`` maps what holds the others: ``RULES``, ``HEADS``, ``NEW``, or a value of the column ``held_by``.
    """

    days: int
    freed: Mapping[str, Total]
    kept: Mapping[str, Total]
    unknown: Total

    @property
    def total(self) -> Total:
        """Return everything that is freed, without what is unknown."""
        return sum(self.freed.values(), Total())

    def to_facts(self) -> dict[str, Any]:
        """Return the outlook as plain values."""
        return {
            "days": self.days,
            **self.total.to_facts(),
            "by_rule": {name: total.to_facts() for name, total in self.freed.items()},
            "kept": {name: total.to_facts() for name, total in self.kept.items()},
            "unknown": self.unknown.to_facts(),
        }


def outlook(forecast: Forecast, rules: GCRules | None, days: int = 0) -> Outlook:
    """Return what ``rules`` (None: no rules) free ``days`` days after the run."""
    freed: dict[str, Total] = defaultdict(Total)
    kept: dict[str, Total] = defaultdict(Total)
    unknown = Total()
    for row, outcome, rule in _outcomes(forecast, rules, days):
        if outcome == UNKNOWN:
            unknown += row.total
        elif outcome in (EXPIRED, NEVER_COMMITTED):
            freed[rule] += row.total
        else:
            kept[outcome] += row.total
    # By name: the order of the rows is that of Spark's tasks.
    return Outlook(days, dict(sorted(freed.items())), dict(sorted(kept.items())), unknown)


def only_heads(forecast: Forecast, rules: GCRules | None, days: int = 0) -> dict[int | None, Total]:
    """Return what only heads hold ``days`` days after the run, by the index of the branch. None: several branches."""
    totals: dict[int | None, Total] = defaultdict(Total)
    for row, outcome, _ in _outcomes(forecast, rules, days):
        if outcome == HEADS:
            totals[row.branch] += row.total
    return dict(totals)


def only_this_branch(forecast: Forecast) -> dict[int, Total]:
    """Return the objects that the head of only one branch has, by its index. The rules may keep them beside it."""
    totals: dict[int, Total] = defaultdict(Total)
    for row in forecast.rows:
        if row.held_by == HEAD and row.branch is not None:
            totals[row.branch] += row.total
    return dict(totals)


def curve(forecast: Forecast) -> list[tuple[int, Total]]:
    """Return what a rule of N days for all branches frees now: ascending by N, with an entry wherever it changes.

    The first entry is for 0 days. Each entry holds until the next one. Objects of which it is unknown are omitted.
    """
    always = Total()
    freed_until: dict[int, Total] = defaultdict(Total)
    for row in forecast.rows:
        last = _longest_rule_that_frees(row, forecast)
        if last is None:
            always += row.total
        elif last >= 0:
            freed_until[last] += row.total
    total = sum(freed_until.values(), always)
    steps = [(0, total)]
    for days in sorted(freed_until):
        total -= freed_until[days]
        steps.append((days + 1, total))
    return steps


def _longest_rule_that_frees(row: Row, forecast: Forecast) -> int | None:
    """Return the greatest N for which a rule of N days frees the objects now; -1 for no N, None for every N."""
    ages = dict(zip(forecast.classes, row.ages, strict=True))
    protected = ages.pop(PROTECT_DAYS, None)
    if row.held_by != NONE or row.new_days >= 0 or (protected is not None and protected < 0):
        return -1
    limits = [age for age in ages.values() if age is not None]
    if row.unseen:
        # A rule that is longer than the present one may keep them.
        limits.append(-1 if forecast.rules is None else forecast.rules.default_retention_days)
    return min(limits, default=None)


def _outcomes(forecast: Forecast, rules: GCRules | None, days: int) -> Iterator[tuple[Row, str, str]]:
    """Yield each row with its outcome, and the rule that kept it last if it is freed."""
    names = [_label(name) for name in forecast.classes]
    limits = [0 if name == PROTECT_DAYS else _days_of(name, rules) for name in forecast.classes]
    now = forecast.rules
    is_longer = rules is not None and (now is None or rules.default_retention_days > now.default_retention_days)
    for row in forecast.rows:
        if row.held_by not in (NONE, HEAD):
            yield row, row.held_by, ""
            continue
        left = {
            name: limit - age - days
            for name, limit, age in zip(names, limits, row.ages, strict=True)
            if age is not None
        }
        has_commit = bool(left) or row.unseen or row.held_by == HEAD
        if (rules is None and has_commit) or any(days_left > 0 for days_left in left.values()):
            yield row, RULES, ""
        elif row.held_by == HEAD:
            yield row, HEADS, ""
        elif row.new_days >= days:
            yield row, NEW, ""
        elif row.unseen and is_longer:
            yield row, UNKNOWN, ""
        elif left or row.unseen:
            yield row, EXPIRED, max(left, key=lambda name: left[name], default=_label(DEFAULT))
        else:
            yield row, NEVER_COMMITTED, NEVER_COMMITTED


def _days_of(class_name: str, rules: GCRules | None) -> int:
    if rules is None:
        return 0
    return rules.default_retention_days if class_name == DEFAULT else rules.retention_days(class_name)


def _label(class_name: str) -> str:
    """Return the rule of a class for people and for JSON."""
    if class_name in (DEFAULT, PROTECT_DAYS):
        return class_name or "default"
    return f"branch {class_name}"
