"""Small pieces of Markdown that the generated parts share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def sentence(text: str) -> str:
    """Return a text on one line, with one blank after a full stop, and ``<`` as Markdown shows it."""
    spans = re.split(r"(`[^`]*`)", re.sub(r"\s+", " ", text).strip())
    return "".join(span if span.startswith("`") else span.replace("<", "&lt;") for span in spans)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table.  A vertical bar in a cell is escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
