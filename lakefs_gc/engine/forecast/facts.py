"""A forecast as plain values: for JSON, for the Dagster UI and for reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakefs_gc.engine.forecast.outlook import (
    Forecast,
    Total,
    curve,
    only_heads,
    only_this_branch,
    outlook,
)
from lakefs_gc.formats.gc_rules import GCRules, rules_to_record

DAYS_AHEAD = (0, 30, 90)
"""The days after the run for which rules are evaluated."""
IDLE_DAYS = 30
"""The days without a commit after which a branch that holds data alone is worth a look."""

ASSUMPTION = "No commit, upload, branch or tag is added or removed after the run."
LIMITS = (
    "A longer retention brings nothing back: objects that a sweep deleted are gone.",
    "Commits of deleted branches that have expired are invisible to clients. What only they have is unknown under a "
    "longer retention.",
    "Hidden twins among objects that are referenced now are not searched, so a mark may contain less.",
)


def forecast_facts(forecast: Forecast, rules: GCRules | None = None, *, is_asked: bool = False) -> dict[str, Any]:
    """Return what the present rules free, and what ``rules`` free if ``is_asked``: now and later, and what stays."""
    facts: dict[str, Any] = {
        "as_of": forecast.facts.get("as_of"),
        "assumption": ASSUMPTION,
        "limits": list(LIMITS),
        "present": _rules_facts(forecast, forecast.rules),
    }
    if is_asked:
        facts["asked"] = _rules_facts(forecast, rules)
    return facts | {
        "curve": [{"days": days, **total.to_facts()} for days, total in curve(forecast)],
        "not_read": not_read(forecast),
    }


def sampled(steps: Sequence[Mapping[str, int]], at_most: int = 20) -> list[Mapping[str, int]]:
    """Return at most so many steps of a curve for a chart: where a step loses most, in their order, and the first."""
    if len(steps) <= at_most:
        return list(steps)
    lost = {i: steps[i - 1]["size_bytes"] - steps[i]["size_bytes"] for i in range(1, len(steps))}
    chosen = {0, *sorted(lost, key=lambda i: -lost[i])[: at_most - 1]}
    return [step for i, step in enumerate(steps) if i in chosen]


def _rules_facts(forecast: Forecast, rules: GCRules | None) -> dict[str, Any]:
    heads = only_heads(forecast, rules)
    return {
        "rules": rules_to_record(rules),
        "freed": [outlook(forecast, rules, days).to_facts() for days in DAYS_AHEAD],
        "only_heads": [
            {"branch": None, "idle_days": None, **total.to_facts()}
            if number is None
            else {
                "branch": forecast.branches[number].name,
                "idle_days": forecast.branches[number].idle_days,
                **total.to_facts(),
            }
            for number, total in sorted(heads.items(), key=lambda item: -item[1].size_bytes)
        ],
    }


def not_read(forecast: Forecast) -> dict[str, Any]:
    """Return what could not be read, by kind. All empty and false if everything was read."""
    return {
        "metadata_files": [f"_lakefs/{name}" for name in forecast.unreadable],
        "repositories": forecast.facts.get("other_repositories_not_read", []),
        "no_other_repository": forecast.facts.get("other_repositories_switched_off", False),
    }


def branch_facts(forecast: Forecast, idle_days: int = IDLE_DAYS) -> list[dict[str, Any]]:
    """Return each branch with what it shows, what it alone holds, and what it shares: most bytes alone first.

    ``shown_bytes`` and ``shared_bytes`` are None if a file of its head could not be read. ``worth_a_look``: it has no
    commit for ``idle_days`` days, and holds something alone. ``frees_after_days``: the days from its deletion until the
    default rule lets its head expire, or None without rules (never).
    """
    alone = only_this_branch(forecast)
    rows = []
    for number, branch in enumerate(forecast.branches):
        only, shown = alone.get(number, Total()), branch.shown
        rules = forecast.rules
        rows.append(
            {
                "branch": branch.name,
                "idle_days": branch.idle_days,
                "shown_bytes": None if shown is None else shown.size_bytes,
                "only_objects": only.objects,
                "only_bytes": only.size_bytes,
                "shared_bytes": None if shown is None else max(0, shown.size_bytes - only.size_bytes),
                "frees_after_days": None if rules is None else max(0, rules.default_retention_days - branch.idle_days),
                "worth_a_look": branch.idle_days >= idle_days and only.objects > 0,
            }
        )
    return sorted(rows, key=lambda row: (-int(row["only_bytes"] or 0), str(row["branch"])))


def metadata_facts(forecast: Forecast) -> Mapping[str, Any]:
    """Return the metadata files, and those that no commit names which a client can see."""
    metadata: Mapping[str, Any] = forecast.facts.get("metadata", {})
    return metadata
