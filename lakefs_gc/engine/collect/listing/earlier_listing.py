"""Reuse the listing of an earlier run: an optimized listing takes over the slices that have not changed.

Objects are added only to new slices, because an upload goes to the slice that was open when it began. So an older slice
has the objects that it had, except the deleted ones. Deletions by sweeps are in their ledgers. An object that another
program deleted still counts as stored, until a sweep finds that it is gone. An object that was uploaded to a slice
later than ``margin_hours`` after the slice was opened is not listed, and neither is one that was restored since. None
of this can delete a live object (``missing`` compares the sizes of such objects), and the next full listing corrects
it.

Only a listing of the same store is taken over: a copy of an installation has the same repositories, namespaces and
URLs, and may be collected from the same workspace. So the server and the endpoints must be the same.

Only a listing that had all that exists is taken over: where live objects are missing from it, the store may list them
under other names (``listed_otherwise``), and an optimized listing could not tell.

The folders below ``data/`` of a sharded namespace are shards: each has slices of every age, so it is listed in every
run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.listing.existence import only_absent
from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.ledger import recorded_by_sweeps
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.scale import SMALL_RUN_OBJECTS, in_arrow, spread
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import InputOrderError
from lakefs_gc.formats.ids import is_shard, is_slice_id, reversed_id_time
from lakefs_gc.storage.endpoints import endpoints_of_run
from lakefs_gc.storage.location import StoreLocation

OPTIMIZED = "optimized"
CLEAN = "clean"
ENDPOINTS = "endpoints"
"""Fact: where the run sends the requests about each service of stores. An earlier version did not record it."""
TAKEN_OVER_BEFORE = "taken_over_before"
"""Fact of an optimized listing: slices that were opened before this time were not listed."""

_DATA = "data/"
_TASKS_PER_CORE = 4
# The store's clock, which dates ledgers, may differ from this machine's clock by up to five minutes.
_CLOCK_MARGIN = timedelta(hours=1)


@dataclass(frozen=True)
class EarlierListing:
    """The rows to take over: those of ``listing`` in ``slices`` (prefixes ``data/<slice>/``), opened ``before`` a time.

    ``optimized_runs`` is the number of consecutive optimized listings, including this one. ``shards`` is the number of
    shards, which are listed in full.
    """

    listing: Dataset
    slices: list[str]
    before: datetime
    optimized_runs: int
    shards: int = 0

    def reason(self) -> str:
        """Return why the listing is optimized, and which folders gain nothing from that."""
        reason = f"run {self.listing.manifest.run_key} listed the older slices"
        return f"{reason}; {self.shards:,} shards are listed in full in every run" if self.shards else reason

    def rows(self, context: RunContext, store: StoreLocation) -> DataFrame:
        """Return the objects that sweeps have not deleted since. Columns: ``schemas.STORE_LISTING``."""
        spark, cores = context.spark, context.cores
        prefixes = local_rows(spark, [(prefix[:-1],) for prefix in self.slices], "prefix string")
        in_slices = self.listing.dataframe.withColumn("prefix", F.substring_index("address", "/", 2)).join(
            F.broadcast(prefixes), "prefix", "left_semi"
        )
        since = GCRun.of(self.listing.manifest).started_at - _CLOCK_MARGIN
        recorded = recorded_by_sweeps(spark, store, cores, since=since)
        gone = recorded.where(F.col("outcome").isin(ledger.DELETED, ledger.ALREADY_GONE)).select("address")
        # A killed sweep has recorded no outcome for these, so their existence is checked in the store.
        begun = recorded.where(F.col("outcome") == ledger.INTENT).select("address").distinct()
        absent = in_arrow(spread(begun, cores * _TASKS_PER_CORE, "address"), only_absent(store), "address string")
        rows = in_slices.join(gone.union(absent), "address", "left_anti")
        # Objects that were too young to be missed then: whether the store lists them by their names was not checked.
        old = rows.where(F.col("last_modified") < F.lit(GCRun.of(self.listing.manifest).cutoff))
        return old.select(*schemas.STORE_LISTING.names)


def find_earlier_listing(context: RunContext, run: GCRun) -> EarlierListing | str:
    """Return the reusable part of the newest complete listing, or the reason why there is none."""
    workspace, settings = context.workspace, context.settings.listing
    if settings.mode == CLEAN:
        return "the settings require a full listing"
    if settings.source != "store":
        return f"the listing comes from an {settings.source}"
    earlier_key = next((key for key in workspace.listed_runs(run.repository) if key != run.run_key), "")
    if not earlier_key:
        return "no earlier run exists"
    try:
        if settings.mode != OPTIMIZED and context.compute.is_small:
            objects = workspace.manifest(earlier_key, "store_listing").rows
            if objects <= SMALL_RUN_OBJECTS:
                return f"run {earlier_key} listed {objects:,} objects, and a full listing of so few takes no longer"
        context.compute.scale(False)  # a small run would read the whole listing into this process
        listing = workspace.read(context.spark, earlier_key, "store_listing", schemas.STORE_LISTING)
        missing_facts = workspace.manifest(earlier_key, "missing").facts
        earlier, facts = GCRun.of(listing.manifest), listing.manifest.facts
    except InputOrderError as error:
        return error.message
    optimized_runs = facts.get("optimized_runs", 0) + 1
    if (earlier.namespace, earlier.store) != (run.namespace, run.store):
        return f"run {earlier_key} listed another namespace, {earlier.namespace}"
    if earlier.server != run.server:
        server = f"{earlier.server.endpoint_url} (repository created {earlier.server.repository_created_at})"
        return f"run {earlier_key} listed for another lakeFS server or repository, {server}"
    if ENDPOINTS not in facts:
        return f"run {earlier_key} did not record the endpoint of the store"
    # The one of the namespace is in both. That of the workspace may be another service, and was used or not.
    here = endpoints_of_run()
    if any(here.get(service, place) != place for service, place in facts[ENDPOINTS].items()):
        return f"run {earlier_key} listed at another endpoint of the store"
    if facts.get("source") != "store":
        return f"the listing of run {earlier_key} comes from an {facts.get('source')}"
    if earlier.started_at >= run.started_at:
        return f"run {earlier_key} began after this run"
    # Facts of ``missing``, which imports this module. None: too many.
    if missing_facts.get("unlisted", 1) or missing_facts.get("unlisted_objects") != []:
        return f"the listing of run {earlier_key} lacks objects that exist"
    if optimized_runs > settings.optimized_runs:
        return f"{settings.optimized_runs} consecutive listings were optimized"
    before = min(earlier.started_at - timedelta(hours=settings.margin_hours), earlier.cutoff)
    folders, _ = context.open_store(run.store).list_level(_DATA)
    slices = [folder for folder in folders if is_taken_over(folder, before)]
    shards = sum(is_shard(folder.removeprefix(_DATA)) for folder in folders)
    if slices:
        return EarlierListing(listing, slices, before, optimized_runs, shards)
    if shards:
        return (
            f"the namespace is sharded: its {shards:,} shards below data/ have slices of every age, so an optimized "
            "listing gains nothing"
        )
    return "no slice is old enough"


def is_taken_over(address: str, before: datetime) -> bool:
    """Return whether an address lies in a slice that was opened before a time."""
    name = address.removeprefix(_DATA).partition("/")[0]
    return address.startswith(_DATA) and is_slice_id(name) and reversed_id_time(name) < before
