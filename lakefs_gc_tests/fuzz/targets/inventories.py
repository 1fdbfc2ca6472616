"""Inventory reports of S3, Azure and Google Cloud Storage."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakefs_gc.errors import (
    NamespaceError,
)
from lakefs_gc.storage.listing.inventory import newest_inventory
from lakefs_gc.storage.listing.inventory_manifest import FileFormat, Inventory, InventoryFile
from lakefs_gc.storage.listing.inventory_rows import read_inventory_file
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.fuzz.targets.target import MOMENT, SCRATCH, Finding, Target, listed


def _inventory_rows(file_format: FileFormat) -> Callable[[bytes], Any]:
    """Read data files with the manifest of S3 and correct checksums."""

    def read(data: bytes) -> Any:
        store = open_store(StoreLocation(f"file://{SCRATCH.name}"))
        (Path(SCRATCH.name) / "rows").write_bytes(data)
        file = InventoryFile("rows", len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())
        columns = ("bucket", "key", "size", "last_modified_date") if file_format == "csv" else ()
        inventory = Inventory("s3", "m", MOMENT, file_format, columns, (file,))
        batches = [batch for _, batch in read_inventory_file(store, inventory, file, "s3://bucket/ns")]
        for batch in batches:
            batch.validate(full=True)
        return [listed(batch) for batch in batches]

    return read


def _inventory_table() -> pa.Table:
    keys = ["ns/data/s/a", "ns/data/s/b", "elsewhere", "ns/marker/"]
    sizes, times = pa.array([1, 2, 3, 4], pa.int64()), pa.array([MOMENT] * 4, pa.timestamp("ms", "UTC"))
    return pa.table({"bucket": ["bucket"] * 4, "key": keys, "size": sizes, "last_modified_date": times})


def _inventory_csv() -> bytes:
    return b"".join(
        b'"bucket","%s","%d","2026-01-02T03:04:05.678Z"\n' % (key.encode(), size)
        for key, size in (("ns/data/s/a%2Cb", 1), ("ns/data/s/a+b", 2), ("else", 3))
    )


def _inventory_parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(_inventory_table(), sink)
    return sink.getvalue()


def _inventory_manifest(name: str, namespace: str) -> Callable[[bytes], Any]:
    """Read a manifest, with a correct checksum, of a namespace."""

    def read(data: bytes) -> Any:
        manifest = Path(SCRATCH.name) / namespace.partition(":")[0] / "reports" / name
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_bytes(data)
        checksum = hashlib.md5(data, usedforsecurity=False).hexdigest()
        manifest.with_suffix(".checksum").write_text(checksum)
        store = open_store(StoreLocation(f"file://{str(manifest).removesuffix(f'/{name}')}"))
        inventory = newest_inventory(store, namespace)
        for file in inventory.files:
            if file.key.startswith("/") or ".." in file.key.split("/"):
                try:
                    store.read(file.key)
                except NamespaceError:
                    continue
                raise Finding(f"a file outside of the folder was read: {file.key!r}")
        return inventory

    return read


_INVENTORY_MANIFEST: dict[str, Any] = {
    "sourceBucket": "bucket",
    "destinationBucket": "arn:aws:s3:::reports",
    "version": "2016-11-30",
    "creationTimestamp": "1767323045000",
    "fileFormat": "CSV",
    "fileSchema": "Bucket, Key, Size, LastModifiedDate",
    "files": [{"key": "reports/data/x.csv.gz", "size": 10, "MD5checksum": "0" * 32}],
}
_AZURE_MANIFEST: dict[str, Any] = {
    "endpoint": "https://acct.blob.core.windows.net",
    "files": [{"blob": "2026/01/02/03-04-05/r/r.csv", "size": 10}],
    "inventoryStartTime": "2026-01-02T03:04:05Z",
    "ruleDefinition": {
        "filters": {"blobTypes": ["blockBlob"], "includeSnapshots": True, "prefixMatch": ["c"], "excludePrefix": ["x"]},
        "format": "csv",
        "objectType": "blob",
    },
    "status": "Succeeded",
    "summary": {"objectCount": 3},
}
_GCS_MANIFEST: dict[str, Any] = {
    "report_config": {
        "csv_options": {"delimiter": ",", "header_required": False},
        "objectMetadataReportOptions": {
            "metadataFields": ["bucket", "name", "size", "updated", "timeDeleted"],
            "storageFilters": {"bucket": "bucket"},
        },
    },
    "records_processed": "3",
    "snapshot_time": "2026-01-02T03:04:05Z",
    "shard_count": 1,
    "report_shards_file_names": ["r_2026-01-02T03:04_0.csv"],
}


TARGETS = (
    Target("inventory_csv", _inventory_rows("csv"), lambda: [_inventory_csv(), gzip.compress(_inventory_csv())]),
    Target("inventory_parquet", _inventory_rows("parquet"), lambda: [_inventory_parquet()]),
    Target(
        "inventory_manifest",
        _inventory_manifest("2026-01-02T03-04Z/manifest.json", "s3://bucket/ns"),
        lambda: [json.dumps(_INVENTORY_MANIFEST).encode()],
    ),
    Target(
        "inventory_manifest_azure",
        _inventory_manifest("2026/01/02/03-04-05/r/r-manifest.json", "https://acct.blob.core.windows.net/container/ns"),
        lambda: [json.dumps(_AZURE_MANIFEST).encode()],
    ),
    Target(
        "inventory_manifest_gcs",
        _inventory_manifest("r_2026-01-02T03:04_manifest.json", "gs://bucket/ns"),
        lambda: [json.dumps(_GCS_MANIFEST).encode()],
    ),
)
