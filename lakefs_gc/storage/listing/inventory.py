"""Inventory reports as the source of a listing: a store's own report instead of one request per 1,000 keys.

There are three kinds, which differ in their manifests. The URL is the folder with the reports of one configuration:

=====  ===========================================================  ====================================================
kind   folder                                                       documents that this follows
=====  ===========================================================  ====================================================
s3     ``<destination prefix>/<source bucket>/<configuration>/``    Amazon S3 User Guide, "Locating your inventory
       with ``<time>/manifest.json`` and ``manifest.checksum``      list", "Amazon S3 Inventory list"
azure  the destination container, or a folder of it, with           Azure Blob Storage documents, "Azure Storage blob
       ``<year>/<month>/<day>/<time>/<rule>/``                      inventory", "Inventory run"
       ``<rule>-manifest.json`` and ``<rule>-manifest.checksum``
gcs    the destination folder, with                                 Google Cloud Storage documents, "Storage Insights
       ``<configuration>_<time>_manifest.json``                     inventory reports"
=====  ===========================================================  ====================================================

An inventory lists the past. Its age is counted from the time when the store *began* to write it: objects that were
stored later may be missing. It still lists objects that were deleted since; deleting them again does no harm.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from lakefs_gc.errors import CorruptFileError, ObjectNotFoundError, StorageError
from lakefs_gc.storage.base import ObjectStore

Kind = Literal["s3", "azure", "gcs"]
FileFormat = Literal["csv", "parquet", "orc"]

_MANIFEST = re.compile(
    r"(?P<s3>(?:.*/)?\d{4}-\d\d-\d\dT\d\d-\d\dZ/manifest\.json)"
    r"|(?P<azure>(?:.*/)?\d{4}/\d\d/\d\d/\d\d-\d\d-\d\d/(?P<rule>[^/]+)/(?P=rule)-manifest\.json)"
    r"|(?P<gcs>[^/]+_manifest\.json)"
)
_REMEDY = 'Wait for the next report, or list the store itself: set source = "store" in [listing]'
_MD5 = re.compile(r"[0-9a-f]{32}")


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
    ``records`` is the number of rows of all files together; None if the manifest does not have it.
    """

    kind: Kind
    manifest: str
    bucket: str
    began_at: datetime
    file_format: FileFormat
    columns: tuple[str, ...]
    files: tuple[InventoryFile, ...]
    records: int | None = None
    delimiter: str = ","


def newest_inventory(store: ObjectStore, namespace: str) -> Inventory:
    """Return the newest complete report in a folder, for the bucket (or container) of a namespace (a URL).

    A report is complete if it has its manifest and, if its kind has one, its checksum: stores write these last. Raise
    ``ObjectNotFoundError`` if no report is complete, ``CorruptFileError`` if the manifest is damaged or does not cover
    the namespace, and the errors of the store.
    """
    keys = {key for batch in store.list() for key in batch.column("address").to_pylist()}
    kinds: dict[str, Kind] = {}
    for key in keys:
        if match := _MANIFEST.fullmatch(key):
            kind: Kind = "s3" if match["s3"] else "azure" if match["azure"] else "gcs"
            if kind == "gcs" or _checksum_key(key) in keys:
                kinds[key] = kind
    if not kinds:
        raise ObjectNotFoundError(
            f"{store.location.folder_url} has no complete inventory report",
            remedy="Set inventory_url in [listing] to the folder of one inventory configuration. The first report can "
            "take two days",
        )
    reports = [_read_manifest(store, key, kind) for key, kind in _newest_of_each_kind(kinds).items()]
    inventory = max(reports, key=lambda report: report.began_at)
    bucket = bucket_and_path(namespace)[0]
    if inventory.bucket and inventory.bucket != bucket:
        raise CorruptFileError(
            inventory.manifest,
            f"the report is about the bucket {inventory.bucket!r}, and the namespace is in {bucket!r}",
            remedy="Set inventory_url in [listing] to the reports of the namespace's own bucket",
        )
    return inventory


def bucket_and_path(namespace: str) -> tuple[str, str]:
    """Return the bucket (or container) of a namespace, and the prefix of all its keys: empty, or ending in ``/``."""
    parts = urlsplit(namespace.rstrip("/"))
    below = parts.path.strip("/")
    if parts.scheme in ("http", "https"):  # https://account.blob.core.windows.net/container/prefix
        bucket, _, below = below.partition("/")
    else:
        bucket = parts.netloc
    return bucket, below + "/" if below else ""


def read_verified(store: ObjectStore, file: InventoryFile) -> bytes:
    """Return the content of a data file. Raise ``CorruptFileError`` if it differs from its manifest."""
    data = store.read(file.key)
    if file.size_bytes is not None and len(data) != file.size_bytes:
        raise CorruptFileError(
            file.key, f"the file has {len(data)} bytes, and its manifest says {file.size_bytes}", remedy=_REMEDY
        )
    if file.md5 and _md5(data) != file.md5:
        raise CorruptFileError(file.key, "the MD5 of the file differs from its manifest", remedy=_REMEDY)
    return data


