"""The listing of an earlier run, of which an optimized run takes over what has not changed.

Objects are added to young slices only: an upload goes to the slice that was open when it began.  So an old slice holds
what it held, less what was deleted since.  Deletions by sweeps are in their ledgers.  What others deleted is still
taken for stored, and found gone by the sweep; what was uploaded to an old slice later than ``margin_hours`` after it
was made is not seen.  Neither can cost a live object; both end with the next clean run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.listing.existence import only_absent
from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.ledger import recorded_by_sweeps
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import InputOrderError
from lakefs_gc.formats.ids import is_slice_id, reversed_id_time
from lakefs_gc.storage.location import StoreLocation

OPTIMIZED = "optimized"
CLEAN = "clean"

_DATA = "data/"
_TASKS_PER_CORE = 4
# Between the store's clock, which dates ledgers, and this machine's: at most five minutes are allowed.
_CLOCKS = timedelta(hours=1)


@dataclass(frozen=True)
class EarlierListing:
    """What is taken over: the rows of ``listing`` in ``slices`` (prefixes ``data/<slice>/``).

    ``optimized_runs`` is how many runs in a row have taken over something, this one included.
    """

    listing: Dataset
    slices: list[str]
    optimized_runs: int

    def rows(self, context: RunContext, store: StoreLocation) -> DataFrame:
        """The objects that are still there as far as our sweeps know.  Columns: ``schemas.STORE_LISTING``."""
        spark, cores = context.spark, context.cores
        prefixes = local_rows(spark, [(prefix[:-1],) for prefix in self.slices], "prefix string")
        in_slices = self.listing.dataframe.withColumn("prefix", F.substring_index("address", "/", 2)).join(
            F.broadcast(prefixes), "prefix", "left_semi"
        )
        since = GCRun.of(self.listing.manifest).started_at - _CLOCKS
        recorded = recorded_by_sweeps(spark, store, cores, since=since)
        gone = recorded.where(F.col("outcome").isin(ledger.DELETED, ledger.ALREADY_GONE)).select("address")
        # A sweep that was killed in between: the store knows.
        begun = recorded.where(F.col("outcome") == ledger.INTENT).select("address").distinct()
        asked = begun.repartition(cores * _TASKS_PER_CORE).mapInArrow(only_absent(store), "address string")
        rows = in_slices.join(gone.union(asked), "address", "left_anti")
        return rows.select(*schemas.STORE_LISTING.names)


def find_earlier_listing(context: RunContext, run: GCRun) -> EarlierListing | str:
    """What can be taken over from the newest listing that ended, or why nothing can."""
    workspace, settings = context.workspace, context.settings.listing
    if settings.mode == CLEAN:
        return "the settings ask for a clean run"
    if settings.source != "store":
        return f"the listing comes from an {settings.source}"
    found = next((key for key in workspace.listed_runs(run.repository) if key != run.run_key), "")
    if not found:
        return "no earlier run is there"
    try:
        listing = workspace.read(context.spark, found, "store_listing", schemas.STORE_LISTING)
    except InputOrderError as error:
        return error.message
    earlier, facts = GCRun.of(listing.manifest), listing.manifest.facts
    optimized_runs = facts.get("optimized_runs", 0) + 1
    if (earlier.namespace, earlier.store) != (run.namespace, run.store):
        return f"run {found} listed another place, {earlier.namespace}"
    if facts.get("source") != "store":
        return f"the listing of run {found} came from an {facts.get('source')}"
    if earlier.started_at >= run.started_at:
        return f"run {found} began later than this one"
    if optimized_runs > settings.optimized_runs:
        return f"{settings.optimized_runs} runs in a row were optimized"
    before = earlier.started_at - timedelta(hours=settings.margin_hours)
    folders, _ = context.open_store(run.store).list_level(_DATA)
    slices = [folder for folder in folders if _is_older(folder.removeprefix(_DATA)[:-1], before.timestamp())]
    return EarlierListing(listing, slices, optimized_runs) if slices else "no slice is old enough"


def _is_older(name: str, timestamp: float) -> bool:
    return is_slice_id(name) and reversed_id_time(name).timestamp() < timestamp
