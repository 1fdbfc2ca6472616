"""Refuses a cron expression that Dagster would refuse when it loads the code location."""

from __future__ import annotations

from dagster._utils.schedules import is_valid_cron_schedule

from lakefs_gc.errors import ConfigurationError


def refuse_cron(cron: str) -> None:
    """Raise ``ConfigurationError`` for a cron expression that Dagster does not accept.

    The settings refuse the usual mistakes without Dagster, which takes a second to import. Dagster knows every form.
    """
    if not is_valid_cron_schedule(cron):
        raise ConfigurationError(
            f"schedule.cron is {cron!r}, which Dagster does not accept",
            remedy='set five fields, e.g. cron = "0 3 * * *", or one of @hourly, @daily, @weekly, @monthly',
        )
