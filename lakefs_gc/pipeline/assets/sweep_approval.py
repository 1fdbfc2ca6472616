"""Asset ``sweep_approval``: a person says that a mark may be swept."""

from dagster import (
    AssetExecutionContext,
    AssetRecordsFilter,
    Config,
    DagsterInstance,
    DagsterRun,
    MaterializeResult,
    MetadataValue,
    asset,
)
from pydantic import Field

from lakefs_gc.engine.records.approval import VIA_DAGSTER, Approval, approve
from lakefs_gc.engine.records.stored_marks import age_of, mark_of_run, refuse_unfit
from lakefs_gc.engine.run import ServerIdentity
from lakefs_gc.errors import ApprovalError
from lakefs_gc.pipeline.assets.mark import mark
from lakefs_gc.pipeline.failures import failures_shown
from lakefs_gc.pipeline.metadata import Metadata
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.units import human_bytes

_BACKFILL_TAGS = ("dagster/backfill", "dagster/root_backfill_id")


class ApprovalConfig(Config):
    """What is approved."""

    mark_id: str = Field(default="", description="The mark; default: the one of this partition.")
    digest: str = Field(
        default="",
        description="Required: the digest that you looked at, from the metadata of the mark.",
    )
    approved_by: str = Field(
        default="", description="Required: your name.  Default: the user that Dagster's tag `user` names."
    )
    overrides: list[str] = Field(
        default_factory=list, description="Failed checks of this mark, by name, that do not block its sweep."
    )
    why: str = Field(default="", description="The reason for the overrides: it is recorded with the approval.")
    approved_via: str = Field(default=VIA_DAGSTER, description="How it is approved: recorded with the approval.")


@asset(partitions_def=gc_runs, group_name="delete", kinds={"lakefs"}, deps=[mark])
@failures_shown()
def sweep_approval(
    context: AssetExecutionContext,
    config: ApprovalConfig,
    engine: EngineResource,
) -> MaterializeResult[None]:
    """Approve the sweep of this partition's mark: write the digest that you looked at, and who you are.

    The approval is void as soon as the mark has another digest, and refused while a check of the mark has not passed
    that you do not override.  Materialize it by itself, after a look at the mark.
    """
    _refuse_unseen_mark(context)
    run_context = engine.context()
    configured, server = run_context.settings, run_context.server
    found = mark_of_run(context.partition_key, config.mark_id, server, configured, run_context.workspace)
    # What no sweep would take is not approved either.
    refuse_unfit(found.mark, ServerIdentity.of(server, server.repository(found.mark.repository)))
    approval = approve(
        found.store,
        found.mark,
        config.digest,
        by=config.approved_by or context.run.tags.get("user", ""),
        via=config.approved_via,
        now=run_context.clock(),
        age=age_of(found.store, found.mark, configured.safety).most,
        safety=configured.safety,
        overrides=dict.fromkeys(config.overrides, config.why),
    )
    size = human_bytes(found.mark.candidate_bytes or 0)
    return MaterializeResult(metadata=approval_metadata(approval) | {"objects": found.mark.candidates, "size": size})


def approval_metadata(approval: Approval) -> Metadata:
    """What a materialization of ``sweep_approval`` says of an approval: the sensors go by it."""
    return {
        "mark_id": approval.mark_id,
        "digest": approval.digest,
        "approved_by": approval.approved_by,
        "approved_via": approval.approved_via,
        "approved_at": MetadataValue.timestamp(approval.approved_at),
        "overrides": ", ".join(approval.overrides) or "none",
        "why": "; ".join(sorted(set(approval.overrides.values()))),
    }


def _refuse_unseen_mark(context: AssetExecutionContext) -> None:
    """Raise ``ApprovalError`` when one launch made the mark and asks for its approval: that is nobody's look at it.

    "Materialize all" is such a launch, and so is its re-execution, which Dagster's daemon may begin unasked.
    """
    records = context.instance.fetch_materializations(
        AssetRecordsFilter(asset_key=mark.key, asset_partitions=[context.partition_key]), limit=1
    ).records
    if records and not _launches(context.instance, records[0].run_id).isdisjoint(_launches_of(context.run)):
        raise ApprovalError(
            f"the mark of {context.partition_key} was made in this run, or in one that this run executes again, and "
            "nobody has looked at it",
            remedy="look at the metadata of mark, then materialize sweep_approval alone for this partition; to execute "
            "this run again approves nothing",
        )


def _launches(instance: DagsterInstance, run_id: str) -> set[str]:
    run = instance.get_run_by_id(run_id)
    # Of a run whose record is gone, the id may still be that of the other's parent or root.
    return _launches_of(run) if run else {run_id}


def _launches_of(run: DagsterRun) -> set[str]:
    """Ids that a run has in common with its re-executions, be it one by one or as a backfill."""
    ids = (run.run_id, run.parent_run_id, run.root_run_id, *(run.tags.get(tag) for tag in _BACKFILL_TAGS))
    return {found for found in ids if found}
