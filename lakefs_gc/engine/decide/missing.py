"""Rule 7: what is referenced and not in the store is data loss that already happened.

The join of stage ``unmatched`` finds it for free.  What the listing has not may have been uploaded since, or lie where
nothing is listed: each such object is asked for, and what an earlier sweep of ours deleted is told apart.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.listing.existence import only_absent
from lakefs_gc.engine.decide.unmatched import address_hash
from lakefs_gc.engine.input_order import check_inputs, check_made_from
from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.restore_log import RESTORED
from lakefs_gc.engine.records.sweep_history import recorded_by_sweeps
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput

_TASKS_PER_CORE = 4


def missing(
    context: RunContext,
    run: GCRun,
    *,
    uncommitted: Dataset,
    committed: Dataset,
    unmatched: Dataset,
) -> StageOutput:
    """List the objects that are referenced and do not exist.  Columns: ``schemas.MISSING``.

    ``deleted_by`` is a mark of ours whose sweep deleted the object; ``facts`` has ``lost``, the others.
    """
    spark, cores = context.spark, context.cores
    began_at = context.clock()
    check_inputs(run.run_key, uncommitted, committed, unmatched)
    check_made_from(unmatched, uncommitted, committed)
    rows = local_rows(spark, [], schemas.MISSING)
    if unmatched.manifest.facts["not_in_store"]:
        hashes = unmatched.dataframe.where(F.col("address").isNull()).select("address_hash")
        references = (
            dataset.dataframe.select("address", F.lit(dataset.manifest.stage).alias("found_in"))
            for dataset in (committed, uncommitted)
        )
        # Whatever has such a hash is asked for; by chance that may be one that is there.
        expected = (
            reduce(DataFrame.union, references)
            .withColumn("address_hash", address_hash("address"))
            .join(hashes.distinct(), "address_hash", "left_semi")
            .groupBy("address")
            .agg(F.min("found_in").alias("found_in"))
        )
        absent = expected.repartition(cores * _TASKS_PER_CORE).mapInArrow(
            only_absent(run.store), "address string, found_in string"
        )
        deleted_by = F.coalesce("mark_id", F.lit("")).alias("deleted_by")
        rows = absent.join(_deleted(context, run), "address", "left").select("address", "found_in", deleted_by)
    return StageOutput(
        dataframe=rows,
        began_at=began_at,
        measures={"lost": F.count_if(F.col("deleted_by") == "")},
        inputs={"unmatched": unmatched.manifest.materialization_id},
    )


def _deleted(context: RunContext, run: GCRun) -> DataFrame:
    """What our sweeps deleted and no restore has brought back since.  Columns: ``address``, ``mark_id``."""
    # An intent counts: what is gone after it is ours.
    is_delete = F.col("outcome").isin(ledger.DELETED, ledger.INTENT)
    deleted_at = F.when(is_delete, F.col("recorded_at"))
    restored_at = F.when(F.col("outcome") == RESTORED, F.col("recorded_at"))
    found = recorded_by_sweeps(context.spark, run.store, context.cores).groupBy("address")
    last = found.agg(
        F.max_by("mark_id", deleted_at).alias("mark_id"),
        F.max(deleted_at).alias("deleted_at"),
        F.max(restored_at).alias("restored_at"),
    )
    return last.where(F.col("restored_at").isNull() | (F.col("deleted_at") > F.col("restored_at"))).select(
        "address", "mark_id"
    )
