"""The versions, snapshots and soft-deleted copies of an account, also after it stopped to keep new ones.

Source: Microsoft Learn, "List Blobs" (``include``) and "Blob versioning": versions stay when that is disabled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from xml.etree import ElementTree

from lakefs_gc.errors import StorageError
from lakefs_gc.storage.azure.client import AzureClient
from lakefs_gc.storage.azure.errors import IncompleteAnswerError
from lakefs_gc.storage.azure.listing import name_of, parsed, sections, stated_prefix
from lakefs_gc.storage.concurrency import map_unordered

_LISTINGS_AT_ONCE = 16


def count_versions(azure: AzureClient, names: Sequence[str], others: Iterable[str]) -> dict[str, int]:
    """Return how many copies of each name are listed beside the current blob. One listing for each name.

    The current blob is listed, too, so lists without any prove nothing. If that of each name is empty, the first of
    ``others``, which exist, must be listed.
    """
    exist = {name for name, head in map_unordered(azure.head_or_none, names, _LISTINGS_AT_ONCE) if head is not None}
    listed = dict(map_unordered(lambda name: list(_blobs(azure, name)), names, _LISTINGS_AT_ONCE))
    not_listed = [name for name, blobs in listed.items() if name in exist and not blobs]
    if not any(listed.values()):
        not_listed += [name for name in islice(others, 1) if next(_blobs(azure, name), None) is None]
    if not_listed:
        raise StorageError(
            f"{azure.where(not_listed[0])}: the blob exists, and the store does not list it among its versions, so a "
            "list without one shows nothing",
            remedy="Check whether a proxy in front of the store changes its answers, then run again",
        )
    return {name: sum(not _is_current(blob) for blob in blobs) for name, blobs in listed.items()}


def _is_current(blob: ElementTree.Element) -> bool:
    if blob.find("Snapshot") is not None or blob.findtext("Deleted", "").lower() == "true":
        return False
    return blob.find("VersionId") is None or blob.findtext("IsCurrentVersion", "").lower() == "true"


def _blobs(azure: AzureClient, name: str) -> Iterator[ElementTree.Element]:
    query = {"restype": "container", "comp": "list", "prefix": name, "include": "snapshots,versions,deleted"}
    seen: set[str] = set()
    while True:
        found, marker = azure.call(lambda: _page(azure, query), action="list", key=name)
        yield from found
        if not marker:
            return
        if marker in seen:
            raise StorageError(
                f"{azure.where(name)}: the store's listing of versions repeats a marker, so it never ends",
                remedy="Report it to the vendor of the store",
            )
        seen.add(marker)
        query["marker"] = marker


def _page(azure: AzureClient, query: dict[str, str]) -> tuple[list[ElementTree.Element], str]:
    body, name = azure.send("GET", query=query).body, query["prefix"]
    section, marker = sections(parsed(body))
    if stated_prefix(body) not in (None, name):
        raise IncompleteAnswerError("the listing of versions is one of another prefix")
    # The prefix also matches longer names.
    return [blob for blob in section.findall("Blob") if name_of(blob) == name.encode()], marker
