"""What the record of a listing counts, for people: the bytes by age, and the slice that lakeFS's own client reports.

On a cluster, Spark counts. On one machine this process counts from the files, as Arrow tables: 5 million objects take
it 0.8 s, and Spark 2.5 s. Interpreted, as in a small run, 100,000 take Spark 1.5 s, and 20 ms here.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.listing.age_buckets import age_measures, sizes_by_age
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.spark.parts import read_part
from lakefs_gc.formats.parquet import read_columns
from lakefs_gc.storage.base import LISTING_SCHEMA, ObjectStore
from lakefs_gc.storage.concurrency import map_unordered

FIRST_SLICE = "first_slice"
"""Fact: the newest slice with an object older than the cutoff, as lakeFS's own client reports it; 0 without one."""

_DATA = "data/"


def listing_measures(run: GCRun) -> dict[str, Column]:
    """Return the aggregates over a listing (columns ``schemas.STORE_LISTING``) that ``count_listing`` counts.

    Names of slices are time-reversed, so the newest sorts first. A slice is compared with its final slash, as stores
    sort folders. An object directly below ``data/`` is in no slice.
    """
    address = F.col("address")
    is_in_slice = address.startswith(_DATA) & (F.locate("/", address, len(_DATA) + 1) > 0)
    folder = F.concat(F.substring_index(address, "/", 2), F.lit("/"))
    first = F.min(F.when(is_in_slice & (F.col("last_modified") < F.lit(run.cutoff)), folder))
    return {**age_measures(run.started_at), FIRST_SLICE: F.element_at(F.split(first, "/"), 2)}


def count_files(store: ObjectStore, keys: Iterable[str], run: GCRun, *, readers: int) -> dict[str, Any]:
    """Return the values of ``listing_measures`` for files with the columns ``LISTING_SCHEMA``, read by threads.

    Raise ``ObjectNotFoundError`` and ``CorruptFileError``.
    """

    def count(key: str) -> dict[str, Any]:
        return count_listing(read_columns(read_part(store, key), LISTING_SCHEMA, key), run)

    total = count_listing(LISTING_SCHEMA.empty_table(), run)
    with closing(map_unordered(count, keys, readers)) as files:
        for _, counted in files:
            slices = [each[FIRST_SLICE] for each in (total, counted) if each[FIRST_SLICE] is not None]
            total = {name: total[name] + counted[name] for name in total if name != FIRST_SLICE}
            total[FIRST_SLICE] = min(slices, key=lambda name: f"{name}/", default=None)
    return total


def count_listing(listing: pa.Table, run: GCRun) -> dict[str, Any]:
    """Return the values of ``listing_measures``. ``listing`` has the columns ``LISTING_SCHEMA``."""
    is_old = pc.less(listing["last_modified"], pa.scalar(run.cutoff, listing["last_modified"].type))
    address = listing["address"].filter(is_old)
    # Up to its slice, the first address has the first folder.
    first = pc.min(address.filter(pc.match_substring_regex(address, rf"\A{_DATA}[^/]*/"))).as_py()
    return {**sizes_by_age(listing, run.started_at), FIRST_SLICE: first.split("/")[1] if first else None}
