"""List a namespace in rounds. The tasks of a round list key ranges, and large ranges are split for the next round.

The first round lists one level of the root and one level of ``data/``, and finds the slices. The second round lists the
slices. If a slice, or a root of the old layout, has more pages than ``pages_per_range``, its task splits the rest into
parts, and the next round distributes the parts over all tasks. Workers write the objects. The driver gets one row for
each file and for each remaining range, and never an object.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterator
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.engine.collect.listing.foreign_names import (
    UNRECOGNIZED,
    UNRECOGNIZED_BYTES,
    UnrecognizedNameCount,
    refuse_inner_namespaces,
)
from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.engine.spark.compute import Compute
from lakefs_gc.engine.spark.local_rows import rows_of
from lakefs_gc.engine.spark.parts import PartsFolder, write_parts
from lakefs_gc.engine.spark.scale import SMALL_RUN_OBJECTS, collect_in_arrow, work_here
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.formats.candidate_addresses import are_candidate_addresses
from lakefs_gc.storage.listing.key_ranges import KeyRange
from lakefs_gc.storage.listing.range_listing import ListingLimits, RangeLister
from lakefs_gc.storage.location import StoreLocation

logger = logging.getLogger(__name__)

Report = dict[str, Any]
"""A file that was written, or a range that remains."""

_DATA = "data/"
_RANGE = pa.schema(
    [("prefix", pa.string()), ("start_after", pa.string()), ("until", pa.string()), ("one_level", pa.bool_())]
)
_RANGE_DDL = "prefix string, start_after string, until string, one_level boolean"
_REPORT = f"file string, rows long, size_bytes long, strangers long, strangers_bytes long, {_RANGE_DDL}"
_COUNTS = ("rows", "size_bytes", UNRECOGNIZED, UNRECOGNIZED_BYTES)
_REPORT_SCHEMA = pa.schema([("file", pa.string()), *((name, pa.int64()) for name in _COUNTS), *_RANGE])
# Ranges differ in length. With several tasks for each core, the cores finish at about the same time.
_TASKS_PER_CORE = 4
_RANGES_PER_TASK = 16
_SMALL_ROUNDS = 8
"""The most rounds that the driver lists alone."""
_SMALL_RANGES = 256
"""The most ranges that the driver lists in a round."""
_RANGES_AT_ONCE = 16
"""Of the driver. After so many it stops if it has listed more objects than a small run has."""
_SMALL_PAGES = 24
"""Of each of these ranges, until the driver counts the objects again."""
_SMALL_CUT = 4
"""After so many pages, several threads of the driver list a range."""
_GROWTH = 4
"""The factor by which the page limit of a range grows in each round. A root with a billion objects takes few rounds."""


def list_in_rounds(
    compute: Compute,
    store: StoreLocation,
    folder: PartsFolder,
    limits: ListingLimits,
    *,
    skipped: Collection[str] = (),
    expected: int = 0,
) -> list[Report]:
    """List every object that may be a candidate (rule 4): ``data/`` at any depth, and one level of the root.

    Returns the written files (columns of ``parts.PART``, and the counts of unrecognized names). Folders of ``data/`` in
    ``skipped`` (with their final slash) are not listed. A failed task fails the listing. ``expected`` is an estimate of
    the number of objects, for people who wait; 0 if it is unknown.
    """
    waiting = [KeyRange("", one_level=True), KeyRange(_DATA, one_level=True)]
    followed = {_DATA, *skipped}
    written: list[Report] = []
    RUN_PROGRESS.count("objects")
    for number in itertools.count():
        in_round = replace(limits, pages_per_range=limits.pages_per_range * _GROWTH**number)
        if compute.is_small and not _fits_here(store, limits, number, expected, len(waiting)):
            compute.scale(False)
        reports: list[Report] = []
        left = waiting
        if compute.is_small:
            reports, left = _list_here(store, folder, limits, waiting, _objects(written))
        if left:
            compute.scale(False)
            ranges = rows_of(compute.session, _table(left), _RANGE_DDL)
            ranges = ranges.repartition(_tasks(len(left), compute.cores))
            reports += collect_in_arrow(ranges, _list_ranges(store, folder, in_round), _REPORT)
        written += [report for report in reports if report["file"] is not None]
        objects = _objects(written)
        logger.debug(
            "store_listing: round %d, %s ranges, %s objects so far", number, f"{len(waiting):,}", f"{objects:,}"
        )
        # The first rounds look for slices. The tasks of the next ones list most of the rest.
        RUN_PROGRESS.count("objects", objects, running=max(0, expected - objects) if number else 0)
        waiting = list(_remaining(reports, followed))
        if not waiting:
            return written
    raise AssertionError("unreachable")


def _tasks(ranges: int, cores: int) -> int:
    """Return in how many tasks to list so many ranges: in several for each core only if each has many.

    Each task waits for the store many times at once. In eight tasks, two cores list 23 ranges of 26 pages in 4 s.
    """
    return min(ranges, cores * min(_TASKS_PER_CORE, max(1, ranges // (cores * _RANGES_PER_TASK))))


def _list_here(
    store: StoreLocation, folder: PartsFolder, limits: ListingLimits, ranges: list[KeyRange], listed: int
) -> tuple[list[Report], list[KeyRange]]:
    """List ranges in this process until all or more objects than a small run has are listed.

    Returns the reports, and the ranges that remain. ``listed``: the objects of earlier rounds.
    """
    work = _list_ranges(store, folder, replace(limits, cut_after_pages=_SMALL_CUT, pages_per_range=_SMALL_PAGES))
    reports: list[Report] = []
    for first in range(0, len(ranges), _RANGES_AT_ONCE):
        if listed + _objects(reports) > SMALL_RUN_OBJECTS:
            return reports, ranges[first:]
        some = _table(ranges[first : first + _RANGES_AT_ONCE])
        reports += work_here(some.to_batches(), work, _REPORT_SCHEMA).to_pylist()
    return reports, []


def _table(ranges: list[KeyRange]) -> pa.Table:
    return pa.Table.from_pylist([asdict(key_range) for key_range in ranges], schema=_RANGE)


def _objects(reports: list[Report]) -> int:
    return sum(report["rows"] for report in reports if report["file"] is not None)


def _fits_here(store: StoreLocation, limits: ListingLimits, number: int, expected: int, ranges: int) -> bool:
    """Return whether the driver may list the round of a small run: only where it can stop after some pages.

    A local folder has no pages, so its files are counted first, in no more time than it takes to list a small run.
    """
    if expected > SMALL_RUN_OBJECTS or ranges > _SMALL_RANGES:
        return False
    opened = worker_store(store)
    if opened.lists_by_page:
        return number < _SMALL_ROUNDS and limits.cut_after_pages > 0
    objects = 0
    for batch in opened.list(_DATA) if number == 0 else ():
        objects += batch.num_rows
        if objects > SMALL_RUN_OBJECTS:
            return False
    return True


def _remaining(reports: list[Report], followed: set[str]) -> Iterator[KeyRange]:
    """Yield the ranges of the next round. A folder that two ranges reported is listed once."""
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
def _list_ranges(batches: Batches, store: StoreLocation, folder: PartsFolder, limits: ListingLimits) -> Batches:
    ranges = (KeyRange(**row) for batch in batches for row in batch.to_pylist())
    lister = RangeLister(worker_store(store), ranges, limits)
    count = UnrecognizedNameCount()
    for report in write_parts((_checked(objects, count, store) for objects in lister.batches()), folder):
        rows = [row | count.take() for row in report.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, schema=_REPORT_SCHEMA)
    if lister.left_over:
        yield pa.RecordBatch.from_pylist([asdict(left) for left in lister.left_over], schema=_REPORT_SCHEMA)


def _checked(objects: pa.RecordBatch, count: UnrecognizedNameCount, store: StoreLocation) -> pa.RecordBatch:
    """Drop the files at the root that lakeFS itself uses, and count the unrecognized names there.

    Raises ``NamespaceError`` for objects of another repository.
    """
    refuse_inner_namespaces(objects, store.url)
    at_root = pc.invert(pc.match_substring(objects["address"], "/"))
    if not pc.any(at_root, min_count=0).as_py():
        return objects
    count.add(objects.filter(at_root))
    return objects.filter(pc.or_(pc.invert(at_root), are_candidate_addresses(objects["address"])))
