"""Inventory reports of three vendors, in each format, whole and damaged."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from azure.storage.blob import BlobServiceClient

from lakefs_gc.config.listing import ListingSettings
from lakefs_gc.errors import CorruptFileError, LakeFSGCError, ObjectNotFoundError
from lakefs_gc.sandbox.azurite import ACCOUNT, Azurite
from lakefs_gc.storage.azure.access import blob_folder
from lakefs_gc.storage.azure.store import AzureStore
from lakefs_gc.storage.listing.inventory import newest_inventory
from lakefs_gc.storage.listing.inventory_rows import read_inventory_file
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.urls import BucketFolder, bucket_folder
from lakefs_gc_tests.support.inventory_report import BEGAN, ELSEWHERE, EXPECTED, KEYS, Report, encoded


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return Report(open_store(StoreLocation(f"file://{tmp_path}/reports/lake/daily")))


WRITERS: dict[str, Callable[[Report], None]] = {
    **{f"s3-{name}": lambda report, name=name: report.write_s3(name) for name in ("csv", "parquet", "orc")},  # type: ignore[misc]
    **{f"azure-{name}": lambda report, name=name: report.write_azure(name) for name in ("csv", "parquet")},  # type: ignore[misc]
    **{f"gcs-{name}": lambda report, name=name: report.write_gcs(name) for name in ("csv", "parquet")},  # type: ignore[misc]
    "gcs-csv-without-header": lambda report: report.write_gcs("csv", header=False),
    "gcs-csv-in-snake-case": lambda report: report.write_gcs("csv", header=False, snake_case=True),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_each_kind_and_format(report: Report, kind: str) -> None:
    WRITERS[kind](report)
    assert report.rows() == EXPECTED


@pytest.mark.parametrize("kind", ["s3-parquet", "azure-csv", "azure-parquet", "gcs-csv", "gcs-parquet"])
@pytest.mark.parametrize("place", ["s3_namespace", "azure_namespace", "gcs_namespace"])
def test_where_the_reports_are(place: str, kind: str, request: pytest.FixtureRequest) -> None:
    """Each vendor writes its reports into a bucket or container of its own, but they may be copied to another."""
    location: StoreLocation = request.getfixturevalue(place)
    folder = f"{bucket_folder(location.url).root}reports of lake/"
    report = Report(open_store(StoreLocation(f"{location.url}/reports of lake")))
    report.root = folder
    WRITERS[kind](report)
    assert report.rows() == EXPECTED


@pytest.mark.parametrize("kind", ["azure-csv", "azure-parquet"])
def test_reports_that_hadoop_s_url_names(azurite: Azurite, azure_namespace: StoreLocation, kind: str) -> None:
    """The setting takes the spelling of Spark and Databricks, and the report may name the other host of the account."""
    place = blob_folder(azure_namespace.url)
    folder = f"{place.root}reports+of 100%41/"
    written = Report(AzureStore(StoreLocation(f"{azure_namespace.url}/{quote('reports+of 100%41')}")))
    written.root = folder
    written.write_azure(kind.removeprefix("azure-"), endpoint="https://acct.dfs.core.windows.net")
    url = f"abfss://{place.container}@{ACCOUNT}.dfs.core.windows.net/{folder}"
    listing = ListingSettings(source="inventory", inventory_url=url)
    report = Report(open_store(StoreLocation(listing.inventory_url)))
    report.namespace = written.namespace
    assert report.rows() == EXPECTED


def test_a_whole_container(azurite: Azurite, azure_namespace: StoreLocation) -> None:
    """Azure's reports begin at the root of their container, which has those of all rules."""
    key = {"account_name": ACCOUNT, "account_key": azurite.key}
    BlobServiceClient(azurite.endpoint, key).create_container(name := f"reports-{uuid.uuid4().hex}")
    report = Report(open_store(StoreLocation(azurite.url(name))))
    report.root = ""
    report.write_azure("csv", rule="a", filters={"prefixMatch": ["another"]}, files=[])
    report.write_azure("parquet", rule="b")
    report.write_azure("csv", rule="c", ruleDefinition={"format": "csv", "objectType": "container"})
    assert report.rows() == EXPECTED
    assert azure_namespace.url.startswith("https://")


def test_reports_of_several_buckets_in_one_folder(report: Report) -> None:
    report.write_gcs("csv", name="another", bucket="another")
    with pytest.raises(CorruptFileError, match="about the bucket 'another'"):
        report.inventory()
    report.write_gcs("parquet", name="conf")
    report.write_gcs("csv", name="third", bucket="third")
    assert report.rows() == EXPECTED


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        ("s3://lake/team/repo/", ("", "lake", "team/repo/")),
        ("s3://lake", ("", "lake", "")),
        ("s3://lake/a%20b?c#d", ("", "lake", "a%20b?c#d/")),
        ("https://Acct.blob.core.windows.net/lake/a%20b/", ("acct", "lake", "a b/")),
        ("https://acct-secondary.blob.core.windows.net//lake", ("acct", "lake", "")),
        ("https://acct.blob.core.windows.net/lake/100%25", ("acct", "lake", "100%/")),
        ("gs://lake/a%20b", ("", "lake", "a b/")),
        ("gs://lake/a%2Fb%20c", ("", "lake", "a%2Fb%20c/")),
    ],
)
def test_the_folder_of_a_namespace(namespace: str, expected: tuple[str, str, str]) -> None:
    """As its store and lakeFS read it: a report has names that are decoded."""
    assert bucket_folder(namespace) == BucketFolder(*expected)


