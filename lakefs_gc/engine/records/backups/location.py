"""The backup location: opening it, and finding, counting and reading the backups in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from lakefs_gc.config import REPOSITORY_NAME, BackupSettings, Settings
from lakefs_gc.engine.records.backups.manifest import BEGAN, MANIFEST, Backup, BackupPaths, BackupStart, noted_start
from lakefs_gc.engine.records.backups.removal import refuse_removal
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.run import overlaps
from lakefs_gc.errors import (
    BackupError,
    ConfigurationError,
    CorruptFileError,
    LakeFSGCError,
    ObjectNotFoundError,
)
from lakefs_gc.formats.addresses import normalize_namespace
from lakefs_gc.formats.report import report_paths
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store


def open_backup_location(settings: Settings, server: LakeFSClient) -> StoreLocation:
    """Return the configured backup location, after checking that it exists and is outside every namespace.

    Raise ``ConfigurationError`` if none is configured, ``BackupError`` if it overlaps with the namespace of a
    repository, and ``ObjectNotFoundError`` if its bucket or folder does not exist.
    """
    location = backup_location_of(settings.backup)
    for repository in server.repositories():
        namespace = normalize_namespace(repository.storage_namespace)
        if overlaps(namespace, location, settings):
            raise BackupError(
                f"The backup location {location.url} overlaps with the namespace of {repository.name} ({namespace}): "
                "a collection of the repository could delete backups",
                remedy="Set backup.url to a bucket or folder that no repository uses",
            )
    # A missing folder may be a disk that is not mounted, so it is not created.
    try:
        open_store(location).list_level("")
    except ObjectNotFoundError as error:
        raise ObjectNotFoundError(
            f"The backup location does not exist: {error.message}",
            remedy="Create the bucket or folder of backup.url, or mount its disk",
        ) from error
    return location


def backup_location_of(backup: BackupSettings) -> StoreLocation:
    """Return the configured backup location, unchecked. Raise ``ConfigurationError`` if none is configured."""
    if not backup.url:
        raise ConfigurationError(
            "No backup location is configured",
            remedy="Set backup.url in lakefs-gc.toml to s3://bucket/prefix or file:///folder, outside every namespace",
        )
    return StoreLocation(backup.url)


def read_backup(store: ObjectStore, paths: BackupPaths) -> Backup:
    """Return the manifest of a complete backup. Raise ``BackupError`` if there is none, or if it is of another mark."""
    backup = _manifest_in(store, paths)
    if why := misplaced(backup, paths):
        raise BackupError(why, remedy="Move the folder of the backup back to where it was")
    return backup


def _manifest_in(store: ObjectStore, paths: BackupPaths) -> Backup:
    try:
        data = store.read(paths.manifest)
    except ObjectNotFoundError:
        raise BackupError(
            f"Mark {paths.mark_id} of {paths.repository} has no complete backup in {store.location.url}",
            remedy=f"Run `{paths.command}`: an unfinished backup continues",
        ) from None
    return Backup.from_json(data, paths.manifest)


def misplaced(found: Backup | BackupStart, paths: BackupPaths) -> str:
    """Return why a record in a folder is not one of the backup of this folder; empty if it is."""
    if (found.repository, found.mark_id) == (paths.repository, paths.mark_id):
        return ""
    if not found.repository:
        return f"an earlier version wrote {paths.began}, which does not name the repository"
    file = paths.manifest if isinstance(found, Backup) else paths.began
    return f"{file} is of the backup of mark {found.mark_id} of {found.repository}"


def other_server(backup: Backup, endpoint_url: str) -> str:
    """Return the URL of the lakeFS server that a backup records, if it is not ``endpoint_url``; otherwise empty.

    Earlier versions recorded none. A copy of an installation has the same repositories, namespaces and marks.
    """
    recorded = _endpoint_of(backup)
    return "" if recorded == endpoint_url else recorded


def require_backup(settings: Settings, mark: Mark, endpoint_url: str) -> Backup | None:
    """Return the backup that a sweep requires, or None if it requires none.

    A backup is required if these settings or the settings of the mark's run require it: a sweep may start on another
    machine with other settings. Raise ``BackupError`` unless the backup is complete: its manifest names the digest of
    this mark, and the lakeFS server at ``endpoint_url``. Another server does not learn of the sweep, and may prune the
    backup. Whether the copies are still there, ``refuse_lost_copies`` says.
    """
    if not (settings.backup.required_before_sweep or mark.needs_backup):
        return None
    store = open_store(backup_location_of(settings.backup))
    backup = read_backup(store, BackupPaths(mark.repository, mark.mark_id))
    if backup.mark_digest != mark.digest:
        raise BackupError(
            f"The backup of mark {mark.mark_id} is of digest {backup.mark_digest}, but the mark has {mark.digest}",
            remedy=f"Run `{backup.paths.command}`",
        )
    if other := other_server(backup, endpoint_url):
        raise BackupError(
            f"The backup of mark {mark.mark_id} was made with the lakeFS server {other}, but this is {endpoint_url}: "
            "the other server may remove it while this one sweeps",
            remedy=f"Set backup.url to a location that only this server uses, then run `{backup.paths.command}`",
        )
    return backup


@dataclass(frozen=True)
class ListedBackup:
    """One backup in a listing. ``problem`` is why it is incomplete, or empty; then the numbers are zero.

    ``namespace`` is that of the mark; empty if it is unknown. ``misplaced`` is why the records do not show that the
    folder is the one of this backup: somebody may have moved or copied it. ``server`` is the URL of the lakeFS server,
    and ``keep_days`` for how long the backup is kept at least; empty and 0 if an earlier version made it. If
    ``is_unreadable``, the ``problem`` is why the store does not show what the backup is. Without a ``mark_id``, that is
    so for all backups of the repository.
    """

    repository: str
    mark_id: str
    created_at: datetime | None
    objects: int
    size_bytes: int
    mark_digest: str
    namespace: str
    problem: str = ""
    misplaced: str = ""
    server: str = ""
    keep_days: float = 0
    is_unreadable: bool = False

    @property
    def paths(self) -> BackupPaths:
        return BackupPaths(self.repository, self.mark_id)


def list_backups(store: ObjectStore, repository: str = "") -> Iterator[ListedBackup]:
    """Yield the backups of a repository, or of all repositories, those of the newest mark first in each.

    What the store does not show, for example because of a symbolic link, is yielded as ``is_unreadable``. Folders that
    have no file are skipped: they are what a file system, and some stores (SeaweedFS), keep of a removed backup.
    """
    for name in [repository] if repository else repositories_in(store)[0]:
        try:
            folders = sorted(store.list_level(f"{name}/")[0])
        except LakeFSGCError as error:
            yield _unreadable(name, "", error)
            continue
        for folder in folders:
            try:
                paths = BackupPaths(name, folder.removeprefix(f"{name}/").rstrip("/"))
            except LakeFSGCError:
                continue  # not a folder of a backup
            try:
                listed = _listed(store, paths)
                if listed.created_at or not _is_empty(store, paths.folder):
                    yield listed
            except LakeFSGCError as error:
                yield _unreadable(name, paths.mark_id, error)


def _unreadable(repository: str, mark_id: str, error: LakeFSGCError) -> ListedBackup:
    return ListedBackup(repository, mark_id, None, 0, 0, "", "", f"not readable: {error.message}", is_unreadable=True)


def _is_empty(store: ObjectStore, folder: str) -> bool:
    """Return whether no object is below a folder."""
    return not any(batch.num_rows for batch in store.list(folder))


def repositories_in(store: ObjectStore) -> tuple[list[str], list[str]]:
    """Return the folders of the first level of a backup location that a repository may have, and all others."""
    names = [folder.rstrip("/") for folder in sorted(store.list_level("")[0])]
    possible = [name for name in names if re.fullmatch(REPOSITORY_NAME, name)]
    return possible, sorted({*names} - {*possible})


def _listed(store: ObjectStore, paths: BackupPaths) -> ListedBackup:
    try:
        backup = _manifest_in(store, paths)
    except (BackupError, CorruptFileError) as error:  # what else happens does not show that it is incomplete
        files = store.stat_many([paths.manifest, paths.began])
        problem = error.message if paths.manifest in files else "not complete"
        began = files[paths.began].last_modified if paths.began in files else None
        start = noted_start(store, paths) if began else None
        unfinished = ListedBackup(paths.repository, paths.mark_id, began, 0, 0, "", "", problem)
        if not start:
            return unfinished
        return replace(
            unfinished,
            mark_digest=start.mark_digest,
            namespace=start.namespace,
            misplaced=misplaced(start, paths),
            server=_endpoint_of(start),
            keep_days=start.keep_days or 0,
        )
    if why := misplaced(backup, paths):
        return ListedBackup(
            paths.repository, paths.mark_id, backup.created_at, 0, 0, "", backup.namespace, why, misplaced=why
        )
    return ListedBackup(
        paths.repository,
        paths.mark_id,
        backup.created_at,
        backup.objects,
        backup.copied_bytes,
        backup.mark_digest,
        backup.namespace,
        server=_endpoint_of(backup),
        keep_days=backup.keep_days or 0,
    )


def _endpoint_of(found: Backup | BackupStart) -> str:
    return (found.server or {}).get("endpoint_url", "")


def recorded_owner(store: ObjectStore, folder: str) -> tuple[str, str]:
    """Return the namespace and the repository that the records in the folder of a backup name.

    Both are empty if it has no record, and the repository is if an earlier version began the backup.

    Raise if one is damaged.
    """
    for file, kind in ((f"{folder}{MANIFEST}", Backup), (f"{folder}{BEGAN}", BackupStart)):
        try:
            found = kind.from_json(store.read(file), file)
        except ObjectNotFoundError:  # not complete
            continue
        return found.namespace, found.repository
    return "", ""


def find_backup(store: ObjectStore, mark_id: str, repository: str = "") -> Backup:
    """Return the backup of a mark. Without a repository, raise ``BackupError`` unless exactly one has such a backup."""
    if repository:
        paths_of_mark = BackupPaths(repository, mark_id)
        if not store.list_level(f"{repository}/")[0]:
            raise BackupError(
                f"Repository {repository} has no backup in {store.location.url}",
                remedy="Compare the name with those that `lakefs-gc backups` lists",
            )
        return read_backup(store, paths_of_mark)
    report_paths(mark_id)  # raises MarkError for an invalid id
    paths = [BackupPaths(name, mark_id) for name in repositories_in(store)[0]]
    manifests = store.stat_many([p.manifest for p in paths])
    complete = [p for p in paths if p.manifest in manifests]
    if len(complete) != 1:
        owners = f"{len(complete)} repositories have" if complete else "No repository has"
        raise BackupError(
            f"{owners} a complete backup of mark {mark_id} in {store.location.url}",
            remedy="Name the repository with --repository. `lakefs-gc backups` lists the backups",
        )
    return read_backup(store, complete[0])


def begin_backup(
    store: ObjectStore,
    mark: Mark,
    server: dict[str, str],
    now: Callable[[], datetime],
    keep_days: float,
    *,
    tries: int = 3,
) -> tuple[BackupStart, Backup | None]:
    """Write the note that a backup of a mark has begun, by which it is not pruned now, and later if it does not end.

    Return the note, and the manifest if the mark has a complete backup. ``server`` is the ``ServerIdentity`` as JSON. A
    backup that is continued is kept for as many days as it was begun with, or is being made with by another process, if
    ``keep_days`` are fewer.

    Raises ``BackupError`` if the folder has a backup of another mark, or of an unknown one. Marks of lakeFS's client
    may have the same id: on two servers, or because a setting (``lakefs.gc.mark_id``) names them all alike. Also raises
    it while a pruning may delete the copies of this mark (``removal.py``).
    """
    paths = BackupPaths(mark.repository, mark.mark_id)
    found = _record_in(store, paths)
    if found and (differing := _differing(found, mark, server)):
        raise BackupError(
            f"{store.location.folder_url}{paths.folder} has a backup of another mark with this id: {differing}",
            remedy="Move that folder out of the folder of the repository, or set backup.url to a location that only "
            "this server uses. Then back up again",
        )
    noted = noted_start(store, paths)
    days = max([keep_days, *(record.keep_days or 0 for record in (found, noted) if record)])
    note = BackupStart(mark.mark_id, mark.namespace, mark.digest, now().astimezone(UTC), mark.repository, server, days)
    if not store.put(paths.began, note.to_json(), if_absent=not found and not noted):
        # Another process has begun one since we looked. Its mark may have this id on another server.
        if tries <= 1:
            raise BackupError(
                f"{store.location.folder_url}{paths.began} exists, says the store when it is written, and does not "
                "exist when it is read",
                remedy="Find out what answers for the store, such as a proxy that keeps a 404, and wait until it is "
                f"right. Then run `{paths.command}` again",
            )
        return begin_backup(store, mark, server, now, keep_days, tries=tries - 1)
    refuse_removal(store, paths)
    return note, found if isinstance(found, Backup) else None


def _record_in(store: ObjectStore, paths: BackupPaths) -> Backup | BackupStart | None:
    """Return the manifest of a backup. If it has none, or a damaged one, return the note of its begin; None: neither.

    Raise ``BackupError`` if the only record is damaged: which mark the folder is of is unknown.
    """
    damaged: LakeFSGCError | None = None
    for file, kind in ((paths.manifest, Backup), (paths.began, BackupStart)):
        try:
            return kind.from_json(store.read(file), file)
        except ObjectNotFoundError:
            continue
        except (CorruptFileError, BackupError) as error:
            damaged = error
    if damaged is not None:
        raise BackupError(
            f"Which mark the backup in {store.location.folder_url}{paths.folder} is of is unknown: {damaged.message}",
            remedy="Bring the file back from an earlier version of the backup location, or move the folder away. Then "
            "back up again",
        )
    return None


def _differing(found: Backup | BackupStart, mark: Mark, server: dict[str, str]) -> str:
    """Return what shows that a record is of another mark; empty if nothing does."""
    compared = (
        ("digest", found.mark_digest, mark.digest),
        ("namespace", found.namespace, mark.namespace),
        ("server", found.server or server, server),  # an earlier version did not record it
    )
    return ", ".join(f"its {name} is {theirs}, not {ours}" for name, theirs, ours in compared if theirs != ours)
