"""The page of a mark as Markdown, for the metadata of Dagster and for messages."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lakefs_gc.report.page import MarkPage
from lakefs_gc.report.tables import Table

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])")


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line: keys and paths may have any character."""
    return _SPECIAL.sub(r"\\\1", re.sub(r"\s+", " ", text))


def table_markdown(table: Table) -> str:
    """Return a table as Markdown."""
    align = ("---:" if column in table.numbers else "---" for column in table.columns)
    lines = [_row(table.columns), f"| {' | '.join(align)} |", *map(_row, table.rows)]
    note = f"\n\n{escaped(table.note)}" if table.note else ""
    return "\n".join(lines) + note


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(escaped(cell).replace('  ', '&nbsp;&nbsp;') for cell in cells)} |"


def list_markdown(table: Table) -> str:
    """Return a table of two or three columns as a list, because its values may be long."""
    return "\n".join(f"- **{escaped(row[0])}**: {escaped(', default '.join(row[1:]))}" for row in table.rows)


def next_markdown(page: MarkPage, configuration: str) -> str:
    """Return the next step. ``configuration`` is what an approval in Dagster's UI needs, as YAML."""
    step = page.next
    lines = [f"**{escaped(step.headline)}**", "", escaped(step.detail)]
    if step.can_approve:
        lines += [
            "",
            "To approve, materialize **sweep_approval** for this partition with this configuration:",
            *("", "```yaml", configuration.rstrip(), "```"),
        ]
    if step.commands:
        # Dagster does not wrap code, so each option has a line of its own.
        commands = (command.replace(" --", " \\\n  --") for command in step.commands)
        lines += ["", "On the command line:", "", "```sh", *commands, "```"]
    return "\n".join(lines)
