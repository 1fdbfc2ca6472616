"""Asset ``forecast``: what other retention rules would free, and what each branch holds."""

import logging

from dagster import AssetExecutionContext, Config, MaterializeResult, asset
from pydantic import Field

from lakefs_gc.engine.forecast import forecast as stage
from lakefs_gc.engine.forecast.stored_runs import STAGE, stored_forecast
from lakefs_gc.engine.records.stored_marks import mark_of_run
from lakefs_gc.engine.run import RunContext, continue_run, refuse_another_repository
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import InputOrderError, LakeFSGCError, MarkError
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.ui.failures import failures_shown
from lakefs_gc.pipeline.ui.metadata import stage_metadata
from lakefs_gc.pipeline.ui.summaries import forecast_metadata
from lakefs_gc.report.current import rewrite_report

logger = logging.getLogger(__name__)


class ForecastConfig(Config):
    """For which branches rules can be evaluated."""

    branches: list[str] = Field(
        default=[],
        description="Branches that may get a retention rule of their own, besides those that have one.",
    )


@asset(partitions_def=gc_runs, group_name="forecast", kinds={"spark", "lakefs"}, io_manager_key="parquet")
@failures_shown()
def forecast(
    context: AssetExecutionContext,
    config: ForecastConfig,
    store_listing: Dataset,
    uncommitted: Dataset,
    foreign_references: Dataset,
    unmatched: Dataset,
    kept: Dataset,
    engine: EngineResource,
) -> MaterializeResult:  # type: ignore[type-arg]  # Dagster takes no other annotation
    """What retention rules free now and later, what only the heads of branches hold, and a curve over all rules.

    It reads the data that the run stored and the commits as they are now. It is no input of a mark, and no part of
    ``gc_mark``: a mark does not wait for it. The sensor ``forecast_after_mark`` starts ``gc_forecast`` after each mark.
    The report of the mark then has the curve.
    """
    run_context = engine.context()
    run = continue_run(run_context, store_listing.manifest)
    refuse_another_repository(run_context.server, run)
    output = stage.forecast(
        run_context,
        run,
        listing=store_listing,
        uncommitted=uncommitted,
        foreign_references=foreign_references,
        unmatched=unmatched,
        kept=kept,
        ruled_branches=config.branches,
    )
    workspace = run_context.workspace
    manifest = workspace.write(run_context.spark, run.run_key, STAGE, output)
    stored = stored_forecast(workspace, run.run_key)
    if stored is None:
        raise InputOrderError(
            f"the forecast of run {run.run_key} cannot be read back",
            remedy="Check whether another process writes to the workspace (work_url), then run again",
        )
    _add_curve_to_report(run_context, run.run_key)
    url = f"{workspace.folder(run.run_key, STAGE)}/data"
    return MaterializeResult(metadata=forecast_metadata(stored) | stage_metadata(manifest, schemas.FORECAST, url))


def _add_curve_to_report(context: RunContext, run_key: str) -> None:
    try:
        marked = mark_of_run(run_key, "", context.server, context.settings, context.workspace)
    except MarkError as error:  # `lakefs-gc forecast` collects without a mark
        logger.info("the forecast of run %s is in no report: %s", run_key, error.message)
        return
    except LakeFSGCError as error:  # the forecast itself is stored
        logger.warning("the forecast of run %s is in no report: %s", run_key, error.message)
        return
    rewrite_report(context.settings, marked)
