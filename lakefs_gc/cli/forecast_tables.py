"""Shows a forecast, and branches with what they hold, as tables and charts for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lakefs_gc.engine.forecast.facts import sampled
from lakefs_gc.terminal.output import Output
from lakefs_gc.units import human_bytes

_BAR_WIDTH = 40
_BRANCHES_SHOWN = 20
_PREVIEW = {0: "now"}


def show_forecast(out: Output, facts: Mapping[str, Any]) -> None:
    """Show what the present rules and the asked rules free, what stays, and the curve."""
    out.say(f"As of {facts['as_of'][:19]} UTC. Assumption: {facts['assumption']}")
    for name, title in (("present", "present rules"), ("asked", "asked rules")):
        if name in facts:
            _show_rules(out, title, facts[name])
    out.say("")
    out.show_table(("a rule of N days for all branches frees now", "objects", "size", ""), list(_bars(facts["curve"])))
    out.say("")
    for limit in facts["limits"]:
        out.say(f"Limit: {limit}")
    show_not_read(out, facts["not_read"])


def _show_rules(out: Output, title: str, facts: Mapping[str, Any]) -> None:
    rules = facts["rules"]
    words = "none: every commit is active" if rules is None else _words(rules)
    out.say("")
    out.say(f"{title}: {words}")
    rows = []
    for at in facts["freed"]:
        when = _PREVIEW.get(at["days"], f"in {at['days']} days")
        rows.append((when, "all", f"{at['objects']:,}", human_bytes(at["size_bytes"])))
        rows += [("", f"  {rule}", *_total(total)) for rule, total in at["by_rule"].items()]
        if at["unknown"]["objects"]:
            rows.append(("", "  unknown, not included", *_total(at["unknown"])))
    out.show_table(("freed", "by rule", "objects", "size"), rows)
    stays = [(name.replace("_", " "), *_total(total)) for name, total in facts["freed"][0]["kept"].items()]
    out.show_table(("stays now, held by", "objects", "size"), stays)
    heads = facts["only_heads"]
    if heads:
        shown = [
            (row["branch"] or "several branches", "" if row["branch"] is None else row["idle_days"], *_total(row))
            for row in heads[:_BRANCHES_SHOWN]
        ]
        out.show_table(("only heads hold", "idle days", "objects", "size"), shown)
        if len(heads) > _BRANCHES_SHOWN:
            out.say(f"... and {len(heads) - _BRANCHES_SHOWN:,} more branches: see --json")


def _bars(curve: Sequence[Mapping[str, int]]) -> Iterator[tuple[str, str, str, str]]:
    greatest = max((step["size_bytes"] for step in curve), default=0) or 1
    for step in sampled(curve):
        bar = "#" * round(_BAR_WIDTH * step["size_bytes"] / greatest)
        yield f"{step['days']} or more", f"{step['objects']:,}", human_bytes(step["size_bytes"]), bar


def show_branches(out: Output, facts: Mapping[str, Any]) -> None:
    """Show each branch with what it alone holds, then the metadata files that nothing names, and unused namespaces."""
    columns = ("branch", "idle days", "only here", "objects", "shared", "frees after", "")
    rows = [
        (
            row["branch"],
            row["idle_days"],
            human_bytes(row["only_bytes"]),
            f"{row['only_objects']:,}",
            "could not be read" if row["shared_bytes"] is None else human_bytes(row["shared_bytes"]),
            "never: no rules" if row["frees_after_days"] is None else f"{row['frees_after_days']} days",
            "<- worth a look" if row["worth_a_look"] else "",
        )
        for row in facts["branches"]
    ]
    out.show_table(columns, rows)
    metadata = facts["metadata"]
    out.say("")
    out.say(
        f"Metadata files that no visible commit names: {metadata['unnamed_files']:,} of {metadata['files']:,}, "
        f"{human_bytes(metadata['unnamed_bytes'])}. Commits of deleted branches and dumps may still need them."
    )
    if metadata["unnamed_files"]:
        ages = metadata["unnamed_bytes_by_age"].items()
        out.show_table(("age", "size"), [(age, human_bytes(size)) for age, size in ages if size])
    if "unused_namespaces" in facts:
        _show_unused(out, facts["unused_namespaces"])
    show_not_read(out, facts["not_read"])
    out.say("Nothing is deleted.")


def _show_unused(out: Output, namespaces: Sequence[Mapping[str, Any]]) -> None:
    out.say("")
    if not namespaces:
        out.say("No folder that could be read looks like the namespace of a deleted repository.")
        return
    out.show_table(
        ("namespace without a repository", "objects", "size", "newest", "how it was found out"),
        [
            (row["url"], *_total(row), "" if row["newest"] is None else row["newest"][:10], row["found_by"])
            for row in namespaces
        ],
    )
    out.say("Another lakeFS server, or a repository that these credentials cannot see, may use these folders.")


def show_not_read(out: Output, unread: Mapping[str, Any]) -> None:
    """Show what could not be read, if anything."""
    files = unread["metadata_files"]
    if files:
        out.say(
            f"Could not be read: {len(files):,} metadata files, for example {files[0]}. Objects that only they name "
            "may seem to be unreferenced here."
        )
    if unread["repositories"]:
        out.say(f"Could not be read: repositories {', '.join(unread['repositories'])}. They may hold more objects.")
    if unread["no_other_repository"]:
        out.say("Not read: other repositories, because safety.check_foreign_references is false.")
    for location, reason in unread.get("locations", {}).items():
        out.say(f"Could not be read: {location}: {reason}")


def _words(rules: Mapping[str, Any]) -> str:
    branches = (f", {branch}={days}" for branch, days in sorted(rules["branches"].items()))
    return f"default={rules['default_days']}{''.join(branches)} (days)"


def _total(total: Mapping[str, int]) -> tuple[str, str]:
    return f"{total['objects']:,}", human_bytes(total["size_bytes"])
