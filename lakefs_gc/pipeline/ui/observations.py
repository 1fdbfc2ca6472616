"""Says on the page of a mark in Dagster's UI what happened to the mark after it was made."""

from __future__ import annotations

from dagster import AssetExecutionContext, AssetObservation

from lakefs_gc.config import Settings
from lakefs_gc.engine.records.stored_marks import Marked
from lakefs_gc.pipeline.names import Names
from lakefs_gc.pipeline.ui.summaries import current_metadata
from lakefs_gc.report.current import rewrite_report


def show_current_state(context: AssetExecutionContext, settings: Settings, marked: Marked) -> None:
    """Write the report of a mark again, and show what has changed since on the page of the mark in the UI.

    The metadata of a materialization never change: those of a swept mark still say "Ready for approval".
    """
    page = rewrite_report(settings, marked)
    if page is None or marked.mark.run_key != context.partition_key:
        return  # the mark of another partition, which the configuration named
    names = Names.of(context.asset_key)
    context.log_event(
        AssetObservation(names.key("mark"), partition=context.partition_key, metadata=current_metadata(page, names))
    )
