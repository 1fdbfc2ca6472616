"""A Dagster project that has definitions with the names that lakefs-gc uses, and lakefs-gc embedded in it."""

from dagster import (
    AssetExecutionContext,
    Definitions,
    InitResourceContext,
    asset,
    job,
    multiprocess_executor,
    resource,
    schedule,
    sensor,
)

THEIRS = "of the user"


@resource
def of_the_user(_: InitResourceContext) -> str:
    return THEIRS


@asset(group_name="decide", required_resource_keys={"spark"})
def mark(context: AssetExecutionContext) -> str:
    return str(context.resources.spark)


@asset(group_name="collect")
def sweep() -> None:
    raise AssertionError("a job of lakefs-gc selected an asset of the user")


@job
def gc_mark() -> None:
    """A job with a name of lakefs-gc."""


@job
def gc_sweep() -> None:
    """A job with a name of lakefs-gc."""


@sensor(job=gc_sweep)
def sweep_after_mark() -> None:
    """A sensor with a name of lakefs-gc."""


@schedule(job=gc_mark, cron_schedule="0 0 * * *")
def mark_repositories() -> None:
    """A schedule with a name of lakefs-gc."""


def users_definitions() -> Definitions:
    """Return definitions whose names are all taken from lakefs-gc, with an executor."""
    return Definitions(
        assets=[mark, sweep],
        jobs=[gc_mark, gc_sweep],
        sensors=[sweep_after_mark],
        schedules=[mark_repositories],
        resources=dict.fromkeys(("spark", "settings", "parquet", "engine", "lakefs"), of_the_user),
        executor=multiprocess_executor,
    )
