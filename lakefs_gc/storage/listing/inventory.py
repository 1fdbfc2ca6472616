"""Inventory reports as the source of a listing: a store's own report instead of one request per 1,000 keys.

There are three kinds, which differ in their manifests. The URL is the folder with the reports of one configuration, or
of several: the newest report that covers the namespace is used.

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

import re

from lakefs_gc.errors import CorruptFileError, ObjectNotFoundError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.listing.inventory_manifest import (
    REMEDY,
    Inventory,
    InventoryFile,
    Kind,
    checksum_key,
    md5_of,
    read_manifest,
)

_MANIFEST = re.compile(
    r"(?P<s3>(?:.*/)?)\d{4}-\d\d-\d\dT\d\d-\d\dZ/manifest\.json"
    r"|(?P<azure_folder>(?:.*/)?)\d{4}/\d\d/\d\d/\d\d-\d\d-\d\d/(?P<azure>[^/]+)/(?P=azure)-manifest\.json"
    r"|(?:.*/)?(?P<gcs>[^/]+)_\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?_manifest\.json"
)
_Configuration = tuple[Kind, str]


def newest_inventory(store: ObjectStore, namespace: str) -> Inventory:
    """Return the newest complete report in a folder that covers a namespace (a URL).

    A report is complete if it has its manifest and, if its kind has one, its checksum: stores write these last. Of each
    configuration only the newest report is read. Raise ``ObjectNotFoundError`` if no report is complete,
    ``CorruptFileError`` if each of them is damaged or does not cover the namespace, and the errors of the store.
    """
    keys = {key for batch in store.list() for key in batch.column("address").to_pylist()}
    newest: dict[_Configuration, str] = {}
    for key in keys:
        configuration = _configuration(key)
        if configuration is None or (configuration[0] != "gcs" and checksum_key(key) not in keys):
            continue
        newest[configuration] = max(key, newest.get(configuration, ""), key=_time_in)
    if not newest:
        raise ObjectNotFoundError(
            f"{store.location.folder_url} has no complete inventory report",
            remedy="Set inventory_url in [listing] to the folder of one inventory configuration. The first report can "
            "take two days",
        )
    unfit: dict[str, CorruptFileError] = {}
    fit: list[Inventory] = []
    for (kind, _), key in newest.items():
        try:
            fit.append(read_manifest(store, key, kind, namespace))
        except CorruptFileError as error:
            unfit[key] = error
    if not fit:
        raise unfit[max(unfit, key=_time_in)]
    return max(fit, key=lambda inventory: inventory.began_at)


def read_verified(store: ObjectStore, file: InventoryFile) -> bytes:
    """Return the content of a data file. Raise ``CorruptFileError`` if it differs from its manifest."""
    data = store.read(file.key)
    if file.size_bytes is not None and len(data) != file.size_bytes:
        raise CorruptFileError(
            file.key, f"the file has {len(data)} bytes, and its manifest says {file.size_bytes}", remedy=REMEDY
        )
    if file.md5 and md5_of(data) != file.md5:
        raise CorruptFileError(file.key, "the MD5 of the file differs from its manifest", remedy=REMEDY)
    return data


def _configuration(key: str) -> _Configuration | None:
    """Return the kind and the configuration of a manifest; None for any other file."""
    match = _MANIFEST.fullmatch(key)
    if match is None:
        return None
    if match["azure"] is not None:
        return "azure", match["azure_folder"] + match["azure"]
    return ("s3", match["s3"]) if match["gcs"] is None else ("gcs", match["gcs"])


def _time_in(key: str) -> tuple[str, str]:
    """Return the digits of the time in a manifest's name, which sort in the order of the times, and the name."""
    times = re.findall(r"\d{4}[-/]\d\d[-/]\d\d[T/]\d\d[-:]\d\d(?:[-:]\d\d)?", key)
    return re.sub(r"\D", "", times[-1]) if times else "", key
