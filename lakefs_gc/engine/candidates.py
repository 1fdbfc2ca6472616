"""Stage 5: which objects may be deleted.

candidates = listing (older than the cutoff, where garbage can be) - committed - uncommitted - foreign references
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine import schemas
from lakefs_gc.engine.active_ranges import ALL_COMMITS, METADATA_FOLDER, metadata_files
from lakefs_gc.engine.ages import age_measures
from lakefs_gc.engine.committed import live_addresses
from lakefs_gc.engine.dataset import Clock, Dataset, StageOutput
from lakefs_gc.engine.run import GCRun, check_inputs
from lakefs_gc.engine.workers import Batches, strings, worker, worker_store
from lakefs_gc.errors import CorruptRangeError, InputOrderError, SafetyError
from lakefs_gc.formats.addresses import CANDIDATE_ADDRESS_REGEX
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.server import LakeFSServer
from lakefs_gc.storage.base import StoreLocation
from lakefs_gc.storage.open import open_store

logger = logging.getLogger(__name__)

_READS_AT_ONCE = 8
_TASKS_PER_CORE = 4


def candidates(
    spark: SparkSession,
    run: GCRun,
    *,
    listing: Dataset,
    uncommitted: Dataset,
    active_ranges: Dataset,
    committed: Dataset,
    foreign_references: Dataset,
    server: LakeFSServer,
    clock: Clock,
    cores: int,
) -> StageOutput:
    """Subtract what is referenced from what is stored.  Columns: ``schemas.CANDIDATES``.

    Raises ``InputOrderError`` for inputs that are out of order, of different runs, or not made from each other (rule
    1), and ``SafetyError`` when nothing is committed although the branches have content (rule 3).
    """
    began_at = clock()
    check_inputs(run.run_key, listing, uncommitted, active_ranges, committed)
    check_inputs(run.run_key, listing, foreign_references)
    _check_made_from(committed, active_ranges)
    _check_made_from(active_ranges, uncommitted)
    if committed.manifest.rows == 0:
        refuse_unproved_emptiness(server, run)
    old_enough = listing.dataframe.where(F.col("last_modified") < F.lit(run.cutoff))
    unreferenced = old_enough.where(F.col("address").rlike(CANDIDATE_ADDRESS_REGEX))
    for referenced in (committed, uncommitted, foreign_references):
        unreferenced = unreferenced.join(referenced.dataframe.select("address"), "address", "left_anti")
    return StageOutput(
        dataframe=_with_reason(spark, run, unreferenced, active_ranges, cores),
        began_at=began_at,
        facts={"cutoff": run.cutoff.isoformat()},
        measures={
            "size_bytes": F.sum("size"),
            **age_measures(run.started_at),
            "expired": F.count_if(F.col("reason") == schemas.EXPIRED),
            "expired_bytes": F.sum(F.when(F.col("reason") == schemas.EXPIRED, F.col("size"))),
        },
        inputs={
            dataset.manifest.stage: dataset.manifest.materialization_id
            for dataset in (listing, uncommitted, active_ranges, committed, foreign_references)
        },
    )


def _check_made_from(later: Dataset, earlier: Dataset) -> None:
    stage = earlier.manifest.stage
    if later.manifest.inputs.get(stage) != earlier.manifest.materialization_id:
        raise InputOrderError(
            f"{later.manifest.stage} was made from another materialization of {stage} than the one that is there now",
            remedy=f"materialize {later.manifest.stage} and everything after it again, or start a new run",
        )


def refuse_unproved_emptiness(server: LakeFSServer, run: GCRun) -> None:
    """Rule 3: an empty committed set is only believed when the content of every branch is empty or outside."""
    store = open_store(run.store)
    for branch, commit_id in server.branch_heads(run.repository):
        metarange_id = server.metarange_of(run.repository, commit_id)
        if not metarange_id:
            continue
        file = METADATA_FOLDER + metarange_id
        for range_id in read_metarange(store.read(file), file).column("range_id").to_pylist():
            key = METADATA_FOLDER + range_id
            if any(rows.num_rows for rows in live_addresses(store.read(key), key, run.namespace, None)):
                raise SafetyError(
                    f"no committed object was found in {run.repository}, but branch {branch} has some",
                    remedy="look at the rules and at the lakeFS server's log of prepare_commits; nothing was marked",
                )


def _with_reason(
    spark: SparkSession, run: GCRun, unreferenced: DataFrame, active_ranges: Dataset, cores: int
) -> DataFrame:
    """Tell what some expired commit refers to from what was never committed; this decides nothing."""
    if active_ranges.manifest.facts["mode"] == ALL_COMMITS:
        return unreferenced.withColumn("reason", F.lit(schemas.NEVER_COMMITTED))
    inactive = metadata_files(spark, run.store).join(
        active_ranges.dataframe.select("range_id"), "range_id", "left_anti"
    )
    once_committed = (
        inactive.select("range_id")
        .repartition(cores * _TASKS_PER_CORE)
        .mapInArrow(_read_inactive(run.store, run.namespace), schemas.UNCOMMITTED)
        .distinct()
        .withColumn("reason", F.lit(schemas.EXPIRED))
    )
    return unreferenced.join(once_committed, "address", "left").fillna(schemas.NEVER_COMMITTED, "reason")


@worker
def _read_inactive(batches: Batches, store: StoreLocation, namespace: str) -> Batches:
    keys: Iterator[str] = (METADATA_FOLDER + range_id for range_id in strings(batches, "range_id"))
    for key, data in worker_store(store).read_many(keys, concurrency=_READS_AT_ONCE):
        try:
            for rows in live_addresses(data, key, namespace, None):
                yield rows.select(["address"])
        except CorruptRangeError as error:
            # Nothing live depends on this file; what it alone refers to shows as never committed.
            logger.warning("a file of no active commit does not parse, and is passed over: %s", error)
