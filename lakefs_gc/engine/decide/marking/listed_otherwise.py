"""Notices a store that lists objects under other names than those by which lakeFS reads them.

Known conversions, such as that of backslashes, are among the readings of an address (``address_readings``). A gateway
may have others: it may ignore case, or normalize Unicode. Then a live object is listed under a name that nothing
references. But the store shows it under the name of its entry, which the listing does not have. The listed object has
the same size and the same time, so a mark that has such an object needs a person.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import functions as F

from lakefs_gc.engine.decide.marking.checks import ListedOtherwise
from lakefs_gc.engine.decide.missing import UNLISTED_OBJECTS
from lakefs_gc.engine.records.check import Unknown
from lakefs_gc.engine.run import RunContext
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.engine.workspace.workspace import Dataset

_CLOCK_GRAIN_S = 2
"""HEAD has whole seconds, and a listing may have parts of them."""


def listed_otherwise(context: RunContext, missing: Dataset, candidates: Dataset) -> ListedOtherwise | Unknown:
    """Compare the candidates with the live objects that exist, are older than the cutoff, and were not listed."""
    facts = missing.manifest.facts
    if not candidates.manifest.rows:
        return ListedOtherwise()
    if UNLISTED_OBJECTS not in facts:
        return Unknown("an older version of lakefs-gc did not note the live objects that were not listed (run again)")
    found = facts[UNLISTED_OBJECTS]
    if found is None:
        return Unknown(
            "many live objects exist and are older than the cutoff, but the listing does not have them. Whether it has "
            "them under other names was not checked (check the mounts and the credentials, then mark again)"
        )
    if not found:
        return ListedOtherwise()
    live = local_rows(
        context.spark,
        [(address, size, int(datetime.fromisoformat(at).timestamp())) for address, size, at in found],
        "live string, size long, at_s long",
    )
    is_alike = F.abs(F.unix_seconds("last_modified") - F.col("at_s")) <= _CLOCK_GRAIN_S
    alike = candidates.dataframe.select("address", "size", "last_modified").join(live, "size").where(is_alike)
    with driver_errors():
        [row] = alike.agg(
            F.countDistinct("address").alias("objects"), F.min(F.struct("address", "live")).alias("example")
        ).collect()
    return ListedOtherwise(row["objects"], *row["example"]) if row["objects"] else ListedOtherwise()
