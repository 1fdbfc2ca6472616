"""Stage ``missing``: objects that are referenced but do not exist (rule 7). They are data loss that already happened.

The join of stage ``unmatched`` finds them at no extra cost. An object that the listing lacks may have been uploaded
since, or lie outside the listed prefixes. So the store is asked for each of them. Those that an earlier sweep of this
repository deleted are reported separately.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.listing.existence import only_absent
from lakefs_gc.engine.decide.unmatched import address_hash
from lakefs_gc.engine.input_order import check_inputs, check_made_from
from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.ledger import recorded_by_sweeps
from lakefs_gc.engine.records.restore_log import RESTORED
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.scale import in_arrow, spread
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
    """Return the objects that are referenced and do not exist. Columns: ``schemas.MISSING``.

    ``deleted_by`` is the mark whose sweep deleted the object, or empty. ``facts`` has ``lost``, the number of objects
    that no sweep deleted.
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
        # Look up every address with such a hash; by coincidence an object that exists may have the same hash.
        expected = (
            reduce(DataFrame.union, references)
            .withColumn("address_hash", address_hash("address"))
            .join(hashes.distinct(), "address_hash", "left_semi")
            .groupBy("address")
            .agg(F.min("found_in").alias("found_in"))
        )
        asked = spread(expected, cores * _TASKS_PER_CORE)
        absent = in_arrow(asked, only_absent(run.store), "address string, found_in string")
        deleted_by = F.coalesce("mark_id", F.lit("")).alias("deleted_by")
        rows = absent.join(_deleted(context, run), "address", "left").select("address", "found_in", deleted_by)
    return StageOutput(
        dataframe=rows,
        began_at=began_at,
        measures={"lost": F.count_if(F.col("deleted_by") == "")},
        inputs={"unmatched": unmatched.manifest.materialization_id},
    )


def _deleted(context: RunContext, run: GCRun) -> DataFrame:
    """Return what earlier sweeps deleted and no restore has restored since. Columns: ``address``, ``mark_id``."""
    # An intent counts as a delete: an object that is gone after an intent was deleted by that sweep.
    is_delete = F.col("outcome").isin(ledger.DELETED, ledger.INTENT)
    deleted_at = F.when(is_delete, F.col("recorded_at"))
    restored_at = F.when(F.col("outcome") == RESTORED, F.col("recorded_at"))
    by_address = recorded_by_sweeps(context.spark, run.store, context.cores).groupBy("address")
    last = by_address.agg(
        F.max_by("mark_id", deleted_at).alias("mark_id"),
        F.max(deleted_at).alias("deleted_at"),
        F.max(restored_at).alias("restored_at"),
    )
    return last.where(F.col("restored_at").isNull() | (F.col("deleted_at") > F.col("restored_at"))).select(
        "address", "mark_id"
    )
