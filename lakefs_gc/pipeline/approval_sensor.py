"""The sensor that finds approvals in the namespaces, whoever wrote them there, and has them in Dagster's records.

An approval is durable beside its mark.  One that was given where this Dagster keeps nothing (another machine's command
line, another instance) becomes a materialization of ``sweep_approval`` here, and ``sweep_after_mark`` then acts on it
like on any other.  There is no cursor: what is recorded already is not recorded again, and what a sweep has followed
is not found.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetRecordsFilter,
    DagsterInstance,
    DefaultSensorStatus,
    MetadataValue,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    sensor,
)

from lakefs_gc.config import Settings, load_server_credentials
from lakefs_gc.engine.records.pending_approvals import PendingApproval, pending_approvals
from lakefs_gc.engine.records.stored_marks import open_namespace
from lakefs_gc.engine.run import repository_of
from lakefs_gc.errors import LakeFSGCError, RepositoryNotFoundError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.summaries import approval_metadata

logger = logging.getLogger(__name__)

Look = Callable[[str], list[PendingApproval]]
"""Return the pending approvals of a repository. Raise ``LakeFSGCError`` if they cannot be read."""

INTERVAL_SECONDS = 60
_APPROVAL = AssetKey("sweep_approval")
_AT_ONCE = 8
_RECORDS = 100
"""How many approvals of one mark are compared."""
# Dagster ends a tick after 60 seconds, and would show its own message for all repositories then.
_PATIENCE_SECONDS = 45.0


class Looked(NamedTuple):
    """What one tick finds: approvals that this instance has not recorded, and why a repository was not looked at."""

    new: list[PendingApproval]
    failures: dict[str, str]


def approval_sensor(settings: Settings, look: Look | None = None) -> SensorDefinition:
    """The sensor for the repositories of the settings, and of the partitions."""

    @sensor(
        name="approvals_in_namespaces",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description="Record the approvals that people gave elsewhere: on the command line of another machine, or in "
        "another Dagster.  The sensor sweep_after_mark then starts their sweeps.",
    )
    def approvals_in_namespaces(context: SensorEvaluationContext) -> SensorResult:
        partitions = context.instance.get_dynamic_partitions(str(gc_runs.name))
        repositories = sorted({*settings.repositories, *map(repository_of, partitions)})
        look_into = look or look_in_namespaces(settings)
        found = look_everywhere(context.instance, repositories, look_into, settings.repositories)
        run_keys = sorted({one.run_key for one in found.new} - set(partitions))
        return SensorResult(
            skip_reason=_said(repositories, found),
            asset_events=[as_materialization(one) for one in found.new],
            dynamic_partitions_requests=[gc_runs.build_add_request(run_keys)] if run_keys else [],
        )

    return approvals_in_namespaces


def look_in_namespaces(settings: Settings) -> Look:
    """Looks where the server says that a repository is."""

    def look(repository: str) -> list[PendingApproval]:
        server = LakeFSClient(load_server_credentials())
        return pending_approvals(open_namespace(repository, server, settings).store, repository)

    return look


def look_everywhere(
    instance: DagsterInstance, repositories: Collection[str], look: Look, named: Collection[str]
) -> Looked:
    """Look into each repository, several at once; one that fails or does not answer keeps no other from being seen.

    ``named`` are those of the settings: another that is gone has only left its partitions behind.
    """
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="approvals")
    futures: dict[Future[list[PendingApproval]], str] = {pool.submit(look, name): name for name in repositories}
    wait(futures, timeout=_PATIENCE_SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    new: list[PendingApproval] = []
    failures: dict[str, str] = {}
    for future, repository in futures.items():
        try:
            new += _not_recorded(instance, future.result(timeout=0))
        except RepositoryNotFoundError as error:
            if repository in named:
                failures[repository] = error.message
        except LakeFSGCError as error:
            failures[repository] = error.message
        except (TimeoutError, CancelledError):
            failures[repository] = f"no answer within {_PATIENCE_SECONDS:g} seconds"
    for repository, why in failures.items():
        logger.warning("approvals of repository %s were not looked for: %s", repository, why)
    return Looked(new, failures)


def as_materialization(found: PendingApproval) -> AssetMaterialization:
    """The record of an approval that was given elsewhere."""
    return AssetMaterialization(
        _APPROVAL,
        description="Found in the namespace: it was given elsewhere.",
        partition=found.run_key,
        metadata=approval_metadata(found.approval),
    )


def _not_recorded(instance: DagsterInstance, found: Iterable[PendingApproval]) -> list[PendingApproval]:
    return [one for one in found if not _is_recorded(instance, one)]


def _is_recorded(instance: DagsterInstance, found: PendingApproval) -> bool:
    wanted = AssetRecordsFilter(asset_key=_APPROVAL, asset_partitions=[found.run_key])
    records = instance.fetch_materializations(wanted, limit=_RECORDS).records
    return any(
        (said := record.asset_materialization) is not None
        and said.metadata.get("approved_at") == MetadataValue.timestamp(found.approval.approved_at)
        and said.metadata.get("digest") == MetadataValue.text(found.approval.digest)
        for record in records
    )


def _said(repositories: Collection[str], looked: Looked) -> str:
    if not repositories:
        return "No repository is known: name yours under `repositories` in lakefs-gc.toml."
    said = ", ".join(f"{one.run_key} by {one.approval.approved_by}" for one in looked.new) or "none"
    said = f"New approvals in the namespaces of {len(repositories) - len(looked.failures)} repositories: {said}."
    unread = "; ".join(f"{name}: {why}" for name, why in sorted(looked.failures.items()))
    return f"{said} Not looked at: {unread}" if unread else said
