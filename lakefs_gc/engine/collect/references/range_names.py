"""The number of ranges and a sum over their names: who reads the ranges reports the same, or the stage fails.

The number alone does not show that one range was read twice and another not at all: where a file of ``active_ranges``
is read with the content of another file of the same size, for example.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.spark.compat import known_table
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import CorruptFileError, InputOrderError

FILES_READ = "files_read"
NAMES_READ = "names_read"
"""Counts in the reports of workers: files, and the sum of the CRC-32 of their names."""
RANGE_NAMES = "range_names"
"""Fact of ``active_ranges``: the sum of the CRC-32 of their names."""


def name_sum(range_ids: Iterable[str]) -> int:
    """Return the sum of the CRC-32 of names. That of 10⁹ ranges fits into 64 bits."""
    return sum(zlib.crc32(range_id.encode()) for range_id in range_ids)


def range_name_facts(ranges: DataFrame) -> tuple[dict[str, int], dict[str, Column]]:
    """Return ``RANGE_NAMES`` of these ranges (column ``range_id``), as a fact if they are known, else as a measure."""
    table = known_table(ranges)
    if table is not None:
        return {RANGE_NAMES: name_sum(table["range_id"].to_pylist())}, {}
    return {}, {RANGE_NAMES: _name_sum()}


def reports_of(ranges: DataFrame) -> dict[str, int]:
    """Return the sums that the workers must report if they read these ranges (column ``range_id``)."""
    table = known_table(ranges)
    if table is not None:
        return {FILES_READ: table.num_rows, NAMES_READ: name_sum(table["range_id"].to_pylist())}
    with driver_errors():
        [row] = ranges.agg(
            F.count("*").alias(FILES_READ), F.coalesce(_name_sum(), F.lit(0)).alias(NAMES_READ)
        ).collect()
    return dict(row.asDict())


def reports_of_stage(ranges: Dataset) -> dict[str, int]:
    """Return the same for the stage ``active_ranges``, as it was written. Raises ``InputOrderError``."""
    manifest = ranges.manifest
    facts: Mapping[str, Any] = manifest.facts
    if RANGE_NAMES not in facts:
        raise InputOrderError(
            f"{manifest.stage} of run {manifest.run_key} was written by an older version of lakefs-gc, which did not "
            "record the names of the ranges",
            remedy="Start a new run",
        )
    return {FILES_READ: manifest.rows, NAMES_READ: facts[RANGE_NAMES]}


def refuse_other_ranges(ranges: Dataset) -> None:
    """Raise ``CorruptFileError`` if the files of ``active_ranges`` have other rows than were written."""
    if reports_of(ranges.dataframe) != reports_of_stage(ranges):
        raise CorruptFileError(
            f"{ranges.manifest.run_key}/{ranges.manifest.stage}",
            "it has other rows than were written",
            remedy="Start a new run, and find out what changes files in the workspace (work_url)",
        )


def _name_sum() -> Column:
    return F.sum(F.crc32("range_id"))