@pytest.mark.parametrize("kind", ["azure-csv", "gcs-parquet"])
def test_a_namespace_that_is_percent_encoded(report: Report, kind: str) -> None:
    WRITERS[kind](report)
    report.namespace = report.namespace.replace("team", "%74eam")
    if kind.startswith("azure"):
        assert report.rows() == EXPECTED
    else:  # Go does not write a letter so, so lakeFS keeps this
        assert report.rows() == []


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
        (lambda report: report.write_azure("csv", endpoint="https://other.blob.core.windows.net"), "account 'other'"),
        (lambda report: report.write_azure("csv", endpoint=""), "account ''"),
        (lambda report: report.write_azure("csv", status="Pending"), "ended with status 'Pending'"),
        (lambda report: report.write_azure("csv", filters={"prefixMatch": ["lake/team/x", "lake2"]}), "none of its"),
        (lambda report: report.write_azure("csv", filters={"excludePrefix": ["x", "lake/team/repo/d"]}), "a part of"),
        (lambda report: report.write_azure("csv", filters={"excludePrefix": ["la"]}), "excludes a part of"),
        (lambda report: report.write_azure("csv", filters={"creationTime": {"lastNDays": 3}}), "excludes older blobs"),
        (lambda report: report.write_azure("csv", filters={"blobTypes": ["pageBlob"]}), "excludes block blobs"),
        (lambda report: report.write_gcs("csv", bucket="another"), "about the bucket 'another'"),
        (lambda report: report.write_s3("csv", sourceBucket=""), "about the bucket ''"),
        (lambda report: report.write_gcs("csv", shard_count=3), "3 shards and names 2"),
        (lambda report: report.write_gcs("csv", snapshot_time="yesterday"), "not a valid inventory manifest"),
    ],
)
def test_bad_manifests_are_refused(report: Report, spoil: Callable[[Report], None], message: str) -> None:
    spoil(report)
    with pytest.raises(CorruptFileError, match=message):
        report.inventory()


@pytest.mark.parametrize(
    "filters", [{"prefixMatch": ["x", "lake/te"]}, {"prefixMatch": [""], "excludePrefix": ["lak2"]}]
)
def test_a_rule_of_azure_that_covers_the_namespace(report: Report, filters: dict[str, list[str]]) -> None:
    report.write_azure("csv", filters=filters)
    assert report.rows() == EXPECTED


@pytest.mark.parametrize("kind", ["azure", "gcs"])
def test_a_report_of_another_kind_of_store(report: Report, kind: str) -> None:
    WRITERS[f"{kind}-csv"](report)
    report.namespace = "s3://lac/team/repo"
    with pytest.raises(CorruptFileError, match=r"the report is (about|one of)"):
        report.inventory()


def test_azure_versions(report: Report) -> None:
    """A version is not current unless Azure says so; a blob without versions is the object itself."""
    count = len(KEYS) + len(ELSEWHERE) + 1
    current = ["true", "True", "", "", *["false"] * (count - 4)]
    versions = ["v1", "v2", "v3", "", *["v4"] * (count - 4)]
    report.write_azure(
        "csv", filters={"includeBlobVersions": True}, more={"VersionId": versions, "IsCurrentVersion": current}
    )
    assert report.rows() == [EXPECTED[0], EXPECTED[1], EXPECTED[3]]


def test_azure_deleted_blobs(report: Report) -> None:
    deleted = ["true", *[""] * (len(KEYS) + len(ELSEWHERE))]
    report.write_azure("csv", filters={"includeDeleted": True}, more={"Deleted": deleted})
    assert report.rows() == EXPECTED[1:]


@pytest.mark.parametrize(
    ("write", "column"),
    [
        (lambda report: report.write_azure("csv", filters={"includeDeleted": True}), "Deleted"),
        (lambda report: report.write_azure("parquet", filters={"includeBlobVersions": True}), "VersionId"),
        (lambda report: report.write_azure("parquet", more={"VersionId": ["v"] * 8}), "IsCurrentVersion"),
        (lambda report: report.write_azure("parquet", more={"Snapshot": None}), "Snapshot"),
        (lambda report: report.write_azure("csv", more={"Last-Modified": None}), "Last-Modified"),
        (lambda report: report.write_gcs("parquet", without="timeDeleted"), "timeDeleted"),
        (lambda report: report.write_gcs("csv", header=False, without="updated"), "updated"),
    ],
)
def test_columns_without_which_a_row_may_be_something_else(
    report: Report, write: Callable[[Report], None], column: str
) -> None:
    write(report)
    with pytest.raises(CorruptFileError, match=f"no column {column}"):
        report.rows()


def test_a_report_that_names_no_bucket_must_do_so_in_each_row(report: Report) -> None:
    options: dict[str, Any] = {"objectMetadataReportOptions": {}}
    report.write_gcs("parquet", report_config=options)
    assert report.rows() == EXPECTED
    report.write_gcs("parquet", report_config=options, without="bucket")
    with pytest.raises(CorruptFileError, match="no column bucket"):
        report.rows()


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


@pytest.mark.parametrize("kind", ["s3-csv", "azure-csv", "gcs-csv"])
def test_a_report_of_another_kind_of_store_is_refused(report: Report, kind: str) -> None:
    """Buckets of different stores may have the same name."""
    WRITERS[kind](report)
    namespaces = {
        "s3": "s3://lake/repo",
        "azure": "https://lake.blob.core.windows.net/lake/repo",
        "gcs": "gs://lake/repo",
    }
    for store, namespace in namespaces.items():
        if not kind.startswith(store):
            with pytest.raises(CorruptFileError, match="and the namespace begins with"):
                newest_inventory(report.store, namespace)
