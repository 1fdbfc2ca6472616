"""The Dagster instance of this machine: which one it is, and what it lacks for the collector."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dagster import DagsterInstance
from dagster._core.instance.config import PoolGranularity

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.pipeline.names import POOL
from lakefs_gc.pipeline.partitions import REPOSITORY_TAG

INSTANCE_FILE = "dagster.yaml"
_PER_RUN = "{pools: {granularity: run}}"


class Trait(NamedTuple):
    """How an instance behaves in one respect. ``remedy`` is empty if that is as it should be."""

    detail: str
    remedy: str = ""


@contextmanager
def configured_instance() -> Iterator[DagsterInstance | None]:
    """Open the Dagster instance of ``DAGSTER_HOME``.

    Without it, that of ``dagster.yaml`` in the working directory, as ``dagster dev`` does. Without both: None. Raises
    ``ConfigurationError`` if ``DAGSTER_HOME`` is not a folder.
    """
    if home := os.environ.get("DAGSTER_HOME"):
        _refuse_unless_folder(home)
        with DagsterInstance.get() as instance:
            yield instance
    elif Path(INSTANCE_FILE).exists():
        with DagsterInstance.from_config(str(Path.cwd())) as instance:
            yield instance
    else:
        yield None


def traits(instance: DagsterInstance) -> Iterator[Trait]:
    """Yield what matters to the collector. A remedy names what to add to ``dagster.yaml``, or a command."""
    yield _one_run_at_a_time(instance)
    if instance.run_monitoring_enabled:
        yield Trait("runs whose process died are marked as failed (run_monitoring)")
    else:
        yield Trait(
            "run_monitoring is off: a run whose process died counts as running, and blocks its repository",
            "add `run_monitoring: {enabled: true}` to dagster.yaml",
        )
    if instance.run_retries_enabled:
        yield Trait(
            "run_retries is on: Dagster starts a failed run again by itself, also a sweep",
            "set `run_retries: {enabled: false}` in dagster.yaml, so that a person decides about a failed sweep",
        )
    if instance.telemetry_enabled:
        yield Trait(
            "telemetry is on: Dagster sends usage statistics to its makers",
            "add `telemetry: {enabled: false}` to dagster.yaml, unless you want that",
        )


def _one_run_at_a_time(instance: DagsterInstance) -> Trait:
    config = instance.get_concurrency_config()
    limits = config.run_queue_config.tag_concurrency_limits if config.run_queue_config else []
    if any(_is_limit_of_repositories(limit) for limit in limits):
        return Trait("one run of a repository at a time (tag_concurrency_limits)")
    storage = instance.event_log_storage
    limited = storage.get_pool_limits() if storage.supports_global_concurrency_limits else ()
    own = sorted(pool.name for pool in limited if pool.limit == 1 and pool.name.endswith(f"__{POOL}"))
    # Not `default_limit`: Dagster gives it to a new pool when it starts the first runs, and does not hold these back.
    if own:
        where = f"the pool {', '.join(own)}"
        if config.pool_config.pool_granularity is PoolGranularity.RUN:
            return Trait(f"one run at a time in {where}")
        return Trait(
            f"one step at a time in {where}: a second run of a repository may start between two steps of the first. "
            "The assets then refuse it",
            f"let the limit hold for whole runs: add `concurrency: {_PER_RUN}` to dagster.yaml",
        )
    return Trait(
        "two runs of one repository may start at the same time. The assets then refuse the second one",
        f"limit the tag {REPOSITORY_TAG} in dagster.yaml, as `lakefs-gc init` does. Where lakefs-gc is embedded, limit "
        f"its pool: `dagster instance concurrency set <prefix>__{POOL} 1`, and add `concurrency: {_PER_RUN}` to "
        "dagster.yaml",
    )


def _is_limit_of_repositories(limit: object) -> bool:
    return (
        isinstance(limit, dict)
        and limit.get("key") == REPOSITORY_TAG
        and limit.get("value") == {"applyLimitPerUniqueValue": True}
        and limit.get("limit") == 1
    )


def _refuse_unless_folder(home: str) -> None:
    folder = Path(home).expanduser()
    if not folder.is_absolute():
        raise ConfigurationError(
            f"DAGSTER_HOME is {home!r}, a relative path", remedy="set it to an absolute path, or unset it"
        )
    if not folder.is_dir():
        raise ConfigurationError(
            f"DAGSTER_HOME is {home!r}, which is not a folder", remedy=f"run `mkdir -p {home}`, or unset it"
        )
