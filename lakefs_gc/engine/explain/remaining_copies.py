"""The copies of an object beside the object itself: noncurrent versions, soft-deleted copies, and backups."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial

from lakefs_gc.config import REPOSITORY_NAME, BackupSettings
from lakefs_gc.engine.explain.copies import FORMER_LOCATION, NO_LOCATION, Copies
from lakefs_gc.engine.explain.stored import look_up
from lakefs_gc.engine.explain.unfinished import find_of_removed_backups, find_parts, find_unfinished
from lakefs_gc.engine.records.backups.location import recorded_namespace
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.backups.marker import why_unproved
from lakefs_gc.errors import LakeFSGCError, StorageError
from lakefs_gc.formats.addresses import namespaces_overlap
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

_NAMES_AT_ONCE = 16
_IF_EMPTY = ". Mount it. If no backup is in this location, remove backup.url and pass --no-backups"


def find_versions(store: ObjectStore, addresses: Collection[str]) -> Copies:
    """Return the versions and soft-deleted copies that a store has of each object, beside the object itself.

    They are listed whatever the settings of the store are: versions stay when the store stops to keep new ones. If
    other copies may be kept now, which no list shows, that is unknown.
    """
    copies: dict[str, list[str]] = {address: [] for address in addresses}
    where, unread = store.location.url, list[str]()
    if not addresses:
        return Copies(copies)
    try:
        for address, number in store.count_versions(sorted(addresses)).items():
            if number > 0:
                copies[address].append(f"{number} {'version' if number == 1 else 'versions'} in {where}")
    except StorageError as error:
        unread.append(f"versions and soft-deleted copies in {where}: {error.message}")
    try:
        if not store.deletes_versions and (why := store.space_not_freed()):
            unread.append(f"deleted copies in {where}, which cannot all be listed: {why}")
    except StorageError as error:
        unread.append(f"whether {where} keeps deleted copies: {error.message}")
    return Copies(copies, tuple(unread))


def find_backups(
    settings: BackupSettings,
    repository: str,
    namespaces: Collection[str],
    marks_of: Mapping[str, Collection[str]],
    *,
    recorded: Collection[str] = (),
    unfinished: bool = False,
    parts: bool = False,
) -> Copies:
    """Return the backups of a repository that hold a copy of each object, complete or not. The stores are asked.

    ``marks_of`` maps the address of each object to the ids of the marks that name it. Versions of its copies may remain
    after their backups were removed.

    Backups stay where they are when the setting changes: so ``recorded`` are the URLs that were configured when marks
    were made. They stay below the name that the repository had, too. So those below other names count if they are of
    its namespace, of which ``namespaces`` are the spellings. ``unfinished`` copies are looked for, too, on request, and
    so are copies of the ``parts`` of uploads, of which marks name those that are objects of their own.
    """
    configured = StoreLocation(settings.url).folder_url if settings.url else ""
    former = {StoreLocation(url).folder_url: url for url in recorded if url}
    former.pop(configured, None)
    places = [("backups in ", settings.url)] if settings.url else []
    places += [(FORMER_LOCATION, url) for _, url in sorted(former.items())]
    found = [
        _copies_in(StoreLocation(url), what, repository, namespaces, marks_of, unfinished=unfinished, parts=parts)
        # The configured location last: somebody may move what is in a former one to it meanwhile.
        for what, url in reversed(places)
    ][::-1]
    copies = {address: [text for each in found for text in each.of[address]] for address in marks_of}
    unread = [] if settings.url else [NO_LOCATION]
    unread += [text for each in found for text in each.unread]
    return Copies(copies, tuple(dict.fromkeys(unread)))


def _copies_in(
    location: StoreLocation,
    what: str,
    repository: str,
    namespaces: Collection[str],
    marks_of: Mapping[str, Collection[str]],
    *,
    unfinished: bool,
    parts: bool,
) -> Copies:
    copies: dict[str, list[str]] = {address: [] for address in marks_of}
    try:
        store = open_store(location)
        folders, unread = _folders_in(store, repository)
        if why := why_unproved(store, folders):
            unread.append(f"{what}{location.url}: {why}{'' if what == FORMER_LOCATION else _IF_EMPTY}")
        backups, damaged = _backups_of(store, folders, repository, namespaces)
        unread += damaged
    except LakeFSGCError as error:
        return Copies(copies, (f"{what}{location.url}: {error.message}",))
    try:
        removed = _removed_copies(repository, marks_of, {paths.folder for paths in backups})
        if unfinished:
            keys_of_all = {paths.objects + address: address for paths in backups for address in marks_of}
            keys_of_all |= {key: address for key, (address, _) in removed.items()}
            for found in (
                find_unfinished(store, keys_of_all),
                find_of_removed_backups(
                    store, marks_of, keys_of_all, partial(_may_be_named, store, repository, namespaces)
                ),
            ):
                unread += found.unread
                for address, texts in found.of.items():
                    copies[address] += texts
        if parts:
            found = find_parts(store, {paths.objects + address: address for paths in backups for address in marks_of})
            unread += found.unread
            for address, texts in found.of.items():
                copies[address] += texts
        for paths in backups:
            of_other_name = f" of {paths.repository}" if paths.repository != repository else ""
            where = f"backup of mark {paths.mark_id}{of_other_name} in {location.url}"
            keys = {paths.objects + address: address for address in marks_of}
            stored = look_up(store, keys)
            unread += [
                f"{where}: the store could not be asked for {key}: {why}" for key, why in stored.not_asked.items()
            ]
            for key in stored.objects:
                copies[keys[key]].append(where)
            versions = find_versions(store, [key for key in keys if key not in stored.not_asked])
            unread += versions.unread
            for key, texts in versions.of.items():
                copies[keys[key]] += [f"{text} (backup of mark {paths.mark_id}{of_other_name})" for text in texts]
        versions = find_versions(store, removed)
        unread += versions.unread
        for key, texts in versions.of.items():
            address, mark_id = removed[key]
            copies[address] += [f"{text} (removed backup of mark {mark_id})" for text in texts]
    except LakeFSGCError as error:
        return Copies(copies, (*unread, f"backups in {location.url}: {error.message}"))
    return Copies(copies, tuple(unread))


def _removed_copies(
    repository: str, marks_of: Mapping[str, Collection[str]], existing: Collection[str]
) -> dict[str, tuple[str, str]]:
    """Return the keys that copies had in backups that do not exist, if they ever did: address and mark of each.

    A listing shows no backup of which only versions and delete markers are left. It had the objects of its mark.
    """
    of_marks = ((address, mark_id) for address, mark_ids in marks_of.items() for mark_id in mark_ids)
    backups = ((BackupPaths(repository, mark_id), address) for address, mark_id in of_marks)
    return {
        paths.objects + address: (address, paths.mark_id) for paths, address in backups if paths.folder not in existing
    }


def _folders_in(store: ObjectStore, repository: str) -> tuple[list[str], list[str]]:
    """Return the folders of the second level of a backup location, and what could not be listed.

    A repository may have had any name, so all folders with a possible name are listed.
    """
    first = (folder.rstrip("/") for folder in store.list_level("")[0])
    names = [name for name in first if name == repository or re.fullmatch(REPOSITORY_NAME, name)]

    def below(name: str) -> tuple[list[str], str]:
        try:
            return store.list_level(f"{name}/")[0], ""
        except LakeFSGCError as error:
            return [], f"backups in {store.location.url} below {name}/: {error.message}"

    listed = [found for _, found in map_unordered(below, names, _NAMES_AT_ONCE)]
    return sorted(folder for folders, _ in listed for folder in folders), sorted(why for _, why in listed if why)


def _backups_of(
    store: ObjectStore, folders: Collection[str], repository: str, namespaces: Collection[str]
) -> tuple[list[BackupPaths], list[str]]:
    """Return which folders are backups of a repository, also below its former names, and what could not be read."""

    def backup_in(folder: str) -> BackupPaths | str | None:
        name, _, mark_id = folder.rstrip("/").partition("/")
        try:
            paths = BackupPaths(name, mark_id)
            return paths if name == repository or _may_be_of(store, paths, namespaces) else None
        except LakeFSGCError as error:
            return f"backup of mark {mark_id} of {name} in {store.location.url}: {error.message}"

    found = [each for _, each in map_unordered(backup_in, folders, _NAMES_AT_ONCE)]
    backups = [each for each in found if isinstance(each, BackupPaths)]
    return sorted(backups, key=lambda each: each.folder), sorted(each for each in found if isinstance(each, str))


def _may_be_of(store: ObjectStore, paths: BackupPaths, namespaces: Collection[str]) -> bool:
    """Return whether a backup may be of a namespace. Raise if its record cannot be read.

    One without a record may be of any namespace.
    """
    recorded = recorded_namespace(store, paths)
    return not recorded or any(namespaces_overlap(recorded, each) for each in namespaces)


def _may_be_named(store: ObjectStore, repository: str, namespaces: Collection[str], name: str, mark_id: str) -> bool:
    """Return whether a folder of this name and mark may be a backup of the repository. Unknown counts as yes."""
    try:
        return name == repository or _may_be_of(store, BackupPaths(name, mark_id), namespaces)
    except LakeFSGCError:
        return True
