"""Asset ``mark``: the durable decision."""

from collections.abc import Mapping

from dagster import MaterializeResult, MetadataValue, asset

from lakefs_gc.engine.dataset import Dataset, utc_now
from lakefs_gc.engine.mark import write_mark
from lakefs_gc.engine.marks import Mark
from lakefs_gc.engine.overview import Overview, overview
from lakefs_gc.engine.run import GCRun
from lakefs_gc.failures import failures_shown
from lakefs_gc.metadata import Metadata, human_bytes, table
from lakefs_gc.partitions import gc_runs
from lakefs_gc.storage.open import open_store


@asset(partitions_def=gc_runs, group_name="decide", kinds={"lakefs", "parquet"})
@failures_shown()
def mark(
    store_listing: Dataset,
    uncommitted: Dataset,
    committed: Dataset,
    foreign_references: Dataset,
    candidates: Dataset,
) -> MaterializeResult[None]:
    """The candidates, written to the namespace with a digest, for a person to look at.  Nothing is deleted.

    The layout is that of lakeFS's own client, so that either tool can sweep it.
    """
    run = GCRun.of(store_listing.manifest)
    inputs = (store_listing, uncommitted, committed, foreign_references)
    made = write_mark(
        run,
        candidates=candidates,
        counts={dataset.manifest.stage: dataset.manifest.rows for dataset in inputs},
        mark_id=uncommitted.manifest.facts["run_id"],
        clock=utc_now,
    )
    return MaterializeResult(metadata=mark_metadata(made, overview(open_store(run.store), made)))


def mark_metadata(mark: Mark, seen: Overview) -> Metadata:
    """What the UI shows of a mark."""
    return {
        "dagster/row_count": mark.candidates,
        "what_now": MetadataValue.md(
            "Look at the numbers, then materialize **sweep_approval** for this partition (or run "
            f"`lakefs-gc approve {mark.repository} --mark {mark.mark_id}`).  The sensor starts the sweep."
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
        "location": MetadataValue.text(mark.location),
    }


def _sampled(row: Mapping[str, str | int]) -> dict[str, str | int]:
    """An object of the sample: a second is fine enough to look at, and fits into a cell."""
    modified = {"last_modified": str(row["last_modified"])[:19]} if "last_modified" in row else {}
    return {**row, **modified}
