"""The sensor ``approvals_in_namespaces``: records approvals that were made outside this Dagster instance.

An approval is stored beside its mark. If it was made elsewhere (the command line of another machine, another Dagster
instance), this sensor records it as a materialization of ``sweep_approval``. The sensor ``sweep_after_mark`` then
starts the sweep. No cursor is needed: approvals that are already recorded or swept are skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from dagster import (
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

from lakefs_gc.config import SafetyParameters, Settings, load_server_credentials
from lakefs_gc.engine.records.pending_approvals import PendingApproval, pending_approvals
from lakefs_gc.engine.records.stored_marks import open_namespace, ready_at
from lakefs_gc.engine.run import repository_of
from lakefs_gc.engine.scope import Scope
from lakefs_gc.errors import LakeFSGCError, RepositoryNotFoundError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.pipeline.names import OWN, Names
from lakefs_gc.pipeline.ui.summaries import approval_metadata

logger = logging.getLogger(__name__)

ReadApprovals = Callable[[str], list[PendingApproval]]
"""Return the pending approvals of a repository. Raise ``LakeFSGCError`` if they cannot be read."""

INTERVAL_SECONDS = 60
_AT_ONCE = 8
_RECORDS = 100
"""How many recorded approvals of one mark are compared."""
# Dagster ends a tick after 60 seconds with an error for all repositories.
_TIMEOUT_SECONDS = 45.0


class Reading(NamedTuple):
    """The result of one tick: approvals that are not recorded yet, and the reason for each repository that failed."""

    new: list[PendingApproval]
    failures: dict[str, str]


def approval_sensor(settings: Settings, read: ReadApprovals | None = None, names: Names = OWN) -> SensorDefinition:
    """Return the sensor for the repositories of the settings and of the partitions."""

    @sensor(
        name=names.name("approvals_in_namespaces"),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description="Records approvals that were made elsewhere: on the command line of another machine, or in another "
        "Dagster instance. The sensor sweep_after_mark then starts their sweeps.",
    )
    def approvals_in_namespaces(context: SensorEvaluationContext) -> SensorResult:
        partitions = context.instance.get_dynamic_partitions(str(names.runs.name))
        repositories = sorted({*settings.repositories, *map(repository_of, partitions)})
        reader = read or read_namespaces(settings)
        reading = read_all(context.instance, repositories, reader, settings.repositories, names)
        run_keys = sorted({approval.run_key for approval in reading.new} - set(partitions))
        return SensorResult(
            skip_reason=_summary(repositories, reading),
            asset_events=[as_materialization(approval, settings.safety, names) for approval in reading.new],
            dynamic_partitions_requests=[names.runs.build_add_request(run_keys)] if run_keys else [],
        )

    return approvals_in_namespaces


def read_namespaces(settings: Settings) -> ReadApprovals:
    """Return a reader of approvals, which gets each repository's namespace from the lakeFS server."""

    def read(repository: str) -> list[PendingApproval]:
        server = LakeFSClient(load_server_credentials(), settings.lakefs)
        return pending_approvals(open_namespace(repository, server, settings).store, repository)

    return read


def read_all(
    instance: DagsterInstance,
    repositories: Collection[str],
    read: ReadApprovals,
    configured: Collection[str],
    names: Names = OWN,
) -> Reading:
    """Read the approvals of each repository, several at once. A repository that fails or hangs does not block others.

    ``configured`` are the repositories of the settings. Others may have been deleted, with their partitions remaining.
    """
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="approvals")
    futures: dict[Future[list[PendingApproval]], str] = {pool.submit(read, name): name for name in repositories}
    wait(futures, timeout=_TIMEOUT_SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    new: list[PendingApproval] = []
    failures: dict[str, str] = {}
    for future, repository in futures.items():
        try:
            new += _not_recorded(instance, future.result(timeout=0), names)
        except RepositoryNotFoundError as error:
            if repository in configured:
                failures[repository] = error.message
        except LakeFSGCError as error:
            failures[repository] = error.message
        except (TimeoutError, CancelledError):
            failures[repository] = f"no answer within {_TIMEOUT_SECONDS:g} seconds"
    for repository, reason in failures.items():
        logger.warning("approvals of repository %s were not read: %s", repository, reason)
    return Reading(new, failures)


def as_materialization(approval: PendingApproval, safety: SafetyParameters, names: Names = OWN) -> AssetMaterialization:
    """Return the record of an approval that was made elsewhere, with the time from which its sweep can delete."""
    ready = {"ready_at": MetadataValue.timestamp(ready_at(approval.mark, safety))} if approval.mark else {}
    return AssetMaterialization(
        names.key("sweep_approval"),
        description="Read from the namespace: the approval was made outside this Dagster instance.",
        partition=approval.run_key,
        metadata=approval_metadata(approval.approval) | ready,
    )


def _not_recorded(
    instance: DagsterInstance, approvals: Iterable[PendingApproval], names: Names
) -> list[PendingApproval]:
    return [approval for approval in approvals if not _is_recorded(instance, approval, names)]


def _is_recorded(instance: DagsterInstance, approval: PendingApproval, names: Names) -> bool:
    records_filter = AssetRecordsFilter(asset_key=names.key("sweep_approval"), asset_partitions=[approval.run_key])
    records = instance.fetch_materializations(records_filter, limit=_RECORDS).records
    return any(
        (recorded := record.asset_materialization) is not None
        and recorded.metadata.get("approved_at") == MetadataValue.timestamp(approval.approval.approved_at)
        and recorded.metadata.get("digest") == MetadataValue.text(approval.approval.digest)
        # Earlier versions recorded approvals of whole marks only, without this field.
        and recorded.metadata.get("only", MetadataValue.text(Scope.all)) == MetadataValue.text(approval.approval.only)
        for record in records
    )


def _summary(repositories: Collection[str], reading: Reading) -> str:
    if not repositories:
        return "No repositories are configured. List them under `repositories` in lakefs-gc.toml."
    new = ", ".join(f"{approval.run_key} by {approval.approval.approved_by}" for approval in reading.new) or "none"
    summary = f"New approvals in the namespaces of {len(repositories) - len(reading.failures)} repositories: {new}."
    unread = "; ".join(f"{name}: {reason}" for name, reason in sorted(reading.failures.items()))
    return f"{summary} Repositories that were not read: {unread}" if unread else summary
