"""The most frequent errors of a table of outcomes, for the report of a sweep, a backup or a restore."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.spark.workers import driver_errors

_ERRORS_SHOWN = 10


def frequent_errors(rows: DataFrame, by: tuple[str, ...] = ("error",)) -> list[dict[str, str | int]]:
    """Return the ten most frequent errors of ``rows`` (columns ``address`` and those in ``by``), most frequent first.

    Each has the columns in ``by``, ``objects`` (how many rows) and ``for_example`` (the first of their addresses).
    """
    with driver_errors():
        errors = (
            rows.groupBy(*by)
            .agg(F.count(F.lit(1)).alias("objects"), F.min("address").alias("for_example"))
            .orderBy(F.desc("objects"), "error")
            .limit(_ERRORS_SHOWN)
            .collect()
        )
    return [row.asDict() for row in errors]
