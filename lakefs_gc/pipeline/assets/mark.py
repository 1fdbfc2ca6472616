"""Asset ``mark``: the durable decision which objects to delete."""

from dagster import AssetExecutionContext, MaterializeResult, asset

from lakefs_gc.engine.collect.listing.listing_counts import FIRST_SLICE
from lakefs_gc.engine.decide.marking.check_numbers import check_numbers
from lakefs_gc.engine.decide.marking.checks import evaluate
from lakefs_gc.engine.decide.marking.evidence import gather_evidence
from lakefs_gc.engine.decide.marking.gather_facts import gather_facts
from lakefs_gc.engine.decide.marking.marked_paths import begin_marked_paths, marked_paths
from lakefs_gc.engine.decide.marking.write_mark import write_mark
from lakefs_gc.engine.records.mark_facts import write_facts
from lakefs_gc.engine.records.mark_parts import overview
from lakefs_gc.engine.records.stored_marks import Marked
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.spark.java_cache import keep_archive
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.pipeline.names import Names
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.ui.checks import check_results, check_specs
from lakefs_gc.pipeline.ui.failures import failures_shown
from lakefs_gc.pipeline.ui.summaries import mark_metadata
from lakefs_gc.report.current import write_report


@asset(
    partitions_def=gc_runs,
    group_name="decide",
    kinds={"lakefs", "parquet"},
    check_specs=check_specs("mark"),
    # Returns no table, but Dagster would load its own IO manager, which takes 0.3 s.
    io_manager_key="parquet",
)
@failures_shown()
def mark(
    context: AssetExecutionContext,
    store_listing: Dataset,
    uncommitted: Dataset,
    active_ranges: Dataset,
    committed: Dataset,
    foreign_references: Dataset,
    missing: Dataset,
    kept: Dataset,
    candidates: Dataset,
    engine: EngineResource,
) -> MaterializeResult:  # type: ignore[type-arg]  # with checks, Dagster takes no other annotation
    """Write the candidates to the namespace with a digest, for a person to review. Deletes nothing.

    The layout is that of lakeFS's own client, so either tool can sweep the mark. A failed check blocks the sweep until
    an approval overrides that check by name.
    """
    run_context, run = engine.context(), GCRun.of(store_listing.manifest)
    settings, mark_id = run_context.settings, uncommitted.manifest.facts["run_id"]
    begin_marked_paths(run_context, run, candidates, active_ranges)  # takes as long as the rest
    evidence = gather_evidence(
        run_context,
        run,
        listing=store_listing,
        uncommitted=uncommitted,
        active_ranges=active_ranges,
        committed=committed,
        foreign_references=foreign_references,
        kept=kept,
        missing=missing,
        candidates=candidates,
        mark_id=mark_id,
    )
    inputs = (store_listing, uncommitted, committed, foreign_references, kept, missing)
    written = write_mark(
        run,
        candidates=candidates,
        # For `committed` the number of entries: its number of rows depends on which run read which range.
        counts={d.manifest.stage: d.manifest.facts.get("entries", d.manifest.rows) for d in inputs},
        mark_id=mark_id,
        checks=evaluate(evidence, run_context.safety),
        rules=active_ranges.manifest.facts.get("rules"),
        # An earlier version did not record the names, nor the mounts.
        repositories={*run.repositories, *foreign_references.manifest.facts.get("repositories", ())},
        unreadable=foreign_references.manifest.facts["unreadable"],
        not_asked=foreign_references.manifest.facts["not_asked"],
        mounts=foreign_references.manifest.facts.get("mounts"),
        protections=evidence.protections,
        sweep_settings=settings.sweep,
        needs_backup=settings.backup.required_before_sweep,
        longest_commit_minutes=settings.safety.longest_commit_minutes,
        first_slice=str(store_listing.manifest.facts.get(FIRST_SLICE) or ""),
    )
    names = Names.of(context.asset_key)
    run_context.workspace.record_mark(run.run_key, written.mark_id, written.digest)
    store = run_context.open_store(run.store)
    contents = overview(store, written)
    found = marked_paths(run_context, run, candidates, active_ranges)
    facts = gather_facts(
        run_context, run, written, contents, listing=store_listing, kept=kept, candidates=candidates, found=found
    )
    write_facts(store, facts)
    marked = Marked(written, store)
    page = write_report(settings, marked, facts)
    keep_archive()
    return MaterializeResult(
        metadata=mark_metadata(marked, page, names),
        check_results=check_results(written.checks, check_numbers(evidence, run_context.safety)),
    )
