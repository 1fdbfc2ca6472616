"""The assets of marks, backups and sweeps as jobs on EMR: the same keys, partitions, checks and run configuration."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagster import (
    AssetExecutionContext,
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
from lakefs_gc.errors import LakeFSGCError, RemoteJobError
from lakefs_gc.pipeline.assets.backup import BackupConfig
from lakefs_gc.pipeline.assets.store_listing import ListingConfig
from lakefs_gc.pipeline.assets.sweep import SweepConfig
from lakefs_gc.pipeline.emr.clients import RemoteJobs
from lakefs_gc.pipeline.failures import failure_of, failures_shown
from lakefs_gc.pipeline.jobs import gc_backup, gc_mark, gc_sweep
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.io_manager import SparkParquetIOManager
from lakefs_gc.pipeline.resources.lakefs import LakeFSResource
from lakefs_gc.pipeline.resources.run_lock import refuse_second_run
from lakefs_gc.pipeline.resources.settings import SettingsResource

_HERE = frozenset({"sweep_approval"})
"""A person's word: it needs no Spark."""


def as_jobs(assets: Sequence[AssetsDefinition]) -> list[AssetsDefinition]:
    """Definitions with the keys of ``assets``, of which those that need Spark run on EMR."""
    by_name = {asset.key.path[-1]: asset for asset in assets}
    marked = [asset for name, asset in by_name.items() if name not in _HERE | {"backup", "sweep"}]
    here = [asset for name, asset in by_name.items() if name in _HERE]
    return [_mark(marked), _backup(by_name["backup"]), _sweep(by_name["sweep"]), *here]


def _shared(assets: Sequence[AssetsDefinition]) -> dict[str, Any]:
    return {
        "specs": [spec for asset in assets for spec in asset.specs],
        "check_specs": [check for asset in assets for check in asset.check_specs],
        "partitions_def": gc_runs,
    }


def _mark(assets: Sequence[AssetsDefinition]) -> AssetsDefinition:
    # Each takes the run's configuration under the name that it has without EMR, too.
    @multi_asset(name="store_listing", **_shared(assets))
    def mark_on_emr(context: AssetExecutionContext, config: ListingConfig, settings: SettingsResource) -> Iterator[Any]:
        with failures_shown():
            yield from _results(context, gc_mark.name, config, settings)

    return mark_on_emr


def _backup(asset: AssetsDefinition) -> AssetsDefinition:
    @multi_asset(name="backup", **_shared([asset]))
    def backup_on_emr(
        context: AssetExecutionContext, config: BackupConfig, settings: SettingsResource
    ) -> Iterator[Any]:
        with failures_shown():
            yield from _results(context, gc_backup.name, config, settings)

    return backup_on_emr


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
                    safety=configured.safety,
                    clock=utc_now,
                )
            yield from _results(context, gc_sweep.name, SweepConfig(mark_id=config.mark_id), settings)

    return sweep_on_emr


def _results(context: AssetExecutionContext, job: str, config: Config, settings: SettingsResource) -> Iterator[Any]:
    """Run a job; what it reported, also when it failed afterwards.  Then raises why it failed."""
    refuse_second_run(context)
    configured = settings.get()
    if configured.emr is None:
        raise errors.ConfigurationError("the settings have no emr", remedy="load the code location again")
    jobs = RemoteJobs(configured, configured.emr)
    failed: RemoteJobError | None = None
    try:
        invocation = jobs.run(context, job, repository_of(context.partition_key), config.model_dump())
        results = invocation.get_results(implicit_materializations=False)
    except RemoteJobError as error:
        failed, results = error, jobs.reader.handler.get_reported_results() if jobs.reader.handler else ()
    yield from results
    for message in jobs.reader.handler.get_custom_messages() if jobs.reader.handler else ():
        cause = _reported_error(message["failure"])
        raise failure_of(cause, dict(metadata_map_from_external(message["failure"]["metadata"]))) from cause
    if failed:
        raise failed
    reported = {result.asset_key for result in results if isinstance(result, MaterializeResult)}
    missing = sorted(key.path[-1] for key in context.selected_asset_keys - reported)
    if missing:
        raise RemoteJobError(
            f"the job ended without a report of {', '.join(missing)}",
            remedy="look at its log in EMR: does the entry point call lakefs_gc.cli.main(), and may the job write to "
            f"the bucket {configured.emr.messages_bucket}?",
        )


def _reported_error(failure: Mapping[str, Any]) -> LakeFSGCError:
    """The error that the job failed with."""
    kind = getattr(errors, str(failure["error"]), None)
    if not isinstance(kind, type) or not issubclass(kind, LakeFSGCError):
        kind = RemoteJobError
    error = kind.__new__(kind)  # some make their message themselves
    LakeFSGCError.__init__(error, failure["message"], remedy=failure["remedy"], **failure["facts"])
    return error
