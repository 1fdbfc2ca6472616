"""Lets Java load the classes of Spark's first query while Python works for the first stages.

The first join of a session takes a second, however few the rows are, and the next ones a third of that. Nothing else
uses Java while a small run lists the store and asks the server.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import to_arrow
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.scale import SMALL_CONFIG

logger = logging.getLogger(__name__)

_TIME = datetime(2020, 1, 1, tzinfo=UTC)


def run_first_query(session: SparkSession) -> None:
    """Run a query with the parts of ``unmatched``, over a row, in a session of its own. Raises nothing."""
    try:
        own = session.newSession()
        for name, value in SMALL_CONFIG.items():
            own.conf.set(name, value)
        listed, referenced = (local_rows(own, [("data/a", 1, _TIME)], schemas.STORE_LISTING) for _ in range(2))
        digest = F.xxhash64("address").alias("digest")
        found = [referenced.select(digest, F.lit(name).alias("found_in")) for name in ("a", "b")]
        stored, references = (
            rows.repartition(1, "digest") for rows in (listed.select("*", digest), found[0].union(found[1]))
        )
        is_old = (F.col("last_modified") <= F.lit(_TIME)) & F.col("address").rlike("^data/[a-z]$")
        rows = stored.join(references, "digest", "full_outer").where(F.col("found_in").isNull() | is_old)
        measures = (F.count_if(is_old).alias("rows"), F.sum(F.when(is_old, F.col("size"))).alias("size_bytes"))
        to_arrow(rows.drop("digest").observe(Observation(), *measures).where(F.col("found_in") != "c"))
    except Exception as error:  # the run's own queries raise it, too
        logger.debug("Spark's first query failed: %s", error)
