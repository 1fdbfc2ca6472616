"""An inventory report as the listing of a run."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row, SparkSession

from lakefs_gc.engine.collect.listing.root_names import UNRECOGNIZED, UNRECOGNIZED_BYTES, UnrecognizedNameCount
from lakefs_gc.engine.spark.parts import PartsFolder, write_parts
from lakefs_gc.engine.spark.workers import Batches, driver_errors, worker, worker_store
from lakefs_gc.errors import CorruptFileError, SafetyError
from lakefs_gc.formats.addresses import are_candidate_addresses
from lakefs_gc.storage.listing.inventory import Inventory, newest_inventory
from lakefs_gc.storage.listing.inventory_rows import read_inventory_file
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

_NUMBER = pa.schema([("number", pa.int64())])
_REPORT = "file string, rows long, size_bytes long, strangers long, strangers_bytes long, records long"
_COUNTS = ("rows", "size_bytes", UNRECOGNIZED, UNRECOGNIZED_BYTES, "records")
_REPORT_SCHEMA = pa.schema([("file", pa.string()), *((name, pa.int64()) for name in _COUNTS)])


def find_inventory(location: StoreLocation, namespace: str, now: datetime, max_age_hours: float) -> Inventory:
    """The newest report for a namespace (a URL), at most so old at ``now``, which is on the store's clock.

    Raises ``SafetyError`` when it is older, or not yet begun.
    """
    inventory = newest_inventory(open_store(location), namespace)
    age = now - inventory.began_at
    if not timedelta(0) <= age <= timedelta(hours=max_age_hours):
        raise SafetyError(
            f"the newest inventory report, {inventory.manifest}, was begun at {inventory.began_at.isoformat()}: "
            f"{age.total_seconds() / 3600:.1f} h ago, and at most {max_age_hours:g} h are allowed",
            remedy="see why the store writes no newer one, raise max_inventory_age_hours in [listing], or list the "
            'store itself: source = "store"',
        )
    return inventory


def read_inventory(
    spark: SparkSession, location: StoreLocation, inventory: Inventory, namespace: str, place: PartsFolder
) -> list[Row]:
    """Have the workers read the files of a report, each whole and verified, and write what may be a candidate.

    Returns the written files (columns of ``parts.PART``, and the strangers in it).  Raises ``CorruptFileError`` for a
    file that is not as the manifest says, or when the files together have not as many records as it says.
    """
    if inventory.files:
        numbers = spark.createDataFrame(pa.table({"number": range(len(inventory.files))}, schema=_NUMBER))
        tasks = numbers.repartition(len(inventory.files))
        with driver_errors():
            reports = tasks.mapInArrow(_read_files(location, inventory, namespace, place), _REPORT).collect()
    else:
        reports = []
    records = sum(report["records"] for report in reports)
    if inventory.records is not None and records != inventory.records:
        raise CorruptFileError(inventory.manifest, f"it says {inventory.records} records, and its files have {records}")
    return [report for report in reports if report["file"] is not None]


@worker
def _read_files(
    batches: Batches, location: StoreLocation, inventory: Inventory, namespace: str, place: PartsFolder
) -> Batches:
    records, strangers = 0, UnrecognizedNameCount()

    def objects() -> Batches:
        nonlocal records
        for batch in batches:
            for number in batch.column("number").to_pylist():
                file = inventory.files[number]
                for count, found in read_inventory_file(worker_store(location), inventory, file, namespace):
                    records += count
                    listed = found.filter(_listed(found["address"]))
                    strangers.add(listed.filter(pc.invert(pc.match_substring(listed["address"], "/"))))
                    yield listed

    for report in write_parts(objects(), place):
        rows = [row | strangers.take() | {"records": 0} for row in report.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, schema=_REPORT_SCHEMA)
    yield pa.RecordBatch.from_pylist([{"records": records}], schema=_REPORT_SCHEMA)


def _listed(addresses: pa.StringArray) -> pa.BooleanArray:
    """What a listing would show: all of ``data/``, and what may be an object of the old layout at the root."""
    return pc.or_(pc.starts_with(addresses, "data/"), are_candidate_addresses(addresses))
