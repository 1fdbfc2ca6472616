"""Stage 1: the objects in the store.

The executors list the store, or read the inventory report that the store itself writes. In both cases only objects that
may be candidates are kept (rule 4), and workers write the rows themselves, so no row passes through the JVM.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pyspark.sql import functions as F

from lakefs_gc.engine.collect.listing.earlier_listing import (
    CLEAN,
    ENDPOINTS,
    OPTIMIZED,
    TAKEN_OVER_BEFORE,
    EarlierListing,
    find_earlier_listing,
)
from lakefs_gc.engine.collect.listing.foreign_names import UNRECOGNIZED, UNRECOGNIZED_BYTES
from lakefs_gc.engine.collect.listing.inventory_listing import find_inventory, read_inventory
from lakefs_gc.engine.collect.listing.listing_counts import count_files, listing_measures
from lakefs_gc.engine.collect.listing.listing_rounds import Report, list_in_rounds
from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.parts import PART
from lakefs_gc.engine.spark.scale import IS_SMALL, SMALL_RUN_OBJECTS
from lakefs_gc.engine.spark.session import is_local
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.engine.workspace.workspace import StageOutput
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage.endpoints import endpoints_of_run
from lakefs_gc.storage.listing.range_listing import ListingLimits
from lakefs_gc.storage.location import StoreLocation

_STAGE = "store_listing"
_OF_OTHER_MARK = "it decides about a mark that was not made from it"
_READERS = 4  # of files of about a million rows


def store_listing(
    context: RunContext, run: GCRun, *, of_other_mark: bool = False, on_listed: Callable[[], None] = lambda: None
) -> StageOutput:
    """List the store. Columns: ``schemas.STORE_LISTING``.

    Unlike other stages, this one does its work at once, because each round of a listing depends on the round before.
    ``began_at`` of a listing from an inventory is the time at which the store began to write the report.

    An object that the listing lacks is not marked. With ``of_other_mark`` the mark exists already, and the listing only
    shows how old its objects are. Then nothing is taken over from an earlier listing, nor read by ``quick_pages`` or
    from an inventory, which lacks what is younger than it. ``on_listed`` is called when the whole store is listed, and
    maybe before Spark has started.
    """
    workspace, listing = context.workspace, context.settings.listing
    parts = workspace.parts_folder(run.run_key, _STAGE)
    source = "store" if of_other_mark else listing.source
    facts: dict[str, Any] = {"run": run.to_facts(), ENDPOINTS: endpoints_of_run(), "source": source}
    if facts["source"] == "inventory":
        context.compute.scale(False)
        location = StoreLocation(listing.inventory_url)
        inventory = find_inventory(location, run.namespace, run.started_at, listing.max_inventory_age_hours)
        began_at = inventory.began_at
        facts |= {"inventory": inventory.manifest, "inventory_began_at": began_at.isoformat()}
        written, ended_at = read_inventory(context.spark, location, inventory, run.namespace, parts), None
    else:
        context.compute.scale(True)  # until the listing shows more objects
        earlier = _OF_OTHER_MARK if of_other_mark else find_earlier_listing(context, run)
        limits = ListingLimits(
            listing.requests_at_once, listing.cut_after_pages, listing.pages_per_range, quick=not of_other_mark
        )
        began_at = context.clock()
        if isinstance(earlier, EarlierListing):
            return _optimized(context, run, earlier, limits, began_at)
        if listing.mode == OPTIMIZED and not of_other_mark:
            raise ConfigurationError(
                f"The listing cannot be optimized: {earlier}",
                remedy='Set mode = "auto" in [listing], which then makes a full listing',
            )
        facts |= {"mode": CLEAN, "mode_because": earlier}
        expected = RUN_PROGRESS.expect(
            "objects", lambda: workspace.last_listed(run.repository, except_run=run.run_key) or 0
        )
        written = list_in_rounds(context.compute, run.store, parts, limits, expected=expected)
        # How fast a run is depends on this, and nothing else.
        facts[IS_SMALL] = context.compute.is_small and sum(row["rows"] for row in written) <= SMALL_RUN_OBJECTS
        context.compute.scale(facts[IS_SMALL])
        ended_at = context.clock()
        on_listed()
    reports = [(row["file"], row["rows"], row["size_bytes"]) for row in written]
    return StageOutput(
        dataframe=local_rows(context.spark, reports, PART),
        began_at=began_at,
        facts=facts | _unrecognized(written) | _counted(context, run, written),
        in_parts=True,
        ended_at=ended_at,
    )


def _optimized(
    context: RunContext, run: GCRun, earlier: EarlierListing, limits: ListingLimits, began_at: datetime
) -> StageOutput:
    """List the slices newer than the margin, and take over the others from the earlier run."""
    new_slices, skipped = f"{_STAGE}_young", frozenset(earlier.slices)
    parts = context.workspace.parts_folder(run.run_key, new_slices)
    written = list_in_rounds(context.compute, run.store, parts, limits, skipped=skipped)
    context.compute.scale(False)
    rows = earlier.rows(context, run.store)
    if written:
        names = [row["file"] for row in written]
        listed = context.workspace.rows_of_files(context.spark, run.run_key, new_slices, schemas.STORE_LISTING, names)
        rows = rows.unionByName(listed)
    return StageOutput(
        dataframe=rows,
        began_at=began_at,
        facts={
            "run": run.to_facts(),
            ENDPOINTS: endpoints_of_run(),
            "source": "store",
            "mode": OPTIMIZED,
            "mode_because": earlier.reason(),
            "optimized_runs": earlier.optimized_runs,
            "slices_taken_over": len(earlier.slices),
            TAKEN_OVER_BEFORE: earlier.before.isoformat(),
            **_unrecognized(written),  # every run lists the root
        },
        measures={"size_bytes": F.sum("size"), **listing_measures(run)},
    )


def _unrecognized(written: list[Report]) -> dict[str, int]:
    return {name: sum(row[name] for row in written) for name in (UNRECOGNIZED, UNRECOGNIZED_BYTES)}


def _counted(context: RunContext, run: GCRun, written: list[Report]) -> dict[str, Any]:
    """Return the values of ``listing_measures`` for the written files."""
    names, workspace = [row["file"] for row in written], context.workspace
    if context.compute.is_small or not written or is_local(context.spark):
        parts = workspace.parts_folder(run.run_key, _STAGE)
        keys = [parts.folder + name for name in names]
        counted = count_files(context.open_store(parts.store), keys, run, readers=min(_READERS, context.cores))
    else:
        rows = workspace.rows_of_files(context.spark, run.run_key, _STAGE, schemas.STORE_LISTING, names)
        with driver_errors():
            [row] = rows.agg(*(column.alias(name) for name, column in listing_measures(run).items())).collect()
        counted = row.asDict()
    return {name: value or 0 for name, value in counted.items()}
