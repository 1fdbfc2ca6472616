"""Where copies may be in a backup location: in backups, also in those that somebody renamed or moved.

A backup is at ``<repository>/<mark>/``, and people move it aside to keep it. So each folder that is no backup is looked
through, at any depth: it may have one, or copies that another program made with the addresses of the objects. So are
the folders of a backup, and that of its copies, except the folders of the copies themselves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from lakefs_gc.config import REPOSITORY_NAME
from lakefs_gc.engine.explain.copies.found import OTHER_FOLDER
from lakefs_gc.engine.records.backups.location import recorded_owner
from lakefs_gc.engine.records.backups.manifest import BEGAN, FOLDERS, MANIFEST, OBJECTS, BackupPaths
from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.formats.address_readings import LOCAL_STORE
from lakefs_gc.formats.addresses import namespaces_overlap, normalize_namespace
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered

_FOLDERS_AT_ONCE = 16
_DEPTH_OF_BACKUPS = 2
_MOST_FOLDERS = 10_000
"""The most folders that are listed below those of the second level: about twenty seconds in S3. Those that backups have
are listed, too, and do not count."""
_DATA_FOLDER = "data/"
"""Where lakeFS writes all objects but the oldest, which are at the root."""
_EMPTY = (
    "this folder is empty, and pruning leaves none, so it may be where a disk is mounted at other times. Mount it. If "
    "no backup is on such a disk, remove the folder"
)
_OF_BACKUPS = tuple(f"/{name}" for name in FOLDERS)


@dataclass(frozen=True)
class Owner:
    """Whose copies are looked for: a repository, by its name and the spellings of its namespace.

    ``others`` are the namespaces of the other repositories that the server has. A backup of one of them is of another
    repository, unless it records the name of this one. One of any other namespace may be of this repository: it may
    have had another bucket before, which another repository may have now.
    """

    repository: str
    namespaces: Collection[str]
    others: Collection[str] = ()

    def may_have(self, store: ObjectStore, folder: str) -> bool:
        """Return whether the backup in a folder may be of the repository. Raise if its record cannot be read.

        One without a record may be of any.
        """
        recorded, repository = recorded_owner(store, folder)
        if repository == self.repository or not recorded:
            return True
        if any(namespaces_overlap(recorded, each) for each in self.namespaces):
            return True
        return normalize_namespace(recorded) not in self.others


@dataclass(frozen=True)
class CopyFolder:
    """A folder that may hold copies: that of an object has the key ``prefix`` and its address. ``name`` is for people.

    For one at the place of a backup, ``name`` is that of the backup.
    """

    prefix: str
    name: str


@dataclass(frozen=True)
class CopyFolders:
    """The folders that may hold copies, those of the second level, and what could not be looked through."""

    copies: list[CopyFolder]
    second_level: list[str]
    unread: list[str]


def find_copy_folders(store: ObjectStore, owner: Owner, addresses: Collection[str]) -> CopyFolders:
    """Return the folders of a backup location that may hold copies of objects of a repository.

    These are its own backups, all others that may be of it, and each folder that has the first part of one of
    ``addresses``. Raises the errors of the store for the location itself.
    """
    first_parts = {address.partition("/")[0] for address in addresses}
    level, files = store.list_level("")
    copies = [CopyFolder("", "a copy outside of a backup")] if _has_part(first_parts, "", level, files) else []
    second_level: list[str] = []
    unread: list[str] = []
    listed = 0
    of_copies: frozenset[str] = frozenset()
    while level:
        depth = level[0].count("/")
        if depth == _DEPTH_OF_BACKUPS:
            second_level = sorted(level)
        elif depth > _DEPTH_OF_BACKUPS:
            others = [folder for folder in level if not folder.endswith(_OF_BACKUPS)]
            listed += len(others)
            if listed > _MOST_FOLDERS:
                unread += _not_listed(store, others)
                level = [folder for folder in level if folder.endswith(_OF_BACKUPS)]
        look = partial(_look_into, store, owner, first_parts, of_copies)
        found = [each for _, each in map_unordered(look, level, _FOLDERS_AT_ONCE)]
        copies += [copy for each in found for copy in each.copies]
        unread += [each.unread for each in found if each.unread]
        level = [folder for each in found for folder in each.others]
        of_copies = frozenset(each.of_copies for each in found)
    return CopyFolders(sorted(copies, key=lambda each: each.prefix), second_level, sorted(unread))


def _has_part(first_parts: Collection[str], folder: str, folders: Collection[str], files: pa.RecordBatch) -> bool:
    """Return whether a folder has a folder or a file with one of these names, by what a listing of it shows."""
    inside = {*folders, *_keys(files)}
    return any(name in inside for part in first_parts for name in (f"{folder}{part}", f"{folder}{part}/"))


@dataclass(frozen=True)
class _Looked:
    """What was seen in one folder: where it may hold copies, folders to look into, and what could not be looked at.

    ``of_copies`` is the one of ``others`` that has the copies of a backup; empty if there is none.
    """

    copies: tuple[CopyFolder, ...] = ()
    others: tuple[str, ...] = ()
    unread: str = ""
    of_copies: str = ""


def _look_into(
    store: ObjectStore,
    owner: Owner,
    first_parts: Collection[str],
    of_copies: Collection[str],
    folder: str,
) -> _Looked:
    depth = folder.count("/")
    try:
        folders, files = store.list_level(folder)
    except LakeFSGCError as error:
        at = folder.removesuffix(OBJECTS) if folder in of_copies else folder
        return _Looked(unread=_not_read(store, owner.repository, at, error))
    is_local = store.location.url.startswith(LOCAL_STORE)
    if is_local and folder == f"{owner.repository}/" and not folders and not files.num_rows:
        return _Looked(unread=f"backups in {store.location.url} below {folder}: {_EMPTY}")
    if folder in of_copies:
        of_objects = {f"{folder}{part}/" for part in first_parts} | {f"{folder}{_DATA_FOLDER}"}
        return _Looked(others=tuple(each for each in folders if each not in of_objects))
    has_record = not {f"{folder}{MANIFEST}", f"{folder}{BEGAN}"}.isdisjoint(_keys(files))
    # A folder of a repository may have a mark that is named "objects", and a backup may lack its records.
    beside = (CopyFolder(folder, f"the folder {folder}"),) if _has_part(first_parts, folder, folders, files) else ()
    if not has_record and (depth < _DEPTH_OF_BACKUPS or f"{folder}{OBJECTS}" not in folders):
        return _Looked(beside, tuple(folders))
    copies = f"{folder}{OBJECTS}" if f"{folder}{OBJECTS}" in folders else ""
    looked = _Looked(beside, tuple(folders), of_copies=copies)
    name = _name_of(folder, owner.repository)
    try:
        is_own = depth == _DEPTH_OF_BACKUPS and folder.startswith(f"{owner.repository}/")
        if is_own or owner.may_have(store, folder):
            return replace(looked, copies=(CopyFolder(folder + OBJECTS, name), *beside))
    except LakeFSGCError as error:
        return replace(looked, unread=f"{name} in {store.location.url}: {error.message}")
    return looked


def _keys(files: pa.RecordBatch) -> list[str]:
    keys: list[str] = files.column("address").to_pylist()
    return keys


def _name_of(folder: str, repository: str) -> str:
    """Return how to name the backup in a folder: by its mark, if it is where the backup of a mark is."""
    if not _has_place_of_backup(folder):
        return f"a backup in the folder {folder}"
    name, mark_id = folder.rstrip("/").split("/")
    return f"backup of mark {mark_id}{f' of {name}' if name != repository else ''}"


def _has_place_of_backup(folder: str) -> bool:
    """Return whether a folder is ``<repository>/<mark>/``, for a possible name and id."""
    name, _, mark_id = folder.rstrip("/").partition("/")
    try:
        return BackupPaths(name, mark_id).folder == folder
    except LakeFSGCError:
        return False


def may_be_named(store: ObjectStore, owner: Owner, name: str, mark_id: str) -> bool:
    """Return whether a folder of this name and mark may be a backup of the repository. Unknown counts as yes."""
    try:
        return name == owner.repository or owner.may_have(store, f"{name}/{mark_id}/")
    except LakeFSGCError:
        return True


def _not_read(store: ObjectStore, repository: str, folder: str, error: LakeFSGCError) -> str:
    # Backups belong here, so a user cannot state that there is none.
    if re.fullmatch(f"{REPOSITORY_NAME}/", folder):
        return f"backups in {store.location.url} below {folder}: {error.message}"
    if _has_place_of_backup(folder):
        return f"{_name_of(folder, repository)} in {store.location.url}: {error.message}"
    return f"{OTHER_FOLDER}{store.location.folder_url}{folder}: {error.message}"


def _not_listed(store: ObjectStore, folders: Collection[str]) -> list[str]:
    """Return what to say about folders that are too many, by the folders of the second level that have them."""
    above = Counter("/".join(folder.split("/")[:_DEPTH_OF_BACKUPS]) for folder in folders)
    return [
        f"{OTHER_FOLDER}{store.location.folder_url}{name}/: {number:,} folders below it, because all such folders are "
        f"more than {_MOST_FOLDERS:,}"
        for name, number in above.items()
    ]
