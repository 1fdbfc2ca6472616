"""The page of a mark as plain text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakefs_gc.report.page import MarkPage
from lakefs_gc.report.tables import Table, tables


def as_text(page: MarkPage) -> str:
    """Return the page as text, with lines of any length."""
    return "\n".join(_lines(page))


def _lines(page: MarkPage) -> Iterator[str]:
    yield page.next.headline
    yield page.next.detail
    yield from (f"  {command}" for command in page.next.commands)
    yield ""
    yield from _aligned(("", ""), [(fact.name, fact.value) for fact in page.facts], frozenset())
    for table in tables(page):
        yield from ("", table.title)
        yield from _aligned(table.columns, table.rows, table.numbers)
        if table.note:
            yield f"  {table.note}"
    if page.consequences:
        yield from ("", "What else changes", *(f"  {line}" for line in page.consequences))


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[str]) -> Iterator[str]:
    shown = [columns, *rows] if any(columns) else list(rows)
    widths = [max(len(row[i]) for row in shown) for i in range(len(columns))]
    for row in shown:
        cells = (
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        )
        yield f"  {'  '.join(cells).rstrip()}"


def table_text(table: Table) -> str:
    """Return one table as text, for a fixed-width font."""
    return "\n".join(_aligned(table.columns, table.rows, table.numbers))
