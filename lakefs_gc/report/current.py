"""Reads what the page of a mark shows, as it is now. The only module here that reads a store."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lakefs_gc.config import Settings
from lakefs_gc.engine.forecast.outlook import curve
from lakefs_gc.engine.forecast.stored_runs import stored_forecast
from lakefs_gc.engine.records.backups.location import backup_location_of, read_backup
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_facts import MarkFacts, read_facts, report_key
from lakefs_gc.engine.records.mark_history import history_of, state_of
from lakefs_gc.engine.records.mark_parts import Overview, overview
from lakefs_gc.engine.records.stored_marks import Marked, list_marks
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.errors import BackupError, LakeFSGCError
from lakefs_gc.report.build import Extras, mark_page
from lakefs_gc.report.html import as_html
from lakefs_gc.report.next_step import BackupState, Standing
from lakefs_gc.report.page import CurvePoint, MarkPage, RunRow
from lakefs_gc.storage.open import open_store

logger = logging.getLogger(__name__)

_LAST_RUNS = 5


def current_page(
    settings: Settings, marked: Marked, contents: Overview | None = None, forecast: Sequence[CurvePoint] = ()
) -> MarkPage:
    """Return the page of a mark as it is now, with the last marks of its repository.

    ``contents`` are its largest prefixes and, if it has no facts, its sample; default: those of its facts, or else all
    parts are read. ``forecast`` is the curve of the forecast of its run, if there is one.
    """
    mark, store = marked.mark, marked.store
    facts, state = read_facts(store, mark), state_of(store, mark)
    if contents is None:
        contents = facts.overview if facts else overview(store, mark)
    elif facts is not None:
        contents = replace(contents, sample=facts.sample)  # has the paths
    newest = next(list_marks(store), mark.mark_id)
    standing = Standing(
        now=store.now(),
        state=str(state["state"]),
        approved_by=str(state["approver"]),
        superseded_by="" if newest == mark.mark_id else newest,
        backup=_backup_state(settings, mark),
    )
    runs = history_of(store, mark.repository, mark.namespace, limit=_LAST_RUNS)
    extras = Extras(state.get("outcomes", {}), tuple(map(_run_row, runs)), forecast)
    return mark_page(mark, facts, contents, standing, extras)


def write_report(settings: Settings, marked: Marked, facts: MarkFacts) -> MarkPage:
    """Write the HTML report of a new mark beside it, and return its page.

    What cannot be read now (an earlier mark, the backup location) is not in the report. It does not fail the run.
    """
    try:
        page = current_page(settings, marked)
    except LakeFSGCError as error:
        logger.warning("the report of mark %s has no history: %s", marked.mark.mark_id, error.message)
        page = mark_page(marked.mark, facts, facts.overview)
    _put(marked, page)
    return page


def rewrite_report(settings: Settings, marked: Marked) -> MarkPage | None:
    """Write the report of a mark again after something happened to it, and return its page as it is now.

    None if something cannot be read now. The report is then the one before: without the state of the mark, it would say
    that the mark waits for approval. It does not fail the run.
    """
    try:
        page = current_page(settings, marked, forecast=stored_curve(settings, marked.mark))
        _put(marked, page)
    except LakeFSGCError as error:
        logger.warning("the report of mark %s is the one before: %s", marked.mark.mark_id, error.message)
        return None
    return page


def has_workspace(settings: Settings) -> bool:
    """Return whether this machine may have a workspace. Opening one that it does not have would create it."""
    work_url = settings.resolved_work_url()
    return not work_url.startswith("file://") or Path(work_url.removeprefix("file://")).exists()


def stored_curve(settings: Settings, mark: Mark) -> list[CurvePoint]:
    """Return the curve of the forecast of the run that made a mark; empty if this machine has none."""
    if not has_workspace(settings):
        return []
    forecast = stored_forecast(Workspace(settings.resolved_work_url()), mark.run_key)
    return [CurvePoint(days, total.size_bytes) for days, total in curve(forecast)] if forecast else []


def _put(marked: Marked, page: MarkPage) -> None:
    marked.store.put(report_key(marked.mark.mark_id), as_html(page).encode())


def _backup_state(settings: Settings, mark: Mark) -> BackupState:
    if not settings.backup.url:
        return BackupState.not_configured
    try:
        backup = read_backup(
            open_store(backup_location_of(settings.backup)), BackupPaths(mark.repository, mark.mark_id)
        )
    except BackupError:
        return BackupState.missing
    except LakeFSGCError as error:
        logger.warning("whether mark %s has a backup is unknown: %s", mark.mark_id, error.message)
        return BackupState.unknown
    return BackupState.complete if backup.mark_digest == mark.digest else BackupState.of_another_digest


def _run_row(run: dict[str, Any]) -> RunRow:
    names = ("mark_id", "created_at", "candidates", "size", "state", "deleted_size")
    return RunRow(*(str(run.get(name, "")) for name in names))
