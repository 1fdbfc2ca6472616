"""Manifests of inventory reports: which files a report has, and whether it covers a namespace.

See ``storage/listing/inventory.py`` for the kinds of reports.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from lakefs_gc.errors import CorruptFileError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.urls import BucketFolder, bucket_folder

Kind = Literal["s3", "azure", "gcs"]
FileFormat = Literal["csv", "parquet", "orc"]

REMEDY = 'Wait for the next report, or list the store itself: set source = "store" in [listing]'
_SCHEMES: dict[Kind, tuple[str, ...]] = {"s3": ("s3", "s3a", "s3n"), "azure": ("https", "http"), "gcs": ("gs",)}
_STORES: dict[Kind, str] = {"s3": "Amazon S3", "azure": "Azure Blob Storage", "gcs": "Google Cloud Storage"}
_MD5 = re.compile(r"[0-9a-f]{32}")
_AZURE_COLUMNS = {
    "includeSnapshots": ("Snapshot",),
    "includeBlobVersions": ("VersionId", "IsCurrentVersion"),
    "includeDeleted": ("Deleted",),
}
"""The columns that tell the rows that an option adds from current objects. Azure demands them with the option."""


@dataclass(frozen=True)
class InventoryFile:
    """A data file: its key in the inventory's folder, and its size and MD5 (hex) if the manifest has them."""

    key: str
    size_bytes: int | None = None
    md5: str = ""


@dataclass(frozen=True)
class Inventory:
    """A complete report; it pickles.

    ``columns`` are the columns of CSV files without a header, in order; empty if the files name their columns.
    ``needed`` are columns that each file must have, beside name, size and time: without them a row may be something
    else than a current object of the bucket. ``records`` is the number of rows of all files together; None if the
    manifest does not have it.
    """

    kind: Kind
    manifest: str
    began_at: datetime
    file_format: FileFormat
    columns: tuple[str, ...]
    files: tuple[InventoryFile, ...]
    needed: tuple[str, ...] = ()
    records: int | None = None
    delimiter: str = ","


def checksum_key(manifest_key: str) -> str:
    """Return the key of the file with the MD5 of a manifest; Google writes none."""
    return manifest_key.removesuffix(".json") + ".checksum"


def read_manifest(store: ObjectStore, key: str, kind: Kind, namespace: str) -> Inventory:
    """Return the report of a manifest. Raise ``CorruptFileError`` if it is damaged or does not cover ``namespace``."""
    data = store.read(key)
    if kind != "gcs":
        checksum = store.read(checksum_key(key)).decode("ascii", "replace").strip().lower()
        if not _MD5.fullmatch(checksum) or md5_of(data) != checksum:
            raise CorruptFileError(key, "the MD5 of the manifest differs from its checksum file", remedy=REMEDY)
    read: dict[Kind, Callable[[ObjectStore, str, dict[str, Any], BucketFolder], Inventory]]
    read = {"s3": _s3_inventory, "azure": _azure_inventory, "gcs": _gcs_inventory}
    try:
        _check_kind(key, kind, namespace)
        inventory = read[kind](store, key, json.loads(data), bucket_folder(namespace))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise CorruptFileError(
            key, f"not a valid inventory manifest ({type(error).__name__}: {error})", remedy=REMEDY
        ) from error
    names = [file.key for file in inventory.files]
    if len(set(names)) != len(names):
        raise CorruptFileError(key, "the manifest names a file twice", remedy=REMEDY)
    return inventory


