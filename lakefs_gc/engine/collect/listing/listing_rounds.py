"""Listing a namespace in rounds: each round's tasks list key ranges, and what goes on for long is shared out anew.

The first round lists the root and ``data/``, one level each, and finds the slices; the second lists those.  A slice, or
a root of the old layout, that is larger than ``pages_per_range`` is left over by its task, cut into parts by then, and
the next round gives the parts to all tasks.  Workers write what they list; the driver sees a row for each file and each
range that is left, never an object.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterator
from dataclasses import asdict, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from lakefs_gc.engine.collect.listing.root_names import UNRECOGNIZED, UNRECOGNIZED_BYTES, UnrecognizedNameCount
from lakefs_gc.engine.spark.compute import Compute
from lakefs_gc.engine.spark.parts import PartsFolder, write_parts
from lakefs_gc.engine.spark.workers import Batches, driver_errors, worker, worker_store
from lakefs_gc.formats.addresses import are_candidate_addresses
from lakefs_gc.storage.listing.key_ranges import KeyRange
from lakefs_gc.storage.listing.range_listing import ListingLimits, RangeLister
from lakefs_gc.storage.location import StoreLocation

logger = logging.getLogger(__name__)

_DATA = "data/"
_RANGE = pa.schema(
    [("prefix", pa.string()), ("start_after", pa.string()), ("until", pa.string()), ("one_level", pa.bool_())]
)
_REPORT = (
    "file string, rows long, size_bytes long, strangers long, strangers_bytes long, "
    "prefix string, start_after string, until string, one_level boolean"
)
_COUNTS = ("rows", "size_bytes", UNRECOGNIZED, UNRECOGNIZED_BYTES)
_REPORT_SCHEMA = pa.schema([("file", pa.string()), *((name, pa.int64()) for name in _COUNTS), *_RANGE])
# Ranges differ in length; with a few tasks for each core they more or less even out.
_TASKS_PER_CORE = 4
_GROWTH = 4
"""How much longer a range may go on in each round: few rounds, even for a root with a billion objects."""


def list_in_rounds(
    compute: Compute,
    store: StoreLocation,
    place: PartsFolder,
    limits: ListingLimits,
    *,
    but: Collection[str] = (),
) -> list[Row]:
    """List every object that may be a candidate (rule 4): ``data/`` at any depth, and the root, one level.

    Returns the written files (columns of ``parts.PART``, and the strangers in it).  Folders of ``data/`` that are in
    ``but`` (with their final slash) are passed over.  One task that fails, fails the listing.
    """
    waiting = [KeyRange("", one_level=True), KeyRange(_DATA, one_level=True)]
    followed = {_DATA, *but}
    written: list[Row] = []
    for number in itertools.count():
        in_round = replace(limits, pages_per_range=limits.pages_per_range * _GROWTH**number)
        table = pa.Table.from_pylist([asdict(key_range) for key_range in waiting], schema=_RANGE)
        ranges = compute.session.createDataFrame(table)
        ranges = ranges.repartition(min(len(waiting), compute.cores * _TASKS_PER_CORE))
        with driver_errors():
            reports = ranges.mapInArrow(_list_ranges(store, place, in_round), _REPORT).collect()
        written += [report for report in reports if report["file"] is not None]
        logger.info(
            "listing, round %d: %d ranges, %d objects so far", number, len(waiting), sum(row["rows"] for row in written)
        )
        waiting = list(_left_over(reports, followed))
        if not waiting:
            return written
    raise AssertionError("unreachable")


def _left_over(reports: list[Row], followed: set[str]) -> Iterator[KeyRange]:
    """What is to be listed in the next round; a folder that two ranges told of, once."""
    for report in reports:
        if report["file"] is not None:
            continue
        prefix = report["prefix"]
        if report["one_level"]:
            yield KeyRange(prefix, report["start_after"], report["until"], one_level=True)
        elif prefix.startswith(_DATA) and prefix not in followed:
            followed.add(prefix)
            yield KeyRange(prefix)


@worker
def _list_ranges(batches: Batches, store: StoreLocation, place: PartsFolder, limits: ListingLimits) -> Batches:
    ranges = (KeyRange(**row) for batch in batches for row in batch.to_pylist())
    lister = RangeLister(worker_store(store), ranges, limits)
    count = UnrecognizedNameCount()
    for report in write_parts((_without_own_names(objects, count) for objects in lister.batches()), place):
        rows = [row | count.take() for row in report.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, schema=_REPORT_SCHEMA)
    if lister.left_over:
        yield pa.RecordBatch.from_pylist([asdict(left) for left in lister.left_over], schema=_REPORT_SCHEMA)


def _without_own_names(objects: pa.RecordBatch, count: UnrecognizedNameCount) -> pa.RecordBatch:
    """At the root there are also names of lakeFS's own; those that are nobody's are counted."""
    at_root = pc.invert(pc.match_substring(objects["address"], "/"))
    if not pc.any(at_root, min_count=0).as_py():
        return objects
    count.add(objects.filter(at_root))
    return objects.filter(pc.or_(pc.invert(at_root), are_candidate_addresses(objects["address"])))
