"""What uploads and copies that did not end left of an object: parts of uploads, and temporary files.

A backup or a restore that is killed leaves them. So does another program, or lakeFS, that is killed while it uploads.
No listing shows them, except the parts that lakeFS itself writes as objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from lakefs_gc.engine.explain.copies import Copies
from lakefs_gc.engine.explain.keepers import day
from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.storage.base import ObjectStore, UnfinishedWrite
from lakefs_gc.storage.concurrency import map_unordered

_COPY = re.compile(r"([^/]+)/([^/]+)/objects/(.+)", re.DOTALL)
_GOOGLE = "gs://"
_PART = ".part_"
_LISTINGS_AT_ONCE = 16


def has_parts(*urls: str) -> bool:
    """Return whether lakeFS names parts of an upload after its object in a namespace with one of these URLs.

    It does on Google Cloud Storage: it uploads ``<object>.part_<number>``, composes the object from them, 32 at once
    (then there is ``<object>.part_<number>_<layer>``, too), and ignores it if it cannot delete them (``pkg/block/gs``).
    """
    return any(url.lower().startswith(_GOOGLE) for url in urls)


def find_parts(store: ObjectStore, copies: Mapping[str, str]) -> Copies:
    """Return the parts of uploads that are objects of their own. ``copies`` is as for ``find_unfinished``."""
    texts: dict[str, list[str]] = {address: [] for address in copies.values()}

    def listed(key: str) -> list[str] | LakeFSGCError:
        try:
            return [part for batch in store.list(key + _PART) for part in batch.column("address").to_pylist()]
        except LakeFSGCError as error:
            return error

    unread = []
    for key, parts in map_unordered(listed, sorted(copies), _LISTINGS_AT_ONCE):
        if isinstance(parts, LakeFSGCError):
            unread.append(f"parts of uploads of {store.location.folder_url}{key}: {parts.message}")
        elif parts:
            more = f" and {len(parts) - 1:,} more" if len(parts) > 1 else ""
            where = f"{store.location.folder_url}{min(parts)}{more}"
            texts[copies[key]].append(f"part of an upload, which may have its content: {where}")
    return Copies(texts, tuple(sorted(unread)))


def find_unfinished(store: ObjectStore, copies: Mapping[str, str]) -> Copies:
    """Return the writes that hold a part of an object. ``copies`` maps the key of it, or of its copy, to its address.

    Ask before the store is asked for these keys: a write that ends in between is then in neither answer. An upload is
    certainly of the object. A temporary file may be of it, so it is among what could not be looked at.
    """
    texts: dict[str, list[str]] = {address: [] for address in copies.values()}
    uncertain = []
    try:
        found = store.unfinished_of(list(copies)) if copies else {}
    except LakeFSGCError as error:
        return Copies(texts, (_not_asked(store, error),))
    for key, writes in found.items():
        for write in writes:
            if write.upload_id:
                texts[copies[key]].append(_upload(store, write))
            else:
                uncertain.append(_file(store, write))
    return Copies(texts, tuple(sorted(set(uncertain))))


def find_of_removed_backups(
    store: ObjectStore,
    addresses: Collection[str],
    known: Collection[str],
    may_be_of: Callable[[str, str], bool],
) -> Copies:
    """Return the uploads of copies in backups that no listing and no mark names. ``known`` are keys that were asked.

    ``may_be_of`` says of a repository and a mark id whether their backup may be of the namespace. A folder stays while
    a file is in it, so this concerns stores whose folders are prefixes.
    """
    texts: dict[str, list[str]] = {address: [] for address in addresses}
    if not store.lists_by_page or not addresses:
        return Copies(texts)
    try:
        for write in store.unfinished_below():
            copy = _COPY.fullmatch(write.key)
            if copy and copy[3] in texts and write.key not in known and may_be_of(copy[1], copy[2]):
                texts[copy[3]].append(_upload(store, write))
    except LakeFSGCError as error:
        return Copies(texts, (_not_asked(store, error),))
    return Copies(texts)


def _not_asked(store: ObjectStore, error: LakeFSGCError) -> str:
    return f"copies in {store.location.url} that did not end: {error.message}"


def _upload(store: ObjectStore, write: UnfinishedWrite) -> str:
    where = f"{store.location.folder_url}{write.key}"
    return f"upload of {where} that began on {day(write.since)} and did not end. To remove it: {write.remove_with}"


def _file(store: ObjectStore, write: UnfinishedWrite) -> str:
    return (
        f"{store.location.folder_url}{write.key} ({write.size_bytes:,} B, last changed on {day(write.since)}): a copy "
        "that did not end left it, and it may be of an object of this report. If no backup and no restore is running, "
        f"remove it: {write.remove_with}"
    )