def md5_of(data: bytes) -> str:
    """Return the MD5 of a file (hex)."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _s3_inventory(store: ObjectStore, key: str, content: dict[str, Any], namespace: BucketFolder) -> Inventory:
    _check_bucket(key, content["sourceBucket"], namespace)
    schema, file_format = content["fileSchema"], content["fileFormat"].lower()
    if file_format not in ("csv", "parquet", "orc"):
        raise ValueError(f"fileFormat {file_format!r}")
    files = [
        InventoryFile(_below_folder(store, file["key"]), int(file["size"]), file["MD5checksum"].lower())
        for file in content["files"]
    ]
    columns = tuple(_snake_case(name) for name in schema.split(",")) if file_format == "csv" else ()
    return Inventory(
        kind="s3",
        manifest=key,
        began_at=datetime.fromtimestamp(int(content["creationTimestamp"]) / 1000, UTC),
        file_format=file_format,
        columns=columns,
        files=tuple(files),
    )


def _azure_inventory(store: ObjectStore, key: str, content: dict[str, Any], namespace: BucketFolder) -> Inventory:
    if content["status"] != "Succeeded":
        raise CorruptFileError(key, f"the inventory run ended with status {content['status']!r}", remedy=REMEDY)
    account = (urlsplit(content["endpoint"]).hostname or "").partition(".")[0]
    if not account or account != namespace.account:
        # Each row names its container, and containers of different accounts may have the same name.
        raise CorruptFileError(
            key,
            f"the report is about the account {account!r}, and the namespace is in {namespace.account!r}",
            remedy="Set inventory_url in [listing] to the reports of the namespace's own account",
        )
    rule = content["ruleDefinition"]
    if rule["objectType"] != "blob":
        raise ValueError(f"objectType {rule['objectType']!r}: not an inventory of blobs")
    file_format = rule["format"].lower()
    if file_format not in ("csv", "parquet"):
        raise ValueError(f"format {file_format!r}")
    filters = rule.get("filters") or {}
    _check_azure_filters(filters, f"{namespace.bucket}/{namespace.root}")
    return Inventory(
        kind="azure",
        manifest=key,
        began_at=_time(content["inventoryStartTime"]),
        file_format=file_format,
        columns=(),
        files=tuple(InventoryFile(_below_folder(store, file["blob"]), int(file["size"])) for file in content["files"]),
        needed=tuple(column for option, columns in _AZURE_COLUMNS.items() if filters.get(option) for column in columns),
        records=int(content["summary"]["objectCount"]),
    )


def _check_azure_filters(filters: dict[str, Any], folder: str) -> None:
    """Raise ``ValueError`` for a rule that omits blobs of ``folder``: they would count as missing."""
    if "blockBlob" not in filters.get("blobTypes", ["blockBlob"]):
        raise ValueError("the inventory rule excludes block blobs")
    prefixes: Iterable[str] = filters.get("prefixMatch") or [""]
    if isinstance(prefixes, str):
        raise ValueError("prefixMatch is not a list")
    if not any(folder.startswith(prefix.lstrip("/")) for prefix in prefixes):
        raise ValueError(f"the inventory rule has prefixMatch, and none of its prefixes covers {folder}")
    for prefix in (excluded.lstrip("/") for excluded in filters.get("excludePrefix") or []):
        if folder.startswith(prefix) or prefix.startswith(folder):
            raise ValueError(f"the inventory rule has excludePrefix, which excludes a part of {folder}")
    if filters.get("creationTime"):
        raise ValueError("the inventory rule has creationTime, so it excludes older blobs")


def _gcs_inventory(store: ObjectStore, key: str, content: dict[str, Any], namespace: BucketFolder) -> Inventory:
    names = content["report_shards_file_names"]
    if int(content["shard_count"]) != len(names):
        raise ValueError(f"the report has {content['shard_count']} shards and names {len(names)}")
    config = _with_snake_case(content["report_config"])
    options = config["object_metadata_report_options"]
    bucket = (options.get("storage_filters") or {}).get("bucket", "").rpartition("/")[2]
    if bucket:
        _check_bucket(key, bucket, namespace)
    csv = config.get("csv_options")
    has_header = csv is None or csv.get("header_required")
    folder = key.rpartition("/")[0]
    return Inventory(
        kind="gcs",
        manifest=key,
        began_at=_time(content["snapshot_time"]),
        file_format="parquet" if csv is None else "csv",
        columns=() if has_header else tuple(options["metadata_fields"]),
        files=tuple(InventoryFile(f"{folder}/{name.rpartition('/')[2]}".lstrip("/")) for name in names),
        # A report has the noncurrent versions of a bucket that keeps them, and only the first field tells which.
        needed=("timeDeleted",) if bucket else ("timeDeleted", "bucket"),
        records=int(content["records_processed"]),
        delimiter=(csv or {}).get("delimiter") or ",",
    )


def _check_kind(key: str, kind: Kind, namespace: str) -> None:
    scheme = urlsplit(namespace).scheme.lower()
    # A local folder is in no store that writes reports.
    if scheme not in _SCHEMES[kind] and any(scheme in schemes for schemes in _SCHEMES.values()):
        # Buckets of different stores may have the same name.
        raise CorruptFileError(
            key,
            f"the report is one of {_STORES[kind]}, and the namespace begins with {scheme}://",
            remedy="Set inventory_url in [listing] to the reports of the namespace's own store",
        )


def _check_bucket(key: str, bucket: str, namespace: BucketFolder) -> None:
    if bucket != namespace.bucket:
        raise CorruptFileError(
            key,
            f"the report is about the bucket {bucket!r}, and the namespace is in {namespace.bucket!r}",
            remedy="Set inventory_url in [listing] to the reports of the namespace's own bucket",
        )


def _below_folder(store: ObjectStore, key: str) -> str:
    """Return a file's key relative to the inventory's folder; manifests have it relative to the bucket.

    Reports that were copied elsewhere are in a folder whose path ends as the original one does.
    """
    root = bucket_folder(store.location.url).root
    if key.startswith(root):
        return key[len(root) :]
    parts = root.split("/")[:-1]
    for begin in range(1, len(parts)):
        folder = "/".join(parts[begin:]) + "/"
        if key.startswith(folder):
            return key[len(folder) :]
    return key


def _with_snake_case(content: Any) -> Any:
    """Return a JSON value with the names of its fields as ``snake_case``: Google writes them in two ways."""
    if isinstance(content, dict):
        return {_snake_case(name): _with_snake_case(value) for name, value in content.items()}
    return content


def _snake_case(name: str) -> str:
    """Return ``LastModifiedDate`` as ORC and Parquet files write it: ``last_modified_date``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip()).lower()


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return time.astimezone(UTC)
