"""Reads the ranges of heads while the server lists what is staged.

Heads are active commits, so ``committed`` needs their ranges. What a range refers to does not depend on when it is
read, because its content never changes and is compared with its name. Which ranges are active is found out after the
list, as always (rule 1). ``committed`` takes what was read here only if every one of these ranges is active then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from lakefs_gc.engine.collect.references.active_ranges import metadata_files, ranges_of_metaranges
from lakefs_gc.engine.collect.references.commit_graph import wait_for_history
from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import known_table, to_arrow
from lakefs_gc.engine.spark.local_rows import rows_of, rows_with
from lakefs_gc.engine.spark.scale import is_small
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.errors import LakeFSGCError

logger = logging.getLogger(__name__)

_RANGES = "ranges"
_MOST_RANGES = 200_000
"""The most ranges that the driver compares: 20 MB of names."""


class RangesRead(NamedTuple):
    """``ranges`` (columns ``schemas.ACTIVE_RANGES``) that were read, and the rows that ``committed`` has of them."""

    ranges: pa.Table
    parts: pa.Table


def read_ranges_ahead(context: RunContext, run: GCRun, read: Callable[[DataFrame, DataFrame], DataFrame]) -> None:
    """Read the ranges of all heads now, for ``take_ranges``.

    ``read`` gets these ranges and ``metadata_files``, and writes what the ranges refer to.
    Whatever cannot be read here is read by the stage that needs it, which raises the error.
    """
    server = context.server
    wait_for_history(context, run)  # then the client knows the metaranges of heads
    try:
        heads = sorted(set(server.heads_of(run.repository).values()))
        metarange_ids = {metarange_id for _, metarange_id in server.metaranges_of(run.repository, heads)} - {""}
        with driver_errors():
            existing = metadata_files(context.spark, run.store)
            if is_small(context.spark):
                # Of files without a size, the process reads 250 at the most.
                ranges = known_table(ranges_of_metaranges(context, run, metarange_ids, existing))
            else:
                ranges = to_arrow(ranges_of_metaranges(context, run, metarange_ids).limit(_MOST_RANGES + 1))
            if ranges is None or not 0 < ranges.num_rows <= _MOST_RANGES:
                return
            rows = rows_of(context.spark, ranges, schemas.ACTIVE_RANGES)
            with RUN_PROGRESS.step("committed_ahead", ("ranges", ranges.num_rows)):
                parts = to_arrow(read(rows, existing))
    except LakeFSGCError as error:
        logger.info("the ranges of heads were not read ahead: %s", error.message)
        return
    context.ahead.keep(run, _RANGES, RangesRead(ranges, parts))


def take_ranges(context: RunContext, run: GCRun, active: DataFrame) -> RangesRead | None:
    """Return what was read ahead, if each of these ranges is one of ``active``; otherwise None.

    If a metarange states another number of entries for one of them, the result is None, too: reading it again fails.
    """
    ahead: RangesRead | None = context.ahead.take(run, _RANGES)
    if ahead is None:
        return None
    rows = rows_of(context.spark, ahead.ranges, schemas.ACTIVE_RANGES)
    with driver_errors():
        found = to_arrow(rows_with(active, rows, "range_id"))
    positions = pc.index_in(ahead.ranges["range_id"], found["range_id"])
    # In a list of files no range has a number of entries.
    differs = pc.fill_null(pc.not_equal(found["entries"].take(positions), ahead.ranges["entries"]), False)
    if positions.null_count or found.num_rows != ahead.ranges.num_rows or pc.any(differs).as_py():
        logger.info("ranges that were read ahead are not active any more: all are read again")
        return None
    return ahead
