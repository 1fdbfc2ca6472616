"""Asset ``restore``: copy the objects of a backup back, and prove that they are the same."""

import logging

from dagster import AssetExecutionContext, Config, MaterializeResult, asset
from pydantic import Field

from lakefs_gc.engine.records.stored_marks import mark_id_of_run, open_mark
from lakefs_gc.engine.run import RunContext, repository_of
from lakefs_gc.engine.undo import restore as stage
from lakefs_gc.engine.undo.restore_source import find_restore_source
from lakefs_gc.errors import LakeFSGCError, RestoreIncompleteError
from lakefs_gc.pipeline.assets.backup import backup
from lakefs_gc.pipeline.assets.sweep import sweep
from lakefs_gc.pipeline.launches import refuse_backup_of_same_launch
from lakefs_gc.pipeline.names import Names
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.refusals import statuses_kept_if_refused
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.resources.run_lock import refuse_second_run
from lakefs_gc.pipeline.ui.failures import failure_of, failures_shown
from lakefs_gc.pipeline.ui.observations import show_current_state
from lakefs_gc.pipeline.ui.summaries import restore_metadata
from lakefs_gc.storage.endpoints import begin_clients

logger = logging.getLogger(__name__)


class RestoreConfig(Config):
    """What is restored."""

    mark_id: str = Field(default="", description="Id of the mark whose backup is restored. Default: this partition's.")
    prefix: str = Field(
        default="",
        description="Restore only objects whose logical path in a commit, or address, has this prefix, for example "
        "reports/2024/. Default: all objects of the backup.",
    )
    from_server: str = Field(
        default="",
        description="URL of the lakeFS server that the backup was made with, if this is another one, or has another "
        "URL now.",
    )


@asset(partitions_def=gc_runs, group_name="undo", kinds={"spark", "s3"}, deps=[backup, sweep], io_manager_key="parquet")
@failures_shown()
def restore(
    context: AssetExecutionContext,
    config: RestoreConfig,
    engine: EngineResource,
) -> MaterializeResult[None]:
    """Copy what the sweep deleted from its backup to where it was, compare each object, and read it through lakeFS.

    It overwrites nothing. It fails if an object could not be restored, and continues when you materialize it again. The
    approval of the mark becomes void. The same as `lakefs-gc restore`.
    """
    with statuses_kept_if_refused(context):
        refuse_second_run(context)
        refuse_backup_of_same_launch(context, Names.of(context.asset_key).key("backup"))
        begin_clients(context.partition_key)
        run_context = engine.context()
        run_context.compute.scale(False)  # as in sweep: the records are named before the copies, and read after them
        mark_id = config.mark_id or mark_id_of_run(context.partition_key, run_context.workspace)
        source = find_restore_source(
            run_context.settings,
            run_context.server,
            mark_id,
            repository_of(context.partition_key),
            config.prefix,
            config.from_server,
        )
    result = stage.restore(run_context, source, prefix=config.prefix)
    _show_current_state(context, run_context, mark_id)
    metadata = restore_metadata(result, source.backup, config.prefix)
    try:
        result.raise_if_incomplete()
    except RestoreIncompleteError as error:
        raise failure_of(error, metadata) from error
    return MaterializeResult(metadata=metadata)


def _show_current_state(context: AssetExecutionContext, run_context: RunContext, mark_id: str) -> None:
    try:
        repository = repository_of(context.partition_key)
        marked = open_mark(repository, mark_id, run_context.server, run_context.settings)
    except LakeFSGCError as error:  # a backup can be restored without its mark
        logger.warning("the page of mark %s stays as it is: %s", mark_id, error.message)
        return
    show_current_state(context, run_context.settings, marked)
