"""The copies of an object beside the object itself: noncurrent versions, soft-deleted copies, and backups."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lakefs_gc.config import BackupSettings
from lakefs_gc.engine.explain.stored import look_up
from lakefs_gc.engine.records.backup_location import backup_location_of
from lakefs_gc.engine.records.backup_manifest import BackupPaths
from lakefs_gc.errors import LakeFSGCError, StorageError
from lakefs_gc.storage.base import ObjectStore, VersionedTarget
from lakefs_gc.storage.open import open_store


@dataclass(frozen=True)
class Copies:
    """For each address, one text for each kind of copy that exists, and what could not be looked at."""

    of: dict[str, list[str]]
    unread: tuple[str, ...] = ()


def find_versions(store: ObjectStore, addresses: Collection[str]) -> Copies:
    """Return the versions and soft-deleted copies that a store keeps of each object, beside the object itself."""
    copies: dict[str, list[str]] = {address: [] for address in addresses}
    where = store.location.url
    try:
        why = store.space_not_freed()
        if not why or not addresses:
            return Copies(copies)
        if not store.deletes_versions:  # it lists none either
            return Copies(copies, (f"deleted copies in {where}, which cannot be listed: {why}",))
        exist = store.stat_many(list(addresses))
        now = store.now()
        targets = [VersionedTarget(address, exist.get(address), now) for address in sorted(addresses)]
        for found in store.find_versions(targets):
            address = found.target.key
            noncurrent = len(found.ids) - found.markers - (address in exist)
            if noncurrent > 0:
                copies[address].append(f"{noncurrent} {'version' if noncurrent == 1 else 'versions'} in {where}")
    except StorageError as error:
        return Copies(copies, (f"versions and soft-deleted copies in {where}: {error.message}",))
    return Copies(copies)


def find_backups(settings: BackupSettings, repository: str, addresses: Collection[str]) -> Copies:
    """Return the backups of a repository that hold a copy of each object, complete or not. The store is asked."""
    copies: dict[str, list[str]] = {address: [] for address in addresses}
    if not settings.url:
        return Copies(copies, ("backups: no backup location is configured (backup.url)",))
    try:
        store = open_store(backup_location_of(settings))
        unread: list[str] = []
        for folder in sorted(store.list_level(f"{repository}/")[0]):
            mark_id = folder.removeprefix(f"{repository}/").rstrip("/")
            objects = BackupPaths(repository, mark_id).objects
            keys = {objects + address: address for address in addresses}
            where = f"backup of mark {mark_id} in {store.location.url}"
            stored = look_up(store, keys)
            unread += [
                f"{where}: the store could not be asked for {key}: {why}" for key, why in stored.not_asked.items()
            ]
            for key in stored.objects:
                copies[keys[key]].append(where)
            versions = find_versions(store, [key for key in keys if key not in stored.not_asked])
            unread += versions.unread
            for key, texts in versions.of.items():
                copies[keys[key]] += [f"{text} (backup of mark {mark_id})" for text in texts]
    except LakeFSGCError as error:
        return Copies(copies, (f"backups in {settings.url}: {error.message}",))
    return Copies(copies, tuple(dict.fromkeys(unread)))
