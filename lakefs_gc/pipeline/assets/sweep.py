"""Asset ``sweep``: delete the objects of an approved mark."""

from dagster import AssetExecutionContext, Config, asset
from pydantic import Field

from lakefs_gc.engine.records.approval import VIA_DAGSTER
from lakefs_gc.engine.records.backups.claim import claim_backup
from lakefs_gc.engine.records.backups.location import backup_location_of
from lakefs_gc.engine.records.stored_marks import mark_of_run
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.sweep import sweep as stage
from lakefs_gc.engine.sweep.commit_wait import wait_for_commits
from lakefs_gc.engine.sweep.outcomes import failures
from lakefs_gc.engine.sweep.preconditions import approve_if_needed, check_preconditions
from lakefs_gc.engine.undo.backup_contents import not_backed_up, refuse_lost_backup
from lakefs_gc.engine.workspace.workspace import StageOutput
from lakefs_gc.errors import SweepIncompleteError
from lakefs_gc.pipeline.assets.mark import mark
from lakefs_gc.pipeline.assets.sweep_approval import sweep_approval
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.refusals import statuses_kept_if_refused
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.resources.run_lock import refuse_second_run
from lakefs_gc.pipeline.ui.failures import failure_of, failures_shown
from lakefs_gc.pipeline.ui.metadata import table
from lakefs_gc.pipeline.ui.observations import show_current_state
from lakefs_gc.pipeline.ui.summaries import report_metadata, sweep_metadata
from lakefs_gc.storage.endpoints import begin_clients


class SweepConfig(Config):
    """Which mark is swept, and who approves it if it is not approved yet."""

    mark_id: str = Field(default="", description="Id of the mark. Default: the mark of this partition.")
    approve_digest: str = Field(
        default="",
        description="Approve the mark with this digest before the sweep. Set by the sensor's policies and by the "
        "command line. In the UI, materialize sweep_approval instead.",
    )
    approved_by: str = Field(default="", description="Who approves. Required with approve_digest.")
    approved_via: str = Field(default=VIA_DAGSTER, description="How the mark is approved. The approval records it.")
    only: Scope = Field(
        default=Scope.all,
        description="What is swept: the whole mark, or only its expired or its never committed objects. The sweep of a "
        "part needs an approval of this part, or of the whole mark.",
    )


@asset(
    partitions_def=gc_runs,
    group_name="delete",
    kinds={"spark", "s3"},
    io_manager_key="parquet",
    deps=[mark, sweep_approval],
)
@failures_shown()
def sweep(
    context: AssetExecutionContext,
    config: SweepConfig,
    engine: EngineResource,
) -> StageOutput:
    """Read the references again, then delete every marked object that is still unreferenced. One row per object.

    Sweeping a mark again continues with the objects that remain. The sweep fails if one delete failed.
    """
    with statuses_kept_if_refused(context):
        refuse_second_run(context)
        run_context, run_key = engine.context(), context.partition_key
        begin_clients(run_key)
        marked = mark_of_run(run_key, config.mark_id, run_context.server, run_context.settings, run_context.workspace)
        approve_if_needed(
            marked,
            config.approve_digest,
            by=config.approved_by,
            via=config.approved_via,
            is_repeated=context.run.parent_run_id is not None,
            safety=run_context.safety,
            clock=run_context.clock,
            only=config.only,
        )
        permit = check_preconditions(run_context, run_key, marked, config.only)

        def check_backup() -> None:
            if permit.backup:
                place = backup_location_of(run_context.settings.backup)
                refuse_lost_backup(run_context.open_store(place), permit.backup)

        # Also if no backup is required: whoever made one anyway can restore from it what this sweep deletes.
        claim_backup(marked.store, marked.mark.mark_id, config.only)
        check_backup()
        approval = permit.approval
        context.log.info(
            f"mark {marked.mark.mark_id}{config.only.words} approved by {approval.approved_by} via "
            f"{approval.approved_via}"
        )
        wait_for_commits(marked.store, marked.mark, run_context.safety)
        run, second_look = permit.second_look(run_context, run_key)
    output, result = stage.sweep(
        run_context,
        run,
        marked.mark,
        second_look,
        known_restores=permit.known_restores,
        not_backed_up=not_backed_up(run_context, permit.backup),
        named_at_root=permit.named_at_root,
        only=permit.only,
        is_small=second_look.is_small,
        begin_look=second_look.begin,
        check_backup=check_backup,
    )
    show_current_state(context, run_context.settings, marked)
    metadata = sweep_metadata(result) | report_metadata(marked)
    try:
        result.raise_if_incomplete()
    except SweepIncompleteError as error:
        error.facts["errors"] = failures(output.dataframe)
        raise failure_of(error, {"errors": table(error.facts["errors"])} | metadata) from error
    context.add_output_metadata(metadata)
    return output
