"""The file that shows that a local backup location is the folder that backups were written to.

If the disk of a local location is not mounted, its mount point is an empty folder, which looks like a location whose
backups were all removed. So a backup writes this file to the location, where it stays.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from lakefs_gc.config import REPOSITORY_NAME
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.formats.address_readings import LOCAL_STORE
from lakefs_gc.storage.base import ObjectStore

MARKER = "lakefs-gc-backups.txt"
_CONTENT = (
    b"This folder is a backup location of lakefs-gc.\n"
    b"Keep this file: without it, lakefs-gc cannot tell an empty location from a disk that is not mounted.\n"
)


def write_marker(store: ObjectStore) -> None:
    """Write the marker to a backup location that is a local folder: no other kind is mounted."""
    if store.location.url.startswith(LOCAL_STORE):
        store.put(MARKER, _CONTENT, if_absent=True)


def why_unproved(store: ObjectStore, folders: Collection[str]) -> str:
    """Return why a location that shows no backup may have one; empty if it is certainly a location of backups.

    ``folders`` are those of its second level (``<repository>/<mark>/``). A backup among them shows the location, too:
    it may be older than the marker. A folder is one if it has a record of a backup: a mount point may have any folders.
    """
    if not store.location.url.startswith(LOCAL_STORE) or store.stat_many([MARKER]):
        return ""
    if store.stat_many([key for folder in folders for key in _records_in(folder)]):
        return ""
    return f"it has neither a backup nor the file {MARKER}, which each backup writes. Its disk may not be mounted"


def _records_in(folder: str) -> tuple[str, ...]:
    """Return the keys of the records that a backup in this folder has; none for a folder that cannot be one."""
    repository, _, mark_id = folder.rstrip("/").partition("/")
    if not re.fullmatch(REPOSITORY_NAME, repository):
        return ()
    try:
        paths = BackupPaths(repository, mark_id)
    except LakeFSGCError:
        return ()
    return paths.manifest, paths.began
