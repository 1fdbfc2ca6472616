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
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from lakefs_gc.config import Settings
from lakefs_gc.engine.run import new_run_key
from lakefs_gc.pipeline.automation.cron import refuse_cron
from lakefs_gc.pipeline.jobs import gc_mark
from lakefs_gc.pipeline.names import OWN, Names
from lakefs_gc.pipeline.partitions import tags_of_new_partition


def mark_schedule(
    settings: Settings, job: UnresolvedAssetJobDefinition = gc_mark, names: Names = OWN
) -> ScheduleDefinition:
    """Return the schedule that runs ``job`` for each configured repository. It is stopped by default.

    Raises ``ConfigurationError`` for a cron expression that Dagster cannot read.
    """

    def mark_repositories(context: ScheduleEvaluationContext) -> Iterator[RunRequest | SkipReason]:
        if not settings.repositories:
            yield SkipReason("No repositories are configured. List them under `repositories` in lakefs-gc.toml.")
            return
        # The result of a schedule cannot request partitions, as that of a sensor can. Adding them here would do so in a
        # dry run, too.
        target = context.repository_def.get_job(job.name) if context.repository_def else None
        if target is None:
            raise DagsterInvalidDefinitionError("the schedule is evaluated without its code location")
        # The run is named after the time of the tick, so a tick that is evaluated twice starts one run.
        tick = context.scheduled_execution_time
        for repository in settings.repositories:
            run_key = new_run_key(repository, tick)
            yield RunRequest(run_key=run_key, partition_key=run_key, tags=tags_of_new_partition(target, run_key))

    refuse_cron(settings.schedule.cron)
    return schedule(
        name=names.name("mark_repositories"),
        job=job,
        cron_schedule=settings.schedule.cron,
        execution_timezone=settings.schedule.timezone,
        default_status=DefaultScheduleStatus.STOPPED,
        description="Mark every configured repository. Deletes nothing.",
    )(mark_repositories)
