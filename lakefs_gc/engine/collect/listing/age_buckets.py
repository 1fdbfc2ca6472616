"""Count the bytes of listings and marks by the age of the objects, for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from lakefs_gc.units import EPOCH

AGE_BUCKETS_DAYS: tuple[tuple[str, float, float], ...] = (
    ("under a day", 0, 1),
    ("1 to 7 days", 1, 7),
    ("7 to 30 days", 7, 30),
    ("30 to 90 days", 30, 90),
    ("90 days to a year", 90, 365),
    ("over a year", 365, float("inf")),
)
"""Name, and age in days from (inclusive) to (exclusive). Objects newer than the run count as under a day."""

_PREFIX = "age: "


def age_measures(now: datetime, size: str | Column = "size", of: str = "") -> dict[str, Column]:
    """Return aggregates for ``StageOutput.measures``: the sum of ``size`` in each bucket of ``last_modified``.

    ``of`` names what is counted, if a stage counts more than one thing.
    """
    size = F.col(size) if isinstance(size, str) else size
    age_days = (F.lit(now).cast("double") - F.col("last_modified").cast("double")) / 86400
    return {
        of + _PREFIX + name: F.sum(F.when((age_days < until) & ((age_days >= since) if since else F.lit(True)), size))
        for name, since, until in AGE_BUCKETS_DAYS
    }


def sizes_by_age(objects: pa.Table, now: datetime) -> dict[str, int]:
    """Return the values of ``age_measures`` for a table with the columns ``size`` and ``last_modified``."""
    written = objects["last_modified"].cast(pa.int64())
    sums = {}
    for name, since, until in AGE_BUCKETS_DAYS:
        is_in = pc.greater(written, _microseconds(now, until)) if until != float("inf") else pa.scalar(True)
        if since:
            is_in = pc.and_(is_in, pc.less_equal(written, _microseconds(now, since)))
        sums[_PREFIX + name] = pc.sum(pc.if_else(is_in, objects["size"], 0), min_count=0).as_py()
    return sums


def _microseconds(now: datetime, days: float) -> int:
    return (now - EPOCH - timedelta(days=days)) // timedelta(microseconds=1)


def bytes_by_age(facts: Mapping[str, Any], of: str = "") -> dict[str, int]:
    """Return the counted bytes by bucket, in order. Empty for a stage that did not count them."""
    prefix = of + _PREFIX
    return {name: facts[prefix + name] for name, _, _ in AGE_BUCKETS_DAYS if prefix + name in facts}
