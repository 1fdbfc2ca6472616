"""Asset ``backup``: copy the objects of a mark to the backup location, and verify each copy."""

from dagster import AssetExecutionContext, Config, asset
from pydantic import Field

from lakefs_gc.engine.records.backups.location import open_backup_location
from lakefs_gc.engine.records.stored_marks import mark_of_run
from lakefs_gc.engine.run import checked_store_time
from lakefs_gc.engine.undo import backup as stage
from lakefs_gc.engine.undo.pruning import prune_backups
from lakefs_gc.engine.workspace.workspace import StageOutput
from lakefs_gc.errors import BackupIncompleteError
from lakefs_gc.pipeline.assets.mark import mark
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.refusals import statuses_kept_if_refused
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.resources.run_lock import refuse_second_run
from lakefs_gc.pipeline.ui.failures import failure_of, failures_shown
from lakefs_gc.pipeline.ui.metadata import table
from lakefs_gc.pipeline.ui.observations import show_current_state
from lakefs_gc.pipeline.ui.summaries import backup_metadata, pruned_metadata
from lakefs_gc.storage.endpoints import begin_clients


class BackupConfig(Config):
    """Which mark is backed up."""

    mark_id: str = Field(default="", description="Id of the mark. Default: the mark of this partition.")


@asset(
    partitions_def=gc_runs,
    group_name="undo",
    kinds={"spark", "s3"},
    io_manager_key="parquet",
    deps=[mark],
)
@failures_shown()
def backup(
    context: AssetExecutionContext,
    config: BackupConfig,
    engine: EngineResource,
) -> StageOutput:
    """Copy every marked object to the backup location, and verify that each copy is identical. One row per object.

    Materializing it again continues where it stopped. It fails if an object exists and could not be copied. Afterwards
    it removes the repository's expired backups. `lakefs-gc restore` restores a backup.
    """
    with statuses_kept_if_refused(context):
        refuse_second_run(context)
        begin_clients(context.partition_key)
        run_context = engine.context()
        run_context.compute.scale(False)  # as in sweep: the records are named before the copies, and read after them
        settings, server = run_context.settings, run_context.server
        location = open_backup_location(settings, server)
        # The age of a backup is measured on this clock. With a wrong clock, pruning would remove all backups.
        now = checked_store_time(run_context.open_store(location), settings.safety, run_context.clock)
        marked = mark_of_run(context.partition_key, config.mark_id, server, settings, run_context.workspace)
    output, result = stage.backup(
        run_context, marked.store.location, marked.mark, location, run_key=context.partition_key
    )
    metadata = backup_metadata(result)
    try:
        result.raise_if_incomplete()
    except BackupIncompleteError as error:
        error.facts["errors"] = stage.failures(output.dataframe)
        raise failure_of(error, {"errors": table(error.facts["errors"])} | metadata) from error
    show_current_state(context, settings, marked)
    pruned = prune_backups(
        run_context.open_store(location),
        marked.mark.repository,
        settings.backup.keep_days,
        now,
        lambda namespace: run_context.open_store(settings.reach(namespace)),
        server.endpoint_url,
    )
    context.add_output_metadata(metadata | pruned_metadata(pruned))
    return output
