"""What uploads and copies that did not end left of an object: parts of uploads, and temporary files.

A backup or a restore that is killed leaves them. So does another program, or lakeFS, that is killed while it uploads.
No listing shows them, except the parts that lakeFS itself writes as objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta

from lakefs_gc.engine.explain.copies.found import Copies
from lakefs_gc.engine.explain.sources import Sources
from lakefs_gc.engine.explain.words import day
from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.formats.address_readings import LOCAL_STORE
from lakefs_gc.formats.candidate_addresses import is_candidate_address
from lakefs_gc.storage.base import ObjectStore, UnfinishedWrite
from lakefs_gc.storage.concurrency import map_unordered

_COPY = re.compile(r"([^/]+)/([^/]+)/objects/(.+)", re.DOTALL)
_GOOGLE = "gs://"
_PART = ".part_"
_LISTINGS_AT_ONCE = 16
_LONGEST_UPLOAD = timedelta(days=1)
"""An older upload has probably no client any more: 5 TB within a day, the largest object, are 60 MB/s."""


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

    ``may_be_of`` says of a repository and a mark id whether their backup may be of the namespace. A copy in another
    folder (somebody moves a backup aside) may be of it. A folder stays while a file is in it, so this concerns stores
    whose folders are prefixes.
    """
    texts: dict[str, list[str]] = {address: [] for address in addresses}
    if not store.lists_by_page or not addresses:
        return Copies(texts)
    try:
        for write in store.unfinished_below():
            copy = _COPY.fullmatch(write.key)
            address = _address_at_end(write.key, texts)
            of_other = copy and copy[3] == address and not may_be_of(copy[1], copy[2])
            if address and write.key not in known and not of_other:
                texts[address].append(_upload(store, write))
    except LakeFSGCError as error:
        return Copies(texts, (_not_asked(store, error),))
    return Copies(texts)


def _address_at_end(key: str, addresses: Collection[str]) -> str:
    """Return the address that a key ends with, as that of a copy in any folder does; empty if it ends with none."""
    parts = key.split("/")
    ends = ("/".join(parts[number:]) for number in range(len(parts)))
    return next((end for end in ends if end in addresses), "")


def find_of_unknown_paths(sources: Sources, known: Collection[str], erased_at: datetime | None) -> list[str]:
    """Return what to do about uploads that may be to any path, because no metadata names their objects yet.

    lakeFS names the object of an upload when it begins, and writes the path when it ends. So an upload that did not end
    may be of a path that was erased, with all its content. ``known`` are the objects that were asked for one by one.
    ``erased_at`` is when the last object of the paths was deleted, None if that is unknown.

    A busy repository always has uploads in progress. One that began after ``erased_at`` and within a day is what is
    being written now, which no report about what was there before covers. An older one has probably no client any more,
    and one that began before may be of what was to be erased.
    """
    store, now = sources.store, sources.now
    if store.location.url.startswith(LOCAL_STORE):
        return []  # a temporary file is of an object of its folder, so ``find_unfinished`` looks for it there
    try:
        begun = [write for write in store.unfinished_below() if is_candidate_address(write.key)]
    except LakeFSGCError as error:
        return [f"uploads in {store.location.url} that did not end, to any path: {error.message}"]
    begun = [
        write
        for write in begun
        if write.key not in known and (erased_at is None or write.since < max(erased_at, now - _LONGEST_UPLOAD))
    ]
    named = {sighting.address for sighting in sources.history.sightings({write.key for write in begun})}
    sources.looked_at.append(f"uploads that did not end, and may be to these paths: {len(begun):,}")
    left = sorted((write for write in begun if write.key not in named), key=lambda write: write.since)
    if not left:
        return []
    of_all = f"{len(left):,} uploads" if len(left) > 1 else "an upload"
    oldest = f"{'the oldest' if len(left) > 1 else 'it'} began on {day(left[0].since)}"
    return [
        f"{of_all} in {store.location.url} that did not end: {oldest}. lakeFS records the path of an upload when it "
        "ends, so it may be one of these paths. No sweep removes what was uploaded. Let uploads end that are in "
        f"progress, abort the others (`{left[0].remove_with}`, or by a lifecycle rule with "
        "AbortIncompleteMultipartUpload), and ask again"
    ]


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
