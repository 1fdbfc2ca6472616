"""Asset ``mark``: the durable decision."""

from collections.abc import Mapping

from dagster import MaterializeResult, MetadataValue, asset

from lakefs_gc.engine.decide.checks import evaluate
from lakefs_gc.engine.decide.evidence import gather_evidence
from lakefs_gc.engine.decide.write_mark import write_mark
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_parts import Overview, overview
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.pipeline.checks import check_results, check_specs
from lakefs_gc.pipeline.failures import failures_shown
from lakefs_gc.pipeline.metadata import Metadata, table
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.units import human_bytes


@asset(
    partitions_def=gc_runs,
    group_name="decide",
    kinds={"lakefs", "parquet"},
    check_specs=check_specs("mark"),
)
@failures_shown()
def mark(
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
    """The candidates, written to the namespace with a digest, for a person to look at.  Nothing is deleted.

    The layout is that of lakeFS's own client, so that either tool can sweep it.  A check that
    failed keeps the mark from being swept until an approval overrides it.
    """
    context, run = engine.context(), GCRun.of(store_listing.manifest)
    settings, mark_id = context.settings, uncommitted.manifest.facts["run_id"]
    evidence = gather_evidence(
        context,
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
    made = write_mark(
        run,
        candidates=candidates,
        # Of what is committed the entries: how many rows they leave depends on who read which range.
        counts={d.manifest.stage: d.manifest.facts.get("entries", d.manifest.rows) for d in inputs},
        mark_id=mark_id,
        checks=evaluate(evidence, context.safety),
        rules=active_ranges.manifest.facts.get("rules"),
        unreadable=foreign_references.manifest.facts["unreadable"],
        not_asked=foreign_references.manifest.facts["not_asked"],
        protections=evidence.protections,
        sweep_settings=settings.sweep,
        needs_backup=settings.backup.required_before_sweep,
        longest_commit_minutes=settings.safety.longest_commit_minutes,
    )
    context.workspace.record_mark(run.run_key, made.mark_id, made.digest)
    return MaterializeResult(
        metadata=mark_metadata(made, overview(context.open_store(run.store), made)),
        check_results=check_results("mark", made.checks),
    )


def mark_metadata(mark: Mark, seen: Overview) -> Metadata:
    """What the UI shows of a mark."""
    return {
        "dagster/row_count": mark.candidates,
        "what_now": MetadataValue.md(
            "Look at the numbers, then materialize **sweep_approval** for this partition, with this configuration "
            f"(or run `lakefs-gc approve {mark.repository} --mark {mark.mark_id}`).  The sensor starts the sweep.\n\n"
            f"```yaml\nops:\n  sweep_approval:\n    config:\n      digest: {mark.digest}\n"
            "      approved_by: YOUR NAME\n```"
        ),
        "size": human_bytes(mark.candidate_bytes or 0),
        "bytes": mark.candidate_bytes or 0,
        "deleted_bytes": str(mark.run.get("deleted_bytes", "unknown")),
        "why": table(
            [
                {"reason": reason, "objects": total["objects"], "size": human_bytes(total["size_bytes"])}
                for reason, total in mark.reasons.items()
            ]
        ),
        **not_lakefs_metadata(mark),
        "largest_prefixes": table(
            [
                {"prefix": p.prefix, "objects": p.objects, "size": human_bytes(p.size_bytes)}
                for p in seen.largest_prefixes
            ]
        ),
        "sample": table([_sampled(row) for row in seen.sample]),
        **{f"{stage}_rows": rows for stage, rows in mark.counts.items()},
        "cutoff": MetadataValue.timestamp(mark.cutoff),
        "mark_id": mark.mark_id,
        "digest": mark.digest,
        "sweep_policy": mark.sweep_policy,
        "sweep_delay_hours": mark.sweep_delay_hours,
        "location": MetadataValue.text(mark.location),
    }


def not_lakefs_metadata(mark: Mark) -> Metadata:
    """What lies at the root under names that lakeFS does not give, and why it was taken if it was."""
    metadata: Metadata = {}
    if mark.not_lakefs is not None:
        objects, size_bytes = mark.not_lakefs
        metadata |= {"not_lakefs": objects, "not_lakefs_bytes": size_bytes, "not_lakefs_size": human_bytes(size_bytes)}
    if mark.named_at_root:
        metadata["named_at_root"] = MetadataValue.text(mark.named_at_root)
    return metadata


def _sampled(row: Mapping[str, str | int]) -> dict[str, str | int]:
    """An object of the sample: a second is fine enough to look at, and fits into a cell."""
    modified = {"last_modified": str(row["last_modified"])[:19]} if "last_modified" in row else {}
    return {**row, **modified}
