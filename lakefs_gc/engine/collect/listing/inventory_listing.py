"""Read an inventory report as the listing of a run."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from lakefs_gc.engine.collect.listing.foreign_names import (
    UNRECOGNIZED,
    UNRECOGNIZED_BYTES,
    UnrecognizedNameCount,
    refuse_inner_namespaces,
)
from lakefs_gc.engine.collect.listing.listing_rounds import Report
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.parts import PartsFolder, write_parts
from lakefs_gc.engine.spark.scale import collect_in_arrow
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.errors import CorruptFileError, SafetyError
from lakefs_gc.formats.candidate_addresses import are_candidate_addresses
from lakefs_gc.storage.listing.inventory import newest_inventory
from lakefs_gc.storage.listing.inventory_manifest import Inventory
from lakefs_gc.storage.listing.inventory_rows import read_inventory_file
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.units import human_duration

_NUMBER = "number long"
_REPORT = "file string, rows long, size_bytes long, strangers long, strangers_bytes long, records long"
_COUNTS = ("rows", "size_bytes", UNRECOGNIZED, UNRECOGNIZED_BYTES, "records")
_REPORT_SCHEMA = pa.schema([("file", pa.string()), *((name, pa.int64()) for name in _COUNTS)])


def find_inventory(location: StoreLocation, namespace: str, now: datetime, max_age_hours: float) -> Inventory:
    """Return the newest report for a namespace (a URL). ``now`` is on the store's clock.

    Raises ``SafetyError`` when the report is older than ``max_age_hours``, or began after ``now``.
    """
    inventory = newest_inventory(open_store(location), namespace)
    age = now - inventory.began_at
    if not timedelta(0) <= age <= timedelta(hours=max_age_hours):
        raise SafetyError(
            f"The newest inventory report, {inventory.manifest}, began at {inventory.began_at.isoformat()}, "
            f"{human_duration(age.total_seconds())} ago. The limit is {human_duration(max_age_hours * 3600)}",
            remedy="Find out why the store writes no newer report, raise max_inventory_age_hours in [listing], or list "
            'the store itself with source = "store" in [listing]',
        )
    return inventory


def read_inventory(
    spark: SparkSession, location: StoreLocation, inventory: Inventory, namespace: str, folder: PartsFolder
) -> list[Report]:
    """Have the workers read and verify the files of a report, and write the objects that may be candidates.

    Returns the written files (columns of ``parts.PART``, and the counts of unrecognized names). Raises
    ``CorruptFileError`` for a file that differs from the manifest, or a wrong total number of records.
    """
    if inventory.files:
        numbers = local_rows(spark, [(number,) for number in range(len(inventory.files))], _NUMBER)
        tasks = numbers.repartition(len(inventory.files))
        reports = collect_in_arrow(tasks, _read_files(location, inventory, namespace, folder), _REPORT)
    else:
        reports = []
    records = sum(report["records"] for report in reports)
    if inventory.records is not None and records != inventory.records:
        raise CorruptFileError(
            inventory.manifest, f"its files have {records} records, but the manifest says {inventory.records}"
        )
    return [report for report in reports if report["file"] is not None]


@worker
def _read_files(
    batches: Batches, location: StoreLocation, inventory: Inventory, namespace: str, folder: PartsFolder
) -> Batches:
    records, unrecognized = 0, UnrecognizedNameCount()

    def objects() -> Batches:
        nonlocal records
        for batch in batches:
            for number in batch.column("number").to_pylist():
                file = inventory.files[number]
                for count, rows in read_inventory_file(worker_store(location), inventory, file, namespace):
                    records += count
                    listed = rows.filter(_listed(rows["address"]))
                    refuse_inner_namespaces(listed, namespace)
                    unrecognized.add(listed.filter(pc.invert(pc.match_substring(listed["address"], "/"))))
                    yield listed

    for report in write_parts(objects(), folder):
        rows = [row | unrecognized.take() | {"records": 0} for row in report.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, schema=_REPORT_SCHEMA)
    yield pa.RecordBatch.from_pylist([{"records": records}], schema=_REPORT_SCHEMA)


def _listed(addresses: pa.StringArray) -> pa.BooleanArray:
    """Select the objects that a listing shows: all of ``data/``, and possible objects of the old layout at the root."""
    return pc.or_(pc.starts_with(addresses, "data/"), are_candidate_addresses(addresses))
