"""Asset ``store_listing``: begin the run, and list the object store."""

from dagster import AssetExecutionContext, Config, asset
from pydantic import Field

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.collect.listing import store_listing as stage
from lakefs_gc.engine.collect.references.foreign_references import begin_foreign_references
from lakefs_gc.engine.collect.references.uncommitted import begin_uncommitted
from lakefs_gc.engine.run import begin_run
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.workspace.workspace import StageOutput
from lakefs_gc.pipeline.names import Names
from lakefs_gc.pipeline.partitions import add_own_partition, gc_runs
from lakefs_gc.pipeline.refusals import statuses_kept_if_refused
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.resources.run_lock import refuse_second_run
from lakefs_gc.pipeline.selection import is_selected
from lakefs_gc.pipeline.ui.failures import failures_shown


class ListingConfig(Config):
    """Settings of a single run."""

    min_age_hours: float | None = Field(
        default=None, description="Objects newer than this are not candidates. Default: the configured minimum age."
    )
    unsafe_min_age: bool = Field(
        default=False,
        description="Accept min_age_hours below the server's grace period. Use it only while no client uploads.",
    )

    only: Scope = Field(
        default=Scope.all,
        description="Which candidates the run marks: all, or only those that are expired or never committed.",
    )

    def applied_to(self, safety: SafetyParameters) -> SafetyParameters:
        """Return the safety parameters of this run."""
        if self.min_age_hours is None:
            return safety
        chosen = safety.model_dump(exclude_unset=True) | {"min_age_hours": self.min_age_hours}
        if self.unsafe_min_age:
            chosen["allow_min_age_below_grace"] = True
        return SafetyParameters.model_validate(chosen)


@asset(partitions_def=gc_runs, group_name="collect", kinds={"spark", "s3"}, io_manager_key="parquet")
@failures_shown()
def store_listing(
    context: AssetExecutionContext,
    config: ListingConfig,
    engine: EngineResource,
) -> StageOutput:
    """Every object under the repository's namespace that could be garbage: address, size, last modified.

    Materializing it begins a run: it checks the repository, the other repositories and the clocks, and sets the cutoff.
    Materialize everything downstream of it, too: a mark needs all stages of one run.
    """
    with statuses_kept_if_refused(context, made=context.asset_key):
        refuse_second_run(context)
        run_context = engine.context()
        run_context = run_context.with_safety(config.applied_to(run_context.safety))
        run = begin_run(run_context, context.partition_key, config.only)
    # Not earlier: a run that is refused must not leave a partition in which every asset of the mark has failed.
    add_own_partition(context, Names.of(context.asset_key))
    run_context.workspace.prune(run.repository, run_context.settings.keep_runs, current=run.run_key)

    def begin_next() -> None:  # while Spark starts
        of_next = engine.context()
        if is_selected(context, "foreign_references"):
            begin_foreign_references(of_next, run)
        if is_selected(context, "uncommitted"):
            begin_uncommitted(of_next, run)  # the server works while other repositories are read, too

    return stage.store_listing(run_context, run, on_listed=begin_next)
