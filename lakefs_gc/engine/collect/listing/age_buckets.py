"""Count the bytes of listings and marks by the age of the objects, for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

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


def bytes_by_age(facts: Mapping[str, Any], of: str = "") -> dict[str, int]:
    """Return the counted bytes by bucket, in order. Empty for a stage that did not count them."""
    prefix = of + _PREFIX
    return {name: facts[prefix + name] for name, _, _ in AGE_BUCKETS_DAYS if prefix + name in facts}
