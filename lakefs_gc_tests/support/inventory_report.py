"""Inventory reports, written as each vendor writes them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.orc as orc
import pyarrow.parquet as pq

from lakefs_gc.storage.base import LISTING_SCHEMA, ObjectStore
from lakefs_gc.storage.listing.inventory import newest_inventory
from lakefs_gc.storage.listing.inventory_manifest import Inventory
from lakefs_gc.storage.listing.inventory_rows import read_inventory_file
from lakefs_gc.storage.urls import bucket_folder

S3_NAMESPACE = "s3://lake/team/repo"
AZURE_NAMESPACE = "https://acct.blob.core.windows.net/lake/team/repo"
GCS_NAMESPACE = "gs://lake/team/repo"
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
    """Return columns as S3 writes them. The last key also has an older version and a delete marker."""
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
    """An inventory folder that is written in a vendor's format, and can be damaged."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.namespace = S3_NAMESPACE
        """What the report that was written last is about."""
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

    def write_s3_keys(self, namespace: str, keys: list[str], began_at: datetime) -> None:
        """Write a Parquet report of keys below a namespace. The size of each object is its number."""
        self.namespace = namespace
        bucket, folder = (place := bucket_folder(namespace)).bucket, place.root
        count = len(keys)
        table = pa.table(
            {
                "bucket": [bucket] * count,
                "key": [folder + key for key in keys],
                "size": pa.array(range(count), pa.int64()),
                "last_modified_date": pa.array([MODIFIED] * count, pa.timestamp("ms", "UTC")),
            }
        )
        data = encoded(table, "parquet")
        self.store.put("data/x.parquet", data)
        manifest = {
            "sourceBucket": bucket,
            "creationTimestamp": str(int(began_at.timestamp() * 1000)),
            "fileFormat": "Parquet",
            "fileSchema": "message s3.inventory",
            "files": [{"key": f"{self.root}data/x.parquet", "size": len(data), "MD5checksum": md5(data)}],
        }
        self.put_manifest(f"{began_at:%Y-%m-%dT%H-%MZ}/manifest", manifest)

    def write_azure(
        self,
        file_format: str,
        *,
        rule: str = "rule",
        filters: dict[str, Any] | None = None,
        more: dict[str, Any] | None = None,
        endpoint: str = "https://acct.blob.core.windows.net",
        **changes: Any,
    ) -> None:
        """Write a report of blobs. The first key also has a snapshot, unless ``filters`` has no snapshots.

        ``more``: further columns, one value for each of ``KEYS`` and ``ELSEWHERE``, and for the snapshot.
        """
        self.namespace = AZURE_NAMESPACE
        names = [f"lake/{key}" for key in [*KEYS, *ELSEWHERE, KEYS[0]]]
        count = len(names)
        modified = pa.array([MODIFIED] * count, pa.timestamp("ms", "UTC"))
        columns: dict[str, Any] = {
            "Name": names,
            "Last-Modified": ["2026-06-01T12:00:00.123Z"] * count if file_format == "csv" else modified,
            "Content-Length": pa.array([*range(len(KEYS)), *[7] * (count - len(KEYS))], pa.int64()),
            "Snapshot": [*[""] * (count - 1), "2026-06-01T00:00:00.0000000Z"],
        }
        table = pa.table({name: values for name, values in {**columns, **(more or {})}.items() if values is not None})
        folder = f"2026/07/01/02-30-00/{rule}"
        data = encoded(table, file_format, header=True)
        self.store.put(f"{folder}/{rule}.{file_format}", data)
        filters = {"blobTypes": ["blockBlob"], "includeSnapshots": True, **(filters or {})}
        manifest: dict[str, Any] = {
            "destinationContainer": "reports",
            "endpoint": endpoint,
            "files": [{"blob": f"{self.root}{folder}/{rule}.{file_format}", "size": len(data)}],
            "inventoryStartTime": "2026-07-01T02:30:00Z",
            "inventoryCompletionTime": "2026-07-01T03:00:00Z",
            "ruleDefinition": {"filters": filters, "format": file_format, "objectType": "blob"},
            "ruleName": rule,
            "status": "Succeeded",
            "summary": {"objectCount": count, "totalObjectSize": 1},
            "version": "1.0",
        }
        self.put_manifest(f"{folder}/{rule}-manifest", manifest | changes)

    def write_gcs(
        self,
        file_format: str,
        *,
        header: bool = True,
        snake_case: bool = False,
        name: str = "conf",
        bucket: str = "lake",
        without: str = "",
        **changes: Any,
    ) -> None:
        """Write a report in two files. The last key also has a noncurrent version. ``without``: a missing field."""
        self.namespace = GCS_NAMESPACE
        keys = [*KEYS, *ELSEWHERE, KEYS[-1]]
        count = len(keys)
        deleted: list[datetime | None] = [*[None] * (count - 1), MODIFIED]
        modified: Any = pa.array([MODIFIED] * count, pa.timestamp("us", "UTC"))
        if file_format == "csv":
            modified = ["2026-06-01T12:00:00.123Z"] * count
        columns: dict[str, Any] = {
            "bucket": [bucket] * count,
            "name": keys,
            "size": pa.array(range(count), pa.int64()),
            "timeDeleted": pa.array(deleted, pa.timestamp("us", "UTC"))
            if file_format == "parquet"
            else ["" if time is None else time.isoformat() for time in deleted],
            "updated": modified,
        }
        columns.pop(without, None)
        table = pa.table(columns)
        names = []
        for number, part in enumerate((table.slice(0, 3), table.slice(3))):
            names.append(f"{name}_2026-07-01T02:30_{number}.{file_format}")
            self.store.put(names[-1], encoded(part, file_format, header=header))
        options = {"metadataFields": list(columns), "storageFilters": {"bucket": f"projects/_/buckets/{bucket}"}}
        config: dict[str, Any] = {"objectMetadataReportOptions": options}
        if file_format == "csv":
            config["csvOptions"] = {"delimiter": ",", "recordSeparator": "\n", "headerRequired": header}
        if snake_case:
            options = {"metadata_fields": list(columns), "storage_filters": {"bucket": bucket}}
            config = {"object_metadata_report_options": options}
            if file_format == "csv":
                config["csv_options"] = {"delimiter": ",", "record_separator": "\n", "header_required": header}
        manifest: dict[str, Any] = {
            "report_config": config,
            "records_processed": str(count),
            "snapshot_time": "2026-07-01T02:30:00Z",
            "shard_count": 2,
            "report_shards_file_names": names,
        }
        self.store.put(f"{name}_2026-07-01T02:30_manifest.json", json.dumps(manifest | changes).encode())

    def put_manifest(self, name: str, content: Any) -> None:
        data = json.dumps(content).encode()
        self.store.put(f"{name}.json", data)
        self.store.put(f"{name}.checksum", md5(data).encode() + b"\n")

    def inventory(self) -> Inventory:
        return newest_inventory(self.store, self.namespace)

    def rows(self) -> list[dict[str, Any]]:
        inventory = self.inventory()
        assert inventory.began_at == BEGAN
        batches, records = [], 0
        for file in inventory.files:
            for count, batch in read_inventory_file(self.store, inventory, file, self.namespace):
                records += count
                batches.append(batch)
        assert inventory.records in (None, records)
        rows: list[dict[str, Any]] = pa.Table.from_batches(batches, LISTING_SCHEMA).to_pylist()
        return sorted(rows, key=lambda row: row["size"])