def _newest_of_each_kind(kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    """Return the manifest with the latest time in its name, of each kind: only these are read."""
    newest: dict[Kind, str] = {}
    for key, kind in kinds.items():
        if kind not in newest or _time_in(key) > _time_in(newest[kind]):
            newest[kind] = key
    return {key: kind for kind, key in newest.items()}


def _time_in(key: str) -> str:
    """Return the digits of the time in a manifest's name; they sort in the order of the times."""
    times = re.findall(r"\d{4}[-/]\d\d[-/]\d\d[T/]\d\d[-:]\d\d(?:[-:]\d\d)?", key)
    return re.sub(r"\D", "", times[-1]) if times else ""


def _checksum_key(manifest_key: str) -> str:
    return manifest_key.removesuffix(".json") + ".checksum"


def _read_manifest(store: ObjectStore, key: str, kind: Kind) -> Inventory:
    data = store.read(key)
    if kind != "gcs":
        checksum = store.read(_checksum_key(key)).decode("ascii", "replace").strip().lower()
        if not _MD5.fullmatch(checksum) or _md5(data) != checksum:
            raise CorruptFileError(key, "the MD5 of the manifest differs from its checksum file", remedy=_REMEDY)
    read: dict[Kind, Callable[[ObjectStore, str, dict[str, Any]], Inventory]]
    read = {"s3": _s3_inventory, "azure": _azure_inventory, "gcs": _gcs_inventory}
    try:
        content = json.loads(data)
        inventory = read[kind](store, key, content)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise CorruptFileError(
            key, f"not a valid inventory manifest ({type(error).__name__}: {error})", remedy=_REMEDY
        ) from error
    names = [file.key for file in inventory.files]
    if len(set(names)) != len(names):
        raise CorruptFileError(key, "the manifest names a file twice", remedy=_REMEDY)
    return inventory


def _s3_inventory(store: ObjectStore, key: str, content: dict[str, Any]) -> Inventory:
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
        bucket=content["sourceBucket"],
        began_at=datetime.fromtimestamp(int(content["creationTimestamp"]) / 1000, UTC),
        file_format=file_format,
        columns=columns,
        files=tuple(files),
    )


def _azure_inventory(store: ObjectStore, key: str, content: dict[str, Any]) -> Inventory:
    if content["status"] != "Succeeded":
        raise StorageError(f"{key}: the inventory run ended with status {content['status']!r}", remedy=_REMEDY)
    rule = content["ruleDefinition"]
    if rule["objectType"] != "blob":
        raise ValueError(f"objectType {rule['objectType']!r}: not an inventory of blobs")
    file_format = rule["format"].lower()
    if file_format not in ("csv", "parquet"):
        raise ValueError(f"format {file_format!r}")
    filters = rule.get("filters") or {}
    if "blockBlob" not in filters.get("blobTypes", ["blockBlob"]):
        raise ValueError("the inventory rule excludes block blobs")
    for name in ("prefixMatch", "excludePrefix", "creationTime"):
        # Objects that a rule excludes would count as missing. A rule may name whole containers.
        if name == "prefixMatch" and all("/" not in prefix.strip("/") for prefix in filters.get(name) or []):
            continue
        if filters.get(name):
            raise ValueError(f"the inventory rule has {name}, so it may exclude a part of the namespace")
    return Inventory(
        kind="azure",
        manifest=key,
        bucket="",  # each row names its container
        began_at=_time(content["inventoryStartTime"]),
        file_format=file_format,
        columns=(),
        files=tuple(InventoryFile(_below_folder(store, file["blob"]), int(file["size"])) for file in content["files"]),
        records=int(content["summary"]["objectCount"]),
    )


def _gcs_inventory(store: ObjectStore, key: str, content: dict[str, Any]) -> Inventory:
    names = content["report_shards_file_names"]
    if int(content["shard_count"]) != len(names):
        raise ValueError(f"the report has {content['shard_count']} shards and names {len(names)}")
    config = content["report_config"]
    csv = config.get("csvOptions")
    if csv is not None and not csv.get("headerRequired"):
        columns = tuple(config["objectMetadataReportOptions"]["metadataFields"])
    else:
        columns = ()
    filters = config["objectMetadataReportOptions"].get("storageFilters") or {}
    return Inventory(
        kind="gcs",
        manifest=key,
        bucket=filters.get("bucket", "").rpartition("/")[2],
        began_at=_time(content["snapshot_time"]),
        file_format="parquet" if csv is None else "csv",
        columns=columns,
        files=tuple(InventoryFile(name.rpartition("/")[2]) for name in names),
        records=int(content["records_processed"]),
        delimiter=(csv or {}).get("delimiter") or ",",
    )


def _below_folder(store: ObjectStore, key: str) -> str:
    """Return a file's key relative to the inventory's folder; manifests have it relative to the bucket."""
    parts = [part for part in urlsplit(store.location.folder_url).path.split("/") if part]
    for begin in range(len(parts) + 1):
        folder = "/".join(parts[begin:])
        if not folder or key.startswith(folder + "/"):
            return key[len(folder) + 1 :] if folder else key
    raise AssertionError("unreachable")


def _snake_case(name: str) -> str:
    """Return ``LastModifiedDate`` as ORC and Parquet files write it: ``last_modified_date``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip()).lower()


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return time.astimezone(UTC)


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
