"""The assets as jobs on EMR, with the same keys, partitions, checks and run configuration."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    Config,
    MaterializeResult,
    ResourceParam,
    multi_asset,
)
from dagster._core.definitions.metadata.external_metadata import metadata_map_from_external

from lakefs_gc import errors
from lakefs_gc.engine.records.stored_marks import mark_of_run
from lakefs_gc.engine.run import repository_of
from lakefs_gc.engine.sweep.preconditions import approve_if_needed
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import ConfigurationError, LakeFSGCError, RemoteJobError, RunInProgressError
from lakefs_gc.pipeline.assets.backup import BackupConfig
from lakefs_gc.pipeline.assets.forecast import ForecastConfig
from lakefs_gc.pipeline.assets.restore import RestoreConfig
from lakefs_gc.pipeline.assets.store_listing import ListingConfig
from lakefs_gc.pipeline.assets.sweep import SweepConfig
from lakefs_gc.pipeline.emr.clients import RemoteJobs
from lakefs_gc.pipeline.jobs import gc_backup, gc_forecast, gc_mark, gc_restore, gc_sweep
from lakefs_gc.pipeline.launches import refuse_backup_of_same_launch
from lakefs_gc.pipeline.names import OWN
from lakefs_gc.pipeline.partitions import add_own_partition, gc_runs
from lakefs_gc.pipeline.refusals import keep_statuses, statuses_kept_if_refused
from lakefs_gc.pipeline.resources.io_manager import SparkParquetIOManager
from lakefs_gc.pipeline.resources.lakefs import LakeFSResource
from lakefs_gc.pipeline.resources.run_lock import refuse_second_run
from lakefs_gc.pipeline.resources.settings import SettingsResource
from lakefs_gc.pipeline.ui.failures import failure_of, failures_shown

_LOCAL = frozenset({"sweep_approval"})
"""Assets that run in this process, because they need no Spark."""


def as_jobs(assets: Sequence[AssetsDefinition]) -> list[AssetsDefinition]:
    """Return definitions with the keys of ``assets``. Those that need Spark run on EMR."""
    by_name = {asset.key.path[-1]: asset for asset in assets}
    marked = [
        asset for name, asset in by_name.items() if name not in _LOCAL | {"forecast", "backup", "sweep", "restore"}
    ]
    local = [asset for name, asset in by_name.items() if name in _LOCAL]
    on_emr = [
        _forecast(by_name["forecast"]),
        _backup(by_name["backup"]),
        _sweep(by_name["sweep"]),
        _restore(by_name["restore"]),
    ]
    return [_mark(marked), *on_emr, *local]


def _shared(assets: Sequence[AssetsDefinition]) -> dict[str, Any]:
    return {
        "specs": [spec for asset in assets for spec in asset.specs],
        "check_specs": [check for asset in assets for check in asset.check_specs],
        "partitions_def": gc_runs,
    }


def _mark(assets: Sequence[AssetsDefinition]) -> AssetsDefinition:
    # Run configuration uses the same op names as without EMR.
    @multi_asset(name="store_listing", **_shared(assets))
    def mark_on_emr(context: AssetExecutionContext, config: ListingConfig, settings: SettingsResource) -> Iterator[Any]:
        with failures_shown():
            made = OWN.key("store_listing")
            with statuses_kept_if_refused(context, made=made):
                refuse_second_run(context)
            add_own_partition(context, OWN)
            yield from _results(context, gc_mark.name, config, settings, made=made)

    return mark_on_emr


def _forecast(asset: AssetsDefinition) -> AssetsDefinition:
    @multi_asset(name="forecast", **_shared([asset]))
    def forecast_on_emr(
        context: AssetExecutionContext, config: ForecastConfig, settings: SettingsResource
    ) -> Iterator[Any]:
        with failures_shown():
            with statuses_kept_if_refused(context):
                refuse_second_run(context)
            yield from _results(context, gc_forecast.name, config, settings)

    return forecast_on_emr


def _backup(asset: AssetsDefinition) -> AssetsDefinition:
    @multi_asset(name="backup", **_shared([asset]))
    def backup_on_emr(
        context: AssetExecutionContext, config: BackupConfig, settings: SettingsResource
    ) -> Iterator[Any]:
        with failures_shown():
            with statuses_kept_if_refused(context):
                refuse_second_run(context)
            yield from _results(context, gc_backup.name, config, settings)

    return backup_on_emr


def _restore(asset: AssetsDefinition) -> AssetsDefinition:
    @multi_asset(name="restore", **_shared([asset]))
    def restore_on_emr(
        context: AssetExecutionContext, config: RestoreConfig, settings: SettingsResource
    ) -> Iterator[Any]:
        with failures_shown():
            with statuses_kept_if_refused(context):
                refuse_second_run(context)
                refuse_backup_of_same_launch(context, OWN.key("backup"))
            yield from _results(context, gc_restore.name, config, settings)

    return restore_on_emr


def _sweep(asset: AssetsDefinition) -> AssetsDefinition:
    @multi_asset(name="sweep", **_shared([asset]))
    def sweep_on_emr(
        context: AssetExecutionContext,
        config: SweepConfig,
        lakefs: LakeFSResource,
        settings: SettingsResource,
        parquet: ResourceParam[SparkParquetIOManager],
    ) -> Iterator[Any]:
        with failures_shown():
            with statuses_kept_if_refused(context):
                refuse_second_run(context)
                if config.approve_digest:
                    # In this process, which knows who approves. A job sweeps approved marks and approves nothing.
                    configured = settings.get()
                    marked = mark_of_run(
                        context.partition_key, config.mark_id, lakefs.server(), configured, parquet.workspace
                    )
                    approve_if_needed(
                        marked,
                        config.approve_digest,
                        by=config.approved_by,
                        via=config.approved_via,
                        is_repeated=context.run.parent_run_id is not None,
                        safety=configured.safety,
                        clock=utc_now,
                        only=config.only,
                    )
            job_config = SweepConfig(mark_id=config.mark_id, only=config.only)
            yield from _results(context, gc_sweep.name, job_config, settings)

    return sweep_on_emr


def _results(
    context: AssetExecutionContext,
    job: str,
    config: Config,
    settings: SettingsResource,
    *,
    made: AssetKey | None = None,
) -> Iterator[Any]:
    """Run a job, and yield what it reported, even if it failed. Then raise the error that it failed with.

    A run that was refused, here or in the job, keeps the statuses of its assets: see ``statuses_kept_if_refused``.
    """
    configured = settings.get()
    if configured.emr is None:
        raise ConfigurationError("the settings have no section emr", remedy="reload the code location")
    jobs = RemoteJobs(configured, configured.emr)
    failed: RemoteJobError | None = None
    try:
        invocation = jobs.run(context, job, repository_of(context.partition_key), config.model_dump(mode="json"))
        results = invocation.get_results(implicit_materializations=False)
    except (ConfigurationError, RunInProgressError) as error:  # no job was started
        keep_statuses(context, error, made=made)
        raise
    except RemoteJobError as error:
        failed, results = error, jobs.reader.handler.get_reported_results() if jobs.reader.handler else ()
    yield from results
    for message in jobs.reader.handler.get_custom_messages() if jobs.reader.handler else ():
        cause = _reported_error(message["failure"])
        if cause.is_refusal:
            keep_statuses(context, cause, made=made)
        raise failure_of(cause, dict(metadata_map_from_external(message["failure"]["metadata"]))) from cause
    if failed:
        raise failed
    reported = {result.asset_key for result in results if isinstance(result, MaterializeResult)}
    missing = sorted(key.path[-1] for key in context.selected_asset_keys - reported)
    if missing:
        raise RemoteJobError(
            f"the job ended without reporting {', '.join(missing)}",
            remedy="read its log in EMR. Check that the entry point calls lakefs_gc.cli.main(), and that the job has "
            f"permission to write to the bucket {configured.emr.messages_bucket}",
        )


def _reported_error(failure: Mapping[str, Any]) -> LakeFSGCError:
    """Return the error that the job failed with."""
    kind = getattr(errors, str(failure["error"]), None)
    if not isinstance(kind, type) or not issubclass(kind, LakeFSGCError):
        kind = RemoteJobError
    error = kind.__new__(kind)  # some constructors build the message themselves
    LakeFSGCError.__init__(error, failure["message"], remedy=failure["remedy"], **failure["facts"])
    error.is_refusal = failure.get("is_refusal") is True  # an archive of an earlier version does not report it
    return error
