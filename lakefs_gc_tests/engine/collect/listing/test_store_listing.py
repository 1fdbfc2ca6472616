"""A listing has every object that may be a candidate, from the store or from an inventory."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import ListingSettings
from lakefs_gc.engine.collect.listing.age_buckets import bytes_by_age
from lakefs_gc.engine.collect.listing.inventory_listing import find_inventory, read_inventory
from lakefs_gc.engine.collect.listing.listing_counts import FIRST_SLICE
from lakefs_gc.engine.collect.listing.listing_rounds import list_in_rounds
from lakefs_gc.engine.collect.listing.store_listing import store_listing
from lakefs_gc.engine.spark.compute import StartedSpark
from lakefs_gc.engine.spark.parts import PartsFolder
from lakefs_gc.engine.spark.session import start_spark
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import CorruptFileError, ObjectNotFoundError, SafetyError
from lakefs_gc.storage.listing.range_listing import ListingLimits
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.urls import bucket_folder
from lakefs_gc_tests.benchmarks.harness import in_fresh_process
from lakefs_gc_tests.benchmarks.simulated_keys import KeyShape, SimulatedKeys
from lakefs_gc_tests.benchmarks.simulated_store import SimulatedStore
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.inventory_report import BEGAN, EXPECTED, Report
from lakefs_gc_tests.support.lake import Lake, LakeRepository

LISTED = ["data/s1/a", "data/s1/b,signature", "data/s2/deep/er/c", "data/direct", "old-layout", "_lakefs.txt", "a b%20"]
UNRECOGNIZED = (3, 4 + 5 + 6)
"""The number of unrecognized names at the root, and their bytes: the size of each is its position in the list."""
YOUNG = "data/a0/young"
"""An object newer than the cutoff, in a slice that sorts before the others."""
NOT_LISTED = ["dummy", "other/x", "_lakefs/y", "_lakefs/retention/z", "database/x", "Data/x"]


def test_the_listing_has_data_at_any_depth_and_one_level_of_the_root(
    spark: SparkSession, repository: LakeRepository
) -> None:
    for number, key in enumerate([*LISTED, *NOT_LISTED]):
        repository.put_stray(key, b"x" * number, age_hours=24 * (10 + number))
    repository.put_stray(YOUNG, b"", age_hours=0)
    collector = Collector(spark, repository)
    collector.materialize("store_listing")
    rows = collector.dataset("store_listing").dataframe.collect()
    assert sorted(row["address"] for row in rows) == sorted([*LISTED, YOUNG])
    sizes = {key: number for number, key in enumerate(LISTED)} | {YOUNG: 0}
    assert {row["address"]: row["size"] for row in rows} == sizes
    info = repository.store.stat_many([*LISTED, YOUNG])
    for row in rows:
        listed_at = datetime.fromtimestamp(row["last_modified"].timestamp(), UTC)
        assert abs(listed_at - info[row["address"]].last_modified) < timedelta(microseconds=2)
    facts = collector.manifest("store_listing").facts
    assert facts["size_bytes"] == sum(range(len(LISTED)))
    ages = bytes_by_age(facts)
    assert ages["7 to 30 days"] == facts["size_bytes"]
    assert (facts["strangers"], facts["strangers_bytes"]) == UNRECOGNIZED
    assert sum(ages.values()) == facts["size_bytes"]
    assert facts[FIRST_SLICE] == "s1"  # as lakeFS's client: neither `direct`, nor the slice that is too new


def test_a_missing_store_is_an_error(spark: SparkSession, repository: LakeRepository) -> None:
    collector = Collector(spark, repository)
    run = collector.begin()
    shutil.rmtree(repository.folder)
    with pytest.raises(ObjectNotFoundError, match="does not exist"):
        store_listing(collector.context, run)


@pytest.mark.of_ci
def test_large_slices_and_a_flat_root_are_split_over_tasks() -> None:
    """Every key is listed once, in several rounds and tasks.

    Workers have the environment with which Spark was started, so Spark is started again.
    """
    in_fresh_process(list_simulated)


def list_simulated() -> None:
    shape = KeyShape(slices=7, objects_per_slice=1500, at_root=40_000, in_one_slice=60_000)
    limits = ListingLimits(requests_at_once=8, cut_after_pages=2, pages_per_range=8)
    with SimulatedStore(shape, latency_ms=3) as simulated, simulated.environment(), TemporaryDirectory() as folder:
        open_store(simulated.location).put("dummy", b"")
        open_store(simulated.location).put("_lakefs/x", b"")
        spark = start_spark({"spark.master": "local[2]", "spark.driver.memory": "1g"})
        place = PartsFolder(StoreLocation(f"file://{folder}"), "data/")
        written = list_in_rounds(StartedSpark(spark, 2), simulated.location, place, limits)
        files = [f"{folder}/data/{row['file']}" for row in written]
        found = [key for file in files for key in pq.read_table(file)["address"].to_pylist()]
        spark.stop()
    keys = SimulatedKeys(shape, "")
    assert sorted(found) == [keys.key(number).decode() for number in range(len(keys))]
    assert sum(row["rows"] for row in written) == len(keys)
    assert max(row["rows"] for row in written) < 60_000, "one task listed all of the large slice"


def test_the_listing_can_come_from_an_inventory(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    repository = lake.repository()
    began = utc_now() - timedelta(hours=5)
    report = Report(open_store(StoreLocation(f"file://{tmp_path}/reports/lake/daily")))
    keys = [*LISTED, *NOT_LISTED]
    report.write_s3_keys(repository.namespace, keys, began)
    listing = ListingSettings(source="inventory", inventory_url=report.store.location.url)
    collector = Collector(spark, repository, settings=lake.settings.model_copy(update={"listing": listing}))
    collector.materialize("store_listing")
    assert collector.addresses("store_listing") == set(LISTED)
    manifest = collector.manifest("store_listing")
    assert manifest.began_at == began.replace(microsecond=began.microsecond // 1000 * 1000)
    assert manifest.facts["source"] == "inventory"
    assert (manifest.facts["strangers"], manifest.facts["strangers_bytes"]) == UNRECOGNIZED
    assert sum(bytes_by_age(manifest.facts).values()) == manifest.facts["size_bytes"] == sum(range(len(LISTED)))
    collector.materialize("uncommitted")  # began after the listing

    inventory = find_inventory(report.store.location, repository.namespace, utc_now(), 24)
    place = collector.workspace.parts_folder(collector.run_key, "store_listing")
    with pytest.raises(
        CorruptFileError, match=f"its files have {len(keys)} records, but the manifest says {len(keys) + 1}"
    ):
        read_inventory(
            spark,
            report.store.location,
            replace(inventory, records=len(keys) + 1),
            repository.namespace,
            place,
        )

    old = listing.model_copy(update={"max_inventory_age_hours": 4.0})
    collector = Collector(spark, repository, settings=lake.settings.model_copy(update={"listing": old}))
    with pytest.raises(SafetyError, match=r"5 h ago. The limit is 4 h"):
        collector.output("store_listing")


@pytest.mark.parametrize("kind", ["azure", "gcs"])
def test_workers_read_a_report_where_its_vendor_writes_it(
    kind: str, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: StoreLocation = request.getfixturevalue(f"{kind}_namespace")
    for name, value in request.getfixturevalue({"azure": "azurite", "gcs": "fake_gcs"}[kind]).environment.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    report = Report(open_store(reports))
    report.root = bucket_folder(reports.url).root
    if kind == "azure":
        report.write_azure("parquet")
    else:
        report.write_gcs("csv")
    inventory = find_inventory(reports, report.namespace, BEGAN + timedelta(hours=1), 2)
    place = PartsFolder(StoreLocation(f"file://{tmp_path}"), "data/")
    written = read_inventory(spark, reports, inventory, report.namespace, place)
    addresses = [
        key for row in written for key in pq.read_table(f"{tmp_path}/data/{row['file']}")["address"].to_pylist()
    ]
    assert sorted(addresses) == sorted(str(row["address"]) for row in EXPECTED if "_lakefs" not in str(row["address"]))
    with pytest.raises(CorruptFileError, match="but the manifest says 1"):
        read_inventory(spark, reports, replace(inventory, records=1), report.namespace, place)
    for wrong in (BEGAN - timedelta(seconds=1), BEGAN + timedelta(hours=3)):  # from the future, and too old
        with pytest.raises(SafetyError, match="The limit is 2 h"):
            find_inventory(reports, report.namespace, wrong, 2)
