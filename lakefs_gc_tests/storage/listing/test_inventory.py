"""Inventory reports of three vendors, in each format, whole and damaged."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakefs_gc.errors import CorruptFileError, LakeFSGCError, ObjectNotFoundError, StorageError
from lakefs_gc.storage.listing.inventory_rows import read_inventory_file
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.inventory_report import BEGAN, EXPECTED, Report, encoded


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return Report(open_store(StoreLocation(f"file://{tmp_path}/reports/lake/daily")))


WRITERS: dict[str, Callable[[Report], None]] = {
    **{f"s3-{name}": lambda report, name=name: report.write_s3(name) for name in ("csv", "parquet", "orc")},  # type: ignore[misc]
    **{f"azure-{name}": lambda report, name=name: report.write_azure(name) for name in ("csv", "parquet")},  # type: ignore[misc]
    **{f"gcs-{name}": lambda report, name=name: report.write_gcs(name) for name in ("csv", "parquet")},  # type: ignore[misc]
    "gcs-csv-without-header": lambda report: report.write_gcs("csv", header=False),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_each_kind_and_format(report: Report, kind: str) -> None:
    WRITERS[kind](report)
    assert report.rows() == EXPECTED


def test_in_a_bucket(s3_namespace: StoreLocation) -> None:
    report = Report(open_store(StoreLocation(f"{s3_namespace.url}/lake/daily")))
    report.root = f"{s3_namespace.url.split('/', 3)[3]}/lake/daily/"
    report.write_s3("parquet")
    assert report.rows() == EXPECTED


def test_the_newest_complete_report_counts(report: Report) -> None:
    report.write_s3("csv", BEGAN - timedelta(days=2))
    report.write_s3("parquet", BEGAN)
    report.write_s3("orc", BEGAN + timedelta(days=1))
    report.store.delete_many([f"{BEGAN + timedelta(days=1):%Y-%m-%dT%H-%MZ}/manifest.checksum"])
    assert report.inventory().file_format == "parquet"


def test_no_report(report: Report) -> None:
    report.store.put("data/x.csv.gz", b"")
    with pytest.raises(ObjectNotFoundError, match="no complete inventory"):
        report.inventory()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda report: report.write_s3("csv", sourceBucket="another"), "about the bucket 'another'"),
        (lambda report: report.write_s3("csv", files=[{"key": "x"}]), "not a valid inventory manifest"),
        (lambda report: report.write_s3("csv", fileFormat="JSON"), "fileFormat 'json'"),
        (lambda report: report.write_azure("csv", status="Failed"), "ended with status 'Failed'"),
        (
            lambda report: report.write_azure("csv", ruleDefinition={"format": "csv", "objectType": "container"}),
            "blobs",
        ),
        (
            lambda report: report.write_azure(
                "csv",
                ruleDefinition={"format": "csv", "objectType": "blob", "filters": {"prefixMatch": ["lake/team/x"]}},
            ),
            "may exclude a part",
        ),
        (lambda report: report.write_gcs("csv", shard_count=3), "3 shards and names 2"),
        (lambda report: report.write_gcs("csv", snapshot_time="yesterday"), "not a valid inventory manifest"),
    ],
)
def test_bad_manifests_are_refused(report: Report, spoil: Callable[[Report], None], message: str) -> None:
    spoil(report)
    with pytest.raises((CorruptFileError, StorageError), match=message):
        report.inventory()


def test_a_changed_manifest_is_refused(report: Report) -> None:
    report.write_s3("csv")
    name = f"{BEGAN:%Y-%m-%dT%H-%MZ}/manifest.json"
    report.store.put(name, report.store.read(name).replace(b"lake", b"like"))
    with pytest.raises(CorruptFileError, match="MD5 of the manifest differs from its checksum file"):
        report.inventory()


@pytest.mark.parametrize("kind", WRITERS)
def test_damaged_files_are_refused(report: Report, kind: str) -> None:
    WRITERS[kind](report)
    victim = report.inventory().files[-1].key
    data = report.store.read(victim)
    report.store.put(victim, data[: len(data) // 2])
    with pytest.raises((LakeFSGCError, AssertionError)):  # GCS says no size: there the count of records tells
        report.rows()
    if kind.startswith("s3"):
        report.store.put(victim, data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(CorruptFileError, match="MD5"):
            report.rows()


def test_fields_that_are_not_in_the_report(report: Report) -> None:
    report.write_gcs("parquet")
    name = report.inventory().files[0].key
    report.store.put(name, encoded(pq.read_table(io.BytesIO(report.store.read(name))).drop(["size"]), "parquet"))
    with pytest.raises(CorruptFileError, match="no column size"):
        report.rows()


def test_rows_of_another_bucket(report: Report) -> None:
    report.write_gcs("parquet", report_config={"objectMetadataReportOptions": {}})
    inventory = report.inventory()
    with pytest.raises(CorruptFileError, match="rows of the bucket"):
        list(read_inventory_file(report.store, inventory, inventory.files[0], "gs://another/team/repo"))
