"""Asset ``sweep``: delete what an approved mark says."""

from dagster import AssetExecutionContext, Config, MetadataValue, asset
from pydantic import Field

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.collect.references.foreign_references import probe
from lakefs_gc.engine.records.approval import (
    POLICY,
    VIA_DAGSTER,
    approve,
    is_approved,
    read_approval,
    refuse_without_person,
)
from lakefs_gc.engine.records.backup_location import require_backup
from lakefs_gc.engine.records.check import refuse_failed_checks
from lakefs_gc.engine.records.restore_log import notes, refuse_restored
from lakefs_gc.engine.records.stored_marks import Marked, age_of, mark_of_run, refuse_unfit
from lakefs_gc.engine.run import begin_run
from lakefs_gc.engine.sweep import sweep as stage
from lakefs_gc.engine.sweep.client_marks import ClientMarkChecks
from lakefs_gc.engine.sweep.outcomes import SweepResult, failures
from lakefs_gc.engine.sweep.second_look import Accepted, SecondLook, any_size_at_mark, seen_at_mark
from lakefs_gc.engine.undo.backup_contents import not_backed_up
from lakefs_gc.engine.workspace.workspace import Clock, StageOutput
from lakefs_gc.errors import SweepIncompleteError
from lakefs_gc.pipeline.assets.mark import mark
from lakefs_gc.pipeline.assets.sweep_approval import sweep_approval
from lakefs_gc.pipeline.failures import failure_of, failures_shown
from lakefs_gc.pipeline.metadata import Metadata, bar_chart, table
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.resources.run_lock import refuse_second_run
from lakefs_gc.units import human_bytes


class SweepConfig(Config):
    """What is swept, and on whose word."""

    mark_id: str = Field(default="", description="The mark; default: the one of this partition.")
    approve_digest: str = Field(
        default="",
        description="Approve this digest on the way.  Set by the sensor's policies and by the command line; in the UI "
        "materialize sweep_approval instead.",
    )
    approved_by: str = Field(default="", description="Who approves on the way; needed with a digest.")
    approved_via: str = Field(default=VIA_DAGSTER, description="How it is approved: recorded with the approval.")


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
    """Look again at what is referenced, then delete every marked object that still is not; say for each what happened.

    Sweeping a mark again goes on with what is left.  The sweep fails while one delete has failed.
    """
    refuse_second_run(context)
    run_context = engine.context()
    configured, server = run_context.settings, run_context.server
    found = mark_of_run(context.partition_key, config.mark_id, server, configured, run_context.workspace)
    approve_on_the_way(found, config, configured.safety, run_context.clock)
    known_restores = frozenset(notes(found.store, found.mark.mark_id))
    approval = read_approval(found.store, found.mark)
    backup = require_backup(configured, found.mark)
    # What makes the sweep impossible is found before it waits.
    before = begin_run(run_context, context.partition_key)
    refuse_unfit(found.mark, before.server)
    accepted = Accepted.of(found.mark, approval.overrides)
    checks = found.mark.checks
    named_at_root = ""
    any_size = any_size_at_mark(run_context, found.mark)
    if not found.mark.is_ours:
        checks, accepted, named_at_root, any_size = ClientMarkChecks(run_context).evaluate(before, found.mark, accepted)
    refuse_failed_checks(
        checks,
        approval.overrides,
        repository=found.mark.repository,
        mark_id=found.mark.mark_id,
        age=age_of(found.store, found.mark, configured.safety).most,
        safety=configured.safety,
    )
    probe(run_context, found.mark.repository, accepted.others)
    context.log.info(f"mark {found.mark.mark_id} approved by {approval.approved_by} via {approval.approved_via}")
    stage.wait_for_commits(found.store, found.mark, configured.safety)
    run = begin_run(run_context, context.partition_key)
    refuse_unfit(found.mark, run.server)
    look = SecondLook(run_context, run, seen_at_mark(run_context, found.mark), accepted, any_size)
    output, result = stage.sweep(
        run_context,
        run,
        found.mark,
        look,
        known_restores=known_restores,
        not_backed_up=not_backed_up(run_context, backup),
        named_at_root=named_at_root,
    )
    metadata = sweep_metadata(result)
    try:
        result.raise_if_incomplete()
    except SweepIncompleteError as error:
        error.facts["errors"] = failures(output.dataframe)
        raise failure_of(error, {"errors": table(error.facts["errors"])} | metadata) from error
    context.add_output_metadata(metadata)
    return output


def approve_on_the_way(found: Marked, config: SweepConfig, safety: SafetyParameters, clock: Clock) -> None:
    """Approve a mark that is not approved yet, if ``config`` has its digest.

    Raises ``ApprovalError`` for another digest, and when a policy is about to approve what somebody has restored, or
    a mark that was not made for a policy; and what ``approve`` raises.
    """
    if config.approve_digest and not is_approved(found.store, found.mark):
        age = age_of(found.store, found.mark, safety)
        if config.approved_via.startswith(POLICY):
            refuse_restored(found.store, found.mark.mark_id, frozenset())
            refuse_without_person(found.mark, age.least, safety)
        approve(
            found.store,
            found.mark,
            config.approve_digest,
            by=config.approved_by,
            via=config.approved_via,
            now=clock(),
            age=age.most,
            safety=safety,
        )


def sweep_metadata(result: SweepResult) -> Metadata:
    """What the UI shows of a sweep."""
    outcomes = result.outcomes.items()
    return {
        "outcomes": table(
            [
                {"outcome": name, "objects": outcome.objects, "size": human_bytes(outcome.size_bytes)}
                for name, outcome in outcomes
            ]
        ),
        "outcomes_chart": MetadataValue.md(bar_chart({name: outcome.objects for name, outcome in outcomes}, str)),
        **{f"{name}_objects": outcome.objects for name, outcome in outcomes},
        **{f"{name}_bytes": outcome.size_bytes for name, outcome in outcomes},
    }
