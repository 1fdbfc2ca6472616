"""The copies of an object beside the object itself: noncurrent versions, soft-deleted copies, and backups."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from lakefs_gc.config import BackupSettings
from lakefs_gc.engine.explain.copies.backup_folders import Owner, find_copy_folders, may_be_named
from lakefs_gc.engine.explain.copies.found import FORMER_LOCATION, NO_LOCATION, Copies
from lakefs_gc.engine.explain.copies.unfinished import find_of_removed_backups, find_parts, find_unfinished
from lakefs_gc.engine.explain.stored import look_up
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.backups.marker import why_unproved
from lakefs_gc.errors import LakeFSGCError, StorageError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

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
    others: Collection[str] = (),
    recorded: Collection[str] = (),
    unfinished: bool = False,
    parts: bool = False,
) -> Copies:
    """Return the backups of a repository that hold a copy of each object, complete or not. The stores are asked.

    ``marks_of`` maps the address of each object to the ids of the marks that name it. Versions of its copies may remain
    after their backups were removed.

    Backups stay where they are when the setting changes: so ``recorded`` are the URLs that were configured when marks
    were made. They stay below the name that the repository had, and record the namespace that it had. So those below
    other names count, too: if they are of its namespace, of which ``namespaces`` are the spellings, and if they are not
    of one of ``others``, the namespaces that other repositories have.

    ``unfinished`` copies are looked for, too, on request, and so are copies of the ``parts`` of uploads, of which marks
    name those that are objects of their own.
    """
    configured = StoreLocation(settings.url).folder_url if settings.url else ""
    former = {StoreLocation(url).folder_url: url for url in recorded if url}
    former.pop(configured, None)
    places = [("backups in ", settings.url)] if settings.url else []
    places += [(FORMER_LOCATION, url) for _, url in sorted(former.items())]
    owner = Owner(repository, namespaces, others)
    found = [
        _copies_in(StoreLocation(url), what, owner, marks_of, unfinished=unfinished, parts=parts)
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
    owner: Owner,
    marks_of: Mapping[str, Collection[str]],
    *,
    unfinished: bool,
    parts: bool,
) -> Copies:
    copies: dict[str, list[str]] = {address: [] for address in marks_of}
    try:
        store = open_store(location)
        folders = find_copy_folders(store, owner, marks_of)
        unread = folders.unread
        if why := why_unproved(store, folders.second_level):
            unread.append(f"{what}{location.url}: {why}{'' if what == FORMER_LOCATION else _IF_EMPTY}")
    except LakeFSGCError as error:
        return Copies(copies, (f"{what}{location.url}: {error.message}",))
    try:
        removed = _removed_copies(owner.repository, marks_of, {folder.prefix for folder in folders.copies})
        if unfinished:
            keys_of_all = {folder.prefix + address: address for folder in folders.copies for address in marks_of}
            keys_of_all |= {key: address for key, (address, _) in removed.items()}
            for found in (
                find_unfinished(store, keys_of_all),
                find_of_removed_backups(store, marks_of, keys_of_all, partial(may_be_named, store, owner)),
            ):
                unread += found.unread
                for address, texts in found.of.items():
                    copies[address] += texts
        if parts:
            found = find_parts(
                store, {folder.prefix + address: address for folder in folders.copies for address in marks_of}
            )
            unread += found.unread
            for address, texts in found.of.items():
                copies[address] += texts
        for folder in folders.copies:
            where = f"{folder.name} in {location.url}"
            keys = {folder.prefix + address: address for address in marks_of}
            stored = look_up(store, keys)
            unread += [
                f"{where}: the store could not be asked for {key}: {why}" for key, why in stored.not_asked.items()
            ]
            for key in stored.objects:
                copies[keys[key]].append(where)
            versions = find_versions(store, [key for key in keys if key not in stored.not_asked])
            unread += versions.unread
            for key, texts in versions.of.items():
                copies[keys[key]] += [f"{text} ({folder.name})" for text in texts]
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

    ``existing`` are the folders that copies are in. A listing shows no backup of which only versions and delete markers
    are left. It had the objects of its mark.
    """
    of_marks = ((address, mark_id) for address, mark_ids in marks_of.items() for mark_id in mark_ids)
    backups = ((BackupPaths(repository, mark_id), address) for address, mark_id in of_marks)
    return {
        paths.objects + address: (address, paths.mark_id) for paths, address in backups if paths.objects not in existing
    }
