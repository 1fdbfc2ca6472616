"""Which objects of a backup a restore was asked for: all, or those with a prefix of paths or of physical addresses.

A restore by path is often of a branch that was deleted by mistake. No call of the API lists the commits that only this
branch reached. So the paths in all metadata files of the namespace count, as in a proof of erasure.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.references.active_ranges import metadata_files
from lakefs_gc.engine.collect.references.commit_paths import commits_of, paths_in_commits
from lakefs_gc.engine.run import RunContext
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.storage.location import StoreLocation


def paths_of_copies(
    context: RunContext, repository: str, store: StoreLocation, folders: tuple[str, ...], copies: DataFrame, prefix: str
) -> DataFrame:
    """Return where commits show the objects of a backup. Columns: ``COMMIT_PATHS``.

    With a ``prefix`` also where metadata files have them that no listed commit names; those rows have no ``commit_id``.
    """
    commits = commits_of(context.server, repository)
    others = metadata_files(context.spark, store, commits) if prefix else None
    return paths_in_commits(context.compute, store, folders, commits, copies, others=others)


def requested(copies: DataFrame, paths: DataFrame, prefix: str) -> DataFrame:
    """Return the copies that have the prefix, in their address or in one of their ``paths``."""
    if not prefix:
        return copies
    by_path = paths.where(F.col("path").startswith(prefix)).select("address").distinct()
    fits = F.col("address").startswith(prefix) | F.coalesce("by_path", F.lit(False))
    return copies.join(by_path.withColumn("by_path", F.lit(True)), "address", "left").where(fits).drop("by_path")


def count_without_path(copies: DataFrame, paths: DataFrame, prefix: str) -> int:
    """Return how many copies a restore by ``prefix`` leaves out although nothing says whether their path has it."""
    if not prefix:
        return 0
    others = copies.where(~F.col("address").startswith(prefix))
    with driver_errors():
        return others.join(paths.select("address"), "address", "left_anti").count()
