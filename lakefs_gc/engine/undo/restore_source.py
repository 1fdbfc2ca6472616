"""Finds what a restore reads and where it writes: the backup, the namespace, and the server's names for it.

Needs no Spark, so a wrong mark, repository or setting fails before Java starts.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from lakefs_gc.config import Settings
from lakefs_gc.engine.records.backups.location import find_backup, open_backup_location, other_server
from lakefs_gc.engine.records.backups.manifest import Backup
from lakefs_gc.engine.records.backups.removal import refuse_removal
from lakefs_gc.engine.records.stored_marks import open_namespace
from lakefs_gc.errors import BackupError, NamespaceError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.known_folders import learn_folders
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RestoreSource:
    """A complete backup, its location, the store of the namespace, and other spellings of the namespace."""

    backup: Backup
    location: StoreLocation
    store: StoreLocation
    server_folders: tuple[str, ...] = ()


def find_restore_source(
    settings: Settings, server: LakeFSClient, mark_id: str, repository: str, prefix: str, from_server: str = ""
) -> RestoreSource:
    """Return what a restore of the backup of a mark needs. ``repository`` may be empty if only one has such a backup.

    ``from_server`` is the URL of the server that the backup was made with, if that is another one than this server.

    Raises ``ConfigurationError`` without a backup location, ``BackupError`` without a complete backup, while a pruning
    may delete its copies, if the repository now has another namespace, or if another server made it that
    ``from_server`` does not name, and ``NamespaceError`` if a prefix is given and the server's name for the namespace
    is unknown. A restore that is refused later has already stopped the sweep and made the approval void.
    """
    location = open_backup_location(settings, server)
    backup = find_backup(open_store(location), mark_id, repository)
    namespace = open_namespace(backup.repository, server, settings)
    if namespace.url != backup.namespace:
        raise BackupError(
            f"The backup is of repository {backup.repository} in the namespace {backup.namespace}, but the repository "
            f"is at {namespace.url}",
            remedy="Copy the folder objects/ of the backup manually",
        )
    other = other_server(backup, server.endpoint_url)
    if other and from_server.rstrip("/") != other:
        raise BackupError(
            f"The backup of mark {mark_id} was made with the lakeFS server {other}, but this is "
            f"{server.endpoint_url}. A copy of an installation has the same repositories: nothing would come back in "
            "the other one",
            remedy=f"To restore there, set LAKECTL_SERVER_ENDPOINT_URL={other}. To restore here, for example because "
            f"the server has another URL now, pass --from-server {other} (from_server of the asset restore)",
        )
    refuse_pruning(open_store(location), backup)
    _refuse_lost_contents(open_store(location), backup)
    store = namespace.store.location
    return RestoreSource(
        backup, location, store, _server_folders(server, settings, backup.repository, store, has_prefix=bool(prefix))
    )


def refuse_pruning(store: ObjectStore, backup: Backup) -> None:
    """Raise ``BackupError`` while a pruning may delete copies of a backup. ``store`` is the backup location.

    A restore has to look after it has written its note (``removal.py``). Before, it spares the sweep and the approval.
    """
    refuse_removal(
        store,
        backup.paths,
        "restore again. If the backup is not complete by then, first run "
        f"`{backup.paths.command}`: it keeps the copies that are left",
    )


def _refuse_lost_contents(store: ObjectStore, backup: Backup) -> None:
    """Raise ``BackupError`` if a file that lists objects of the backup does not exist. The restore compares digests."""
    found = store.stat_many([part.key for part in backup.parts])
    lost = [part.key for part in backup.parts if part.key not in found]
    if lost:
        raise BackupError(
            f"{len(lost):,} of the {len(backup.parts):,} files that list the objects of the backup of mark "
            f"{backup.mark_id} are missing, for example {lost[0]}",
            remedy="Bring them back from an earlier version of the backup location, or copy the folder objects/ of the "
            "backup manually",
        )


def _server_folders(
    server: LakeFSClient, settings: Settings, repository: str, store: StoreLocation, *, has_prefix: bool
) -> tuple[str, ...]:
    """Return how the server spells the namespace. Only a restore with a prefix requires it."""
    try:
        return learn_folders(server, server.repository(repository), settings, store)
    except NamespaceError as error:
        if has_prefix:
            raise
        logger.warning(
            "objects whose links contain the server's folder are counted as shown by no commit: %s", error.message
        )
        return ()
