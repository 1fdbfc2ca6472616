"""Prints the results of the command line."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.terminal.findings import Finding
from lakefs_gc.terminal.logs import configure_logging
from lakefs_gc.terminal.progress_line import ProgressLine
from lakefs_gc.units import human_bytes

logger = logging.getLogger(__name__)

_PLAIN_WIDTH = 200
_VERDICT_STYLE = {"ok": "green", "warn": "yellow", "fail": "red"}


class Output:
    """Prints results on standard output, as tables or as one JSON object, and everything else on standard error."""

    def __init__(self, *, as_json: bool = False, log_json: bool = False, verbose: bool = False) -> None:
        self.as_json = as_json
        self._log_json = log_json
        # No Jupyter: rich would need ipywidgets, and make each line an output of the cell. No emoji: `:100:` is part of
        # a key. Without a terminal, lines are not folded at rich's default of 80 columns.
        width = None if sys.stdout.isatty() else _PLAIN_WIDTH
        self._out = Console(force_jupyter=False, highlight=False, emoji=False, soft_wrap=True, width=width)
        self._err = Console(force_jupyter=False, stderr=True, highlight=False, emoji=False, soft_wrap=True, width=width)
        # With JSON on standard output, text for people goes to standard error.
        self._people = self._err if as_json else self._out
        configure_logging(self._err, as_json=log_json, verbose=verbose)

    def result(self, facts: Mapping[str, Any], show: Callable[[], object]) -> None:
        """Print a result: ``facts`` as JSON, or else what ``show`` prints."""
        if self.as_json:
            typer.echo(json.dumps(facts))
        else:
            show()

    def say(self, text: str) -> None:
        """Print a line for people."""
        self._people.print(text, markup=False)

    def heading(self, text: str) -> None:
        """Print a line above a section, in bold on a terminal."""
        self._people.print(f"\n{text}", style="bold", markup=False)

    def say_error(self, text: str) -> None:
        """Print a line on standard error, or log it if the log is JSON."""
        if self._log_json:
            logger.error(text)
        else:
            self._err.print(text, style="red", markup=False)

    def fail(self, error: LakeFSGCError) -> None:
        """Print an error and its remedy. If the log is JSON, write one record (``message``, ``remedy``, ``error``)."""
        if self._log_json:
            logger.error("%s", error.message, extra={"remedy": error.remedy, "error": type(error).__name__})
            return
        self._err.print(f"error: {error.message}", style="red", markup=False)
        if error.remedy:
            self._err.print(f"what to do: {error.remedy}", markup=False)

    @contextmanager
    def progress(self, text: str) -> Iterator[None]:
        """Show what the run is doing: in one line on a terminal, otherwise in the log from time to time."""
        with _without_capture(self._err), RUN_PROGRESS.logged(), self._err.status(ProgressLine(text)):
            yield

    def show_outcomes(
        self, outcomes: Mapping[str, Mapping[str, int]], errors: Sequence[Mapping[str, str | int]] = ()
    ) -> None:
        """Show the outcomes of a sweep, backup or restore, and the most frequent errors."""
        self._table(
            ("outcome", "objects", "size"),
            [(name.replace("_", " "), f"{o['objects']:,}", _size(o["size_bytes"])) for name, o in outcomes.items()],
        )
        self.show_errors(errors)

    def show_history(self, marks: Sequence[Mapping[str, Any]]) -> None:
        """Show the marks of a repository."""
        if not marks:
            self.say("no marks")
            return
        columns = (
            "mark_id",
            "created_at",
            "cutoff",
            "made_by",
            "candidates",
            "size",
            "state",
            "approver",
            "deleted_size",
        )
        rows = [(*(mark[column] for column in columns), ", ".join(mark["failed_checks"] or ())) for mark in marks]
        names = [column.replace("deleted_size", "deleted") for column in columns]
        self._table((*names, "failed checks"), rows)

    def show_backups(self, backups: Sequence[Mapping[str, Any]]) -> None:
        """Show the backups."""
        if not backups:
            self.say("no backups")
            return
        columns = ("repository", "mark_id", "created_at", "objects", "size", "state")
        self._table(columns, [tuple(backup[column] for column in columns) for backup in backups])

    def show_errors(self, errors: Sequence[Mapping[str, str | int]]) -> None:
        """Show the most frequent errors, each with an example."""
        if errors:
            columns = ("objects", "error", "for_example")
            self._table(columns, [tuple(error[column] for column in columns) for error in errors])

    def show_findings(self, findings: Sequence[Finding]) -> None:
        """Show the findings of ``doctor``."""
        facts = {"findings": [finding.to_facts() for finding in findings]}
        self.result(facts, lambda: self._findings_table(findings))

    def show_table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Show rows as a table."""
        self._table(columns, rows)

    def _findings_table(self, findings: Sequence[Finding]) -> None:
        table = Table("check", "", "finding", box=None)
        for finding in findings:
            style = _VERDICT_STYLE[finding.verdict]
            remedy = f"\n→ {finding.remedy}" if finding.remedy else ""
            table.add_row(finding.check, f"[{style}]{finding.verdict}[/]", Text(finding.detail + remedy))
        self._people.print(table)

    def _table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], *, header: bool = True) -> None:
        table = Table(*columns, box=None, show_header=header)
        for row in rows:
            table.add_row(*(Text(str(value)) for value in row))
        self._people.print(table)


@contextmanager
def _without_capture(console: Console) -> Iterator[None]:
    """Have a console write to what standard error is now. Dagster redirects it to a file while steps run."""
    try:
        descriptor = os.dup(console.file.fileno())
    except (OSError, ValueError):  # a test or a notebook replaced it by something that is not a file
        yield
        return
    before = console.file
    with open(descriptor, "w", encoding=sys.stderr.encoding, errors="backslashreplace", buffering=1) as file:  # noqa: PTH123
        console.file = file
        try:
            yield
        finally:
            console.file = before


def _size(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else human_bytes(size_bytes)
