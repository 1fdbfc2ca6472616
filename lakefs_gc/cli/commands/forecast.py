"""The commands that look ahead: ``forecast`` and ``branches``. They delete nothing, and write no mark.

Each command imports what it needs, so that ``--help`` takes half a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakefs_gc.cli.options import OPTIONS, AsJSON, Repository
from lakefs_gc.errors import ConfigurationError

if TYPE_CHECKING:
    from lakefs_gc.formats.gc_rules import GCRules

Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh", help="List the store anew. Default: use the newest run of the last 7 days, if no sweep followed."
    ),
]


def forecast(
    repository: Repository,
    retention: Annotated[
        str,
        typer.Option(metavar="RULES", help="Rules to evaluate beside the present ones: default=30,main=14 (days)."),
    ] = "",
    fresh: Fresh = False,
    json: AsJSON = False,
) -> None:
    """Show what the retention rules, or others, would free now, in 30 and in 90 days. Deletes nothing."""
    from lakefs_gc.cli import forecast_runs, forecast_tables
    from lakefs_gc.engine.forecast.facts import forecast_facts

    out, asked = OPTIONS.output(json), parse_retention(retention)
    made = forecast_runs.forecast(OPTIONS.settings(), out, repository, asked, fresh)
    facts = {"repository": repository, **forecast_facts(made, asked, is_asked=asked is not None)}
    out.result(facts, lambda: forecast_tables.show_forecast(out, facts))


def branches(
    repository: Repository,
    idle_days: Annotated[
        int, typer.Option(help="Days without a commit after which a branch that holds data alone is worth a look.")
    ] = 30,
    unused_namespaces: Annotated[
        bool,
        typer.Option(
            "--unused-namespaces",
            help="Also report folders that look like namespaces of deleted repositories. Lists all objects in them.",
        ),
    ] = False,
    fresh: Fresh = False,
    json: AsJSON = False,
) -> None:
    """Show the bytes that only one branch holds, and for how long it is idle. Deletes nothing."""
    from lakefs_gc.cli import forecast_runs, forecast_tables
    from lakefs_gc.engine.forecast.facts import branch_facts, metadata_facts, not_read

    out, settings = OPTIONS.output(json), OPTIONS.settings()
    made = forecast_runs.forecast(settings, out, repository, None, fresh)
    facts = {
        "repository": repository,
        "as_of": made.facts["as_of"],
        "branches": branch_facts(made, idle_days),
        "metadata": metadata_facts(made),
        "not_read": not_read(made),
    }
    if unused_namespaces:
        found = forecast_runs.unused_namespaces(settings, out)
        facts["unused_namespaces"] = [namespace.to_facts() for namespace in found.namespaces]
        facts["not_read"] |= {"locations": found.not_read}
    out.result(facts, lambda: forecast_tables.show_branches(out, facts))


def parse_retention(text: str) -> GCRules | None:
    """Return the rules of ``default=30,main=14``; None for an empty text. Raise ``ConfigurationError`` otherwise."""
    from lakefs_gc.formats.gc_rules import GCRules

    if not text:
        return None
    days_of: dict[str, int] = {}
    for part in text.split(","):
        branch, _, days = part.strip().partition("=")
        if not branch or not days.isdecimal() or branch in days_of:
            raise _bad_retention(text, f"{part.strip()!r} is not BRANCH=DAYS with a new branch and whole days")
        days_of[branch] = int(days)
    default_days = days_of.pop("default", None)
    if default_days is None:
        raise _bad_retention(text, "it has no default")
    if not default_days and not days_of:
        raise _bad_retention(text, "lakeFS stores 0 days for all branches as no rules, so every commit would be active")
    return GCRules(default_days, days_of)


def _bad_retention(text: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"--retention {text} cannot be evaluated: {reason}", remedy="Use this form: --retention default=30,main=14"
    )
