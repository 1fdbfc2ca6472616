"""Inventory reports of three vendors, in each format, whole and damaged."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from lakefs_gc.errors import CorruptFileError, LakeFSGCError, ObjectNotFoundError, StorageError
from lakefs_gc.storage.base import LISTING_SCHEMA, ObjectStore, StoreLocation
from lakefs_gc.storage.inventory import Inventory, newest_inventory
from lakefs_gc.storage.inventory_rows import read_inventory_file
from lakefs_gc.storage.open import open_store

NAMESPACE = "s3://lake/team/repo"
BEGAN = datetime(2026, 7, 1, 2, 30, tzinfo=UTC)
MODIFIED = datetime(2026, 6, 1, 12, 0, 0, 123000, tzinfo=UTC)

KEYS = ["team/repo/data/s/a b+%,é", 'team/repo/data/s/"quoted", b', "team/repo/old\nlayout", "team/repo/_lakefs/x"]
ELSEWHERE = ["team/repo2/data/x", "team/repo/data/marker/", "other"]
EXPECTED = [
    {"address": key.removeprefix("team/repo/"), "size": number, "last_modified": MODIFIED}
    for number, key in enumerate(KEYS)
]


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def encoded(table: pa.Table, file_format: str, *, header: bool = False) -> bytes:
    sink = io.BytesIO()
    if file_format == "parquet":
        pq.write_table(table, sink, row_group_size=2)
    elif file_format == "orc":
        orc.write_table(table, sink)
    else:
        options = arrow_csv.WriteOptions(include_header=header, quoting_style="all_valid")
        arrow_csv.write_csv(table, sink, options)
        return sink.getvalue()
    return sink.getvalue()


def s3_table(keys: list[str], file_format: str) -> pa.Table:
    """Columns as S3 writes them; the last key once more as an older version, and as a delete marker."""
    names = [*keys, keys[-1], "team/repo/data/deleted"]
    count = len(names)
    latest, marker = [*[True] * len(keys), False, True], [*[False] * (len(keys) + 1), True]
    sizes: list[int | None] = [*(KEYS.index(key) if key in KEYS else 7 for key in keys), 99, None]
    if file_format == "csv":
        columns: dict[str, Any] = {
            "Bucket": ["lake"] * count,
            "Key": [quote_plus(name, safe="/") for name in names],
            "VersionId": ["v"] * count,
            "IsLatest": [str(value).lower() for value in latest],
            "IsDeleteMarker": [str(value).lower() for value in marker],
            "Size": ["" if size is None else str(size) for size in sizes],
            "LastModifiedDate": ["2026-06-01T12:00:00.123Z"] * count,
        }
        return pa.table(columns)
    modified = pa.array([MODIFIED] * count, pa.timestamp("ms", None if file_format == "orc" else "UTC"))
    columns = {
        "bucket": ["lake"] * count,
        "key": names,
        "is_latest": latest,
        "is_delete_marker": marker,
        "size": pa.array(sizes, pa.int64()),
        "last_modified_date": modified,
        "e_tag": ["e"] * count,
    }
    return pa.table(columns)


class Report:
    """An inventory folder, to be written as a vendor does, and spoiled."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.root = "reports/lake/daily/"
        """From the destination bucket's root to this folder."""

    def write_s3(self, file_format: str, began_at: datetime = BEGAN, **changes: Any) -> None:
        files = []
        for number, keys in enumerate((KEYS[:2], [*KEYS[2:], *ELSEWHERE])):
            data = encoded(s3_table(keys, file_format), file_format)
            data = gzip.compress(data) if file_format == "csv" else data
            name = f"data/{began_at:%d}-{number}.{file_format}"
            self.store.put(name, data)
            files.append({"key": f"{self.root}{name}", "size": len(data), "MD5checksum": md5(data)})
        manifest: dict[str, Any] = {
            "sourceBucket": "lake",
            "destinationBucket": "arn:aws:s3:::reports",
            "version": "2016-11-30",
            "creationTimestamp": str(int(began_at.timestamp() * 1000)),
            "fileFormat": {"csv": "CSV", "orc": "ORC", "parquet": "Parquet"}[file_format],
            "fileSchema": "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate"
            if file_format == "csv"
            else "struct<bucket:string,key:string>",
            "files": files,
        }
        self.put_manifest(f"{began_at:%Y-%m-%dT%H-%MZ}/manifest", manifest | changes)

    def write_azure(self, file_format: str, **changes: Any) -> None:
        names = [f"lake/{key}" for key in [*KEYS, *ELSEWHERE, KEYS[0]]]
        count = len(names)
        modified = pa.array([MODIFIED] * count, pa.timestamp("ms", "UTC"))
        table = pa.table(
            {
                "Name": names,
                "Last-Modified": ["2026-06-01T12:00:00.123Z"] * count if file_format == "csv" else modified,
                "Content-Length": pa.array([*range(len(KEYS)), *[7] * (count - len(KEYS))], pa.int64()),
                "Snapshot": [*[""] * (count - 1), "2026-06-01T00:00:00.0000000Z"],
            }
        )
        folder = "2026/07/01/02-30-00/rule"
        data = encoded(table, file_format, header=True)
        self.store.put(f"{folder}/rule.{file_format}", data)
        rule = {"filters": {"blobTypes": ["blockBlob"]}, "format": file_format, "objectType": "blob"}
        manifest: dict[str, Any] = {
            "files": [{"blob": f"{folder}/rule.{file_format}", "size": len(data)}],
            "inventoryStartTime": "2026-07-01T02:30:00Z",
            "inventoryCompletionTime": "2026-07-01T03:00:00Z",
            "ruleDefinition": rule,
            "status": "Succeeded",
            "summary": {"objectCount": count, "totalObjectSize": 1},
            "version": "1.0",
        }
        self.put_manifest(f"{folder}/rule-manifest", manifest | changes)

    def write_gcs(self, file_format: str, *, header: bool = True, **changes: Any) -> None:
        keys = [*KEYS, *ELSEWHERE]
        modified = pa.array([MODIFIED] * len(keys), pa.timestamp("us", "UTC"))
        columns = {
            "bucket": ["lake"] * len(keys),
            "name": keys,
            "size": pa.array(range(len(keys)), pa.int64()),
            "updated": ["2026-06-01T12:00:00.123Z"] * len(keys) if file_format == "csv" else modified,
        }
        table = pa.table(columns)
        names = []
        for number, part in enumerate((table.slice(0, 3), table.slice(3))):
            names.append(f"conf_2026-07-01T02:30_{number}.{file_format}")
            self.store.put(names[-1], encoded(part, file_format, header=header))
        config: dict[str, Any] = {
            "objectMetadataReportOptions": {
                "metadataFields": list(columns),
                "storageFilters": {"bucket": "projects/_/buckets/lake"},
            }
        }
        if file_format == "csv":
            config["csvOptions"] = {"delimiter": ",", "recordSeparator": "\n", "headerRequired": header}
        manifest: dict[str, Any] = {
            "report_config": config,
            "records_processed": str(len(keys)),
            "snapshot_time": "2026-07-01T02:30:00Z",
            "shard_count": 2,
            "report_shards_file_names": names,
        }
        self.store.put("conf_2026-07-01T02:30_manifest.json", json.dumps(manifest | changes).encode())

    def put_manifest(self, name: str, content: Any) -> None:
        data = json.dumps(content).encode()
        self.store.put(f"{name}.json", data)
        self.store.put(f"{name}.checksum", md5(data).encode() + b"\n")

    def inventory(self) -> Inventory:
        return newest_inventory(self.store, NAMESPACE)

    def rows(self) -> list[dict[str, Any]]:
        inventory = self.inventory()
        assert inventory.began_at == BEGAN
        batches, records = [], 0
        for file in inventory.files:
            for count, batch in read_inventory_file(self.store, inventory, file, NAMESPACE):
                records += count
                batches.append(batch)
        assert inventory.records in (None, records)
        rows: list[dict[str, Any]] = pa.Table.from_batches(batches, LISTING_SCHEMA).to_pylist()
        return sorted(rows, key=lambda row: row["size"])


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
        (lambda report: report.write_s3("csv", files=[{"key": "x"}]), "no manifest of an inventory"),
        (lambda report: report.write_s3("csv", fileFormat="JSON"), "fileFormat 'json'"),
        (lambda report: report.write_azure("csv", status="Failed"), "ended as 'Failed'"),
        (
            lambda report: report.write_azure("csv", ruleDefinition={"format": "csv", "objectType": "container"}),
            "blobs",
        ),
        (
            lambda report: report.write_azure(
                "csv",
                ruleDefinition={"format": "csv", "objectType": "blob", "filters": {"prefixMatch": ["lake/team/x"]}},
            ),
            "leave out a part",
        ),
        (lambda report: report.write_gcs("csv", shard_count=3), "3 shards and names 2"),
        (lambda report: report.write_gcs("csv", snapshot_time="yesterday"), "no manifest of an inventory"),
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
    with pytest.raises(CorruptFileError, match="MD5 is not the one in its checksum file"):
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
