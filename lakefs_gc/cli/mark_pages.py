"""The page of a mark as it is now, read from the namespace. Needs no Dagster and no Spark session."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from lakefs_gc.cli.mark_reports import find_mark, mark_facts
from lakefs_gc.config import Settings, load_server_credentials
from lakefs_gc.engine.forecast.outlook import curve
from lakefs_gc.engine.forecast.stored_runs import stored_forecast
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_parts import PART_SCHEMA, overview, read_part
from lakefs_gc.engine.records.stored_marks import list_marks, open_namespace
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.errors import MarkError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.report.current import current_page
from lakefs_gc.report.facts import page_facts
from lakefs_gc.report.html import as_html
from lakefs_gc.report.page import CurvePoint
from lakefs_gc.report.text import as_text


def show(settings: Settings, repository: str, mark_id: str) -> tuple[Mark, str, dict[str, Any]]:
    """Return a mark, its page as text, and the same as JSON for scripts."""
    marked = find_mark(settings, repository, mark_id)
    page = current_page(settings, marked, overview(marked.store, marked.mark))
    facts = {**mark_facts(marked.mark), "reasons": marked.mark.reasons, **page_facts(page)}
    return marked.mark, as_text(page), facts


def text(settings: Settings, mark: Mark) -> str:
    """Return the page of a mark as text."""
    return show(settings, mark.repository, mark.mark_id)[1]


def html(settings: Settings, repository: str, mark_id: str) -> str:
    """Return the page of a mark as HTML, with the curve of the forecast of its run, if this machine has one."""
    marked = find_mark(settings, repository, mark_id)
    return as_html(current_page(settings, marked, forecast=_curve(settings, marked.mark)))


def _curve(settings: Settings, mark: Mark) -> list[CurvePoint]:
    work_url = settings.resolved_work_url()
    if work_url.startswith("file://") and not Path(work_url.removeprefix("file://")).exists():
        return []  # opening the workspace would create it
    forecast = stored_forecast(Workspace(work_url), mark.run_key)
    return [CurvePoint(days, total.size_bytes) for days, total in curve(forecast)] if forecast else []


def latest_mark(settings: Settings, repository: str) -> str:
    """Return the id of the newest mark of a repository. Raise ``MarkError`` without marks."""
    server = LakeFSClient(load_server_credentials(), settings.lakefs)
    for mark_id in list_marks(open_namespace(repository, server, settings).store):
        return mark_id
    raise MarkError(f"Repository {repository} has no mark", remedy=f"Run `lakefs-gc mark {repository}`")


def write_list(settings: Settings, repository: str, mark_id: str, file: Path) -> int:
    """Write the marked objects as CSV, and return their number. Raise ``MarkError`` if a part was changed."""
    marked, objects = find_mark(settings, repository, mark_id), 0
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(PART_SCHEMA.names)
        for part in marked.mark.parts:
            for row in read_part(marked.store, part).to_pylist():
                modified = row["last_modified"]
                writer.writerow({**row, "last_modified": modified.isoformat() if modified else ""}.values())
                objects += 1
    return objects
