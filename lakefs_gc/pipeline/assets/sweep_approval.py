"""Asset ``sweep_approval``: a person approves the sweep of a mark."""

from dagster import AssetExecutionContext, Config, MaterializeResult, MetadataValue, asset
from pydantic import Field

from lakefs_gc.engine.records.approval import VIA_DAGSTER, approve
from lakefs_gc.engine.records.stored_marks import age_of, mark_of_run, ready_at, refuse_unfit
from lakefs_gc.engine.run import ServerIdentity
from lakefs_gc.engine.scope import Scope
from lakefs_gc.pipeline.assets.mark import mark
from lakefs_gc.pipeline.launches import refuse_mark_of_same_launch
from lakefs_gc.pipeline.names import Names
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.refusals import statuses_kept_if_refused
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.ui.failures import failures_shown
from lakefs_gc.pipeline.ui.observations import show_current_state
from lakefs_gc.pipeline.ui.summaries import approval_metadata
from lakefs_gc.units import human_bytes


class ApprovalConfig(Config):
    """Which mark, or which part of it, is approved, and by whom."""

    mark_id: str = Field(default="", description="Id of the mark. Default: the mark of this partition.")
    digest: str = Field(
        default="",
        description="Required: the digest of the mark that you reviewed, from its metadata.",
    )
    approved_by: str = Field(
        default="", description="Required: your name. Default: the user in the tag `user` of the Dagster run."
    )
    overrides: list[str] = Field(
        default_factory=list, description="Names of failed checks that do not block the sweep of this mark."
    )
    why: str = Field(default="", description="The reason for the overrides. The approval records it.")
    approved_via: str = Field(default=VIA_DAGSTER, description="How the mark is approved. The approval records it.")
    only: Scope = Field(
        default=Scope.all,
        description="What is approved: the whole mark, or only its expired or its never committed objects. The rest "
        "can be approved later.",
    )


@asset(partitions_def=gc_runs, group_name="delete", kinds={"lakefs"}, deps=[mark], io_manager_key="parquet")
@failures_shown()
def sweep_approval(
    context: AssetExecutionContext,
    config: ApprovalConfig,
    engine: EngineResource,
) -> MaterializeResult[None]:
    """Approve the sweep of this partition's mark. Pass the digest that you reviewed, and your name.

    The approval is void if the mark's digest changes. It is refused while a check of the mark fails, unless you
    override that check by name. Review the mark first, then materialize only this asset.
    """
    with statuses_kept_if_refused(context):
        refuse_mark_of_same_launch(context, Names.of(context.asset_key).key("mark"))
        run_context = engine.context()
        settings, server = run_context.settings, run_context.server
        marked = mark_of_run(context.partition_key, config.mark_id, server, settings, run_context.workspace)
        # A mark that cannot be swept cannot be approved.
        refuse_unfit(marked.mark, ServerIdentity.of(server, server.repository(marked.mark.repository)))
        approval = approve(
            marked.store,
            marked.mark,
            config.digest,
            by=config.approved_by or context.run.tags.get("user", ""),
            via=config.approved_via,
            now=run_context.clock(),
            age=age_of(marked.store, marked.mark, settings.safety).most,
            safety=settings.safety,
            overrides=dict.fromkeys(config.overrides, config.why),
            only=config.only,
        )
    show_current_state(context, settings, marked)
    size = human_bytes(marked.mark.bytes_of(config.only) or 0)
    objects = marked.mark.objects_of(config.only)
    ready = {"ready_at": MetadataValue.timestamp(ready_at(marked.mark, settings.safety))}
    return MaterializeResult(metadata=approval_metadata(approval) | ready | {"objects": objects, "size": size})
