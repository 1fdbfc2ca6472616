"""Computes or reads a forecast for ``forecast`` and ``branches``. Imported late: Dagster and Spark take seconds."""

from __future__ import annotations

from lakefs_gc.config import Settings, load_server_credentials
from lakefs_gc.engine.forecast.deleted_repositories import Findings, find_unused_namespaces
from lakefs_gc.engine.forecast.outlook import Forecast
from lakefs_gc.engine.forecast.stored_runs import run_to_forecast, stored_forecast
from lakefs_gc.engine.records.stored_marks import open_namespace
from lakefs_gc.engine.run import new_run_key
from lakefs_gc.engine.workspace.workspace import Workspace, utc_now
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.pipeline.assets.forecast import ForecastConfig
from lakefs_gc.pipeline.assets.store_listing import ListingConfig
from lakefs_gc.pipeline.jobs import FORECAST_INPUTS, gc_forecast, gc_mark
from lakefs_gc.pipeline.session import GCSession
from lakefs_gc.storage.open import open_store
from lakefs_gc.terminal.output import Output


def forecast(settings: Settings, out: Output, repository: str, asked: GCRules | None, fresh: bool) -> Forecast:
    """Return a forecast that covers the rules ``asked``: a stored one, or one of the newest run, or of a new run.

    ``fresh``: list the store and read the references in a new run, even if the data of a run are there.
    """
    server = LakeFSClient(load_server_credentials(), settings.lakefs)
    namespace = open_namespace(repository, server, settings)
    with GCSession.open(settings) as session, out.progress(f"forecasting {repository}"):
        workspace = Workspace(session.settings.resolved_work_url())
        run_key = "" if fresh else run_to_forecast(workspace, repository, namespace.store, namespace.url)
        stored = stored_forecast(workspace, run_key) if run_key else None
        if stored is not None and stored.covers(asked) and stored.rules == server.retention_rules(repository):
            return stored
        if not run_key:
            if settings.emr is not None:
                raise ConfigurationError(
                    f"No run of {repository} in the last 7 days has data for a forecast, or a sweep followed it. With "
                    "`emr` in the settings, this command starts no new run",
                    remedy=f"Run `lakefs-gc mark {repository}`, which deletes nothing, then try again",
                )
            run_key = new_run_key(repository, utc_now())
            session.materialize(gc_mark.name, run_key, {"store_listing": ListingConfig()}, selection=FORECAST_INPUTS)
        config = ForecastConfig(branches=sorted(asked.branches) if asked else [])
        session.materialize(gc_forecast.name, run_key, {"forecast": config})
        made = stored_forecast(workspace, run_key)
    if made is None:
        raise ConfigurationError(
            f"The forecast of run {run_key} cannot be read from {session.settings.resolved_work_url()}",
            remedy="Set work_url to a location that this machine and all machines of Spark share",
        )
    return made


def unused_namespaces(settings: Settings, out: Output) -> Findings:
    """Return the folders that look like namespaces of deleted repositories."""
    server = LakeFSClient(load_server_credentials(), settings.lakefs)
    with GCSession.open(settings) as session, out.progress("looking for namespaces of deleted repositories"):
        workspace = Workspace(session.settings.resolved_work_url())
        return find_unused_namespaces(server.repositories(), settings, open_store, workspace)
