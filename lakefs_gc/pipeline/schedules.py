"""The schedule: mark every configured repository."""

from __future__ import annotations

from collections.abc import Iterator

from dagster import (
    DagsterInvalidDefinitionError,
    DefaultScheduleStatus,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    schedule,
)

from lakefs_gc.config import Settings
from lakefs_gc.engine.run import new_run_key
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.pipeline.jobs import gc_mark
from lakefs_gc.pipeline.partitions import gc_runs, repository_tags


def mark_schedule(settings: Settings) -> ScheduleDefinition:
    """A run of ``gc_mark`` for each configured repository, at the configured time; off until it is switched on.

    Raises ``ConfigurationError`` for a cron expression that Dagster cannot read.
    """

    def mark_repositories(context: ScheduleEvaluationContext) -> Iterator[RunRequest | SkipReason]:
        if not settings.repositories:
            yield SkipReason("no repositories are configured: list them under `repositories` in lakefs-gc.toml")
            return
        # The time of the tick names the run, so that a tick that is evaluated twice starts it once.
        tick = context.scheduled_execution_time
        run_keys = [new_run_key(repository, tick) for repository in settings.repositories]
        context.instance.add_dynamic_partitions(str(gc_runs.name), run_keys)
        for run_key in run_keys:
            yield RunRequest(run_key=run_key, partition_key=run_key, tags=dict(repository_tags(run_key)))

    try:
        return schedule(
            name="mark_repositories",
            job=gc_mark,
            cron_schedule=settings.schedule.cron,
            execution_timezone=settings.schedule.timezone,
            default_status=DefaultScheduleStatus.STOPPED,
            description="Mark every repository of the configuration.",
        )(mark_repositories)
    except DagsterInvalidDefinitionError as error:
        raise ConfigurationError(
            f"schedule.cron is {settings.schedule.cron!r}, which Dagster cannot read",
            remedy='write five fields, e.g. cron = "0 3 * * *", or one of @hourly, @daily, @weekly, @monthly',
        ) from error
