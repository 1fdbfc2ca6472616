"""Asset ``foreign_references``: the addresses of this namespace that other repositories refer to."""

from dagster import AssetExecutionContext, asset

from lakefs_gc.engine.collect.references import foreign_references as stage
from lakefs_gc.engine.collect.references.uncommitted import begin_uncommitted
from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.selection import is_selected
from lakefs_gc.pipeline.ui.failures import failures_shown
from lakefs_gc.pipeline.ui.metadata import table


@asset(partitions_def=gc_runs, group_name="collect", kinds={"spark", "lakefs"}, io_manager_key="parquet")
@failures_shown()
def foreign_references(
    context: AssetExecutionContext,
    store_listing: Dataset,
    engine: EngineResource,
) -> StageOutput:
    """Every address of this namespace that another repository refers to by its full address (zero-copy imports)."""
    run_context = engine.context()
    run = continue_run(run_context, store_listing.manifest)
    if is_selected(context, "uncommitted"):
        begin_uncommitted(run_context, run)  # the server works while this stage reads
    output = stage.foreign_references(run_context, run)
    unreadable = output.facts["unreadable"]
    if unreadable:
        context.log.warning(
            f"These repositories cannot be read and may refer to objects here: {', '.join(sorted(unreadable))}"
        )
    context.add_output_metadata(
        {"not_proved": table([{"repository": name, "reason": why} for name, why in sorted(unreadable.items())])}
    )
    return output
