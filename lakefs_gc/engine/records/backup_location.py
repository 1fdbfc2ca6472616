"""The backup location: opening it, and finding, counting and reading the backups in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import pyarrow.compute as pc

from lakefs_gc.config import BackupSettings, Settings
from lakefs_gc.engine.records.backup_manifest import Backup, BackupPaths, BackupStart
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.errors import BackupError, ConfigurationError, LakeFSGCError, ObjectNotFoundError
from lakefs_gc.formats.addresses import namespaces_overlap, normalize_namespace
from lakefs_gc.formats.report import report_paths
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.fan_out import list_concurrently
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store


def open_backup_location(settings: Settings, server: LakeFSClient) -> StoreLocation:
    """Where backups go, after a look that it is there and in no repository's way.

    Raises ``ConfigurationError`` when none is configured, ``BackupError`` when it lies in the namespace of any
    repository (or contains one), and ``ObjectNotFoundError`` when its bucket or folder is not there.
    """
    location = backup_location_of(settings.backup)
    for repository in server.repositories():
        namespace = normalize_namespace(repository.storage_namespace)
        reached = {namespace, settings.locate(namespace).folder_url}
        if any(_overlaps(location.folder_url, url) for url in reached):
            raise BackupError(
                f"backups in {location.url} would lie in the namespace of {repository.name} ({namespace}), or around "
                "it: what a collector does to the one would happen to the other",
                remedy="set backup.url to a bucket or folder that no repository uses",
            )
    # An empty folder may be a disk that is not mounted, so nothing is made here.
    try:
        open_store(location).list_level("")
    except ObjectNotFoundError as error:
        raise ObjectNotFoundError(
            f"the place of the backups is not there: {error.message}",
            remedy="make the bucket or the folder that backup.url names; is it mounted?",
        ) from error
    return location


def backup_location_of(backup: BackupSettings) -> StoreLocation:
    """The configured place.  Raises ``ConfigurationError`` when there is none."""
    if not backup.url:
        raise ConfigurationError(
            "there is no place for backups",
            remedy="set backup.url in lakefs-gc.toml: s3://bucket/prefix or file:///folder, outside every namespace",
        )
    return StoreLocation(backup.url)


def _overlaps(left: str, right: str) -> bool:
    return namespaces_overlap(_resolved(left), _resolved(right))


def _resolved(url: str) -> str:
    """A local folder without symbolic links, by which one folder has many names."""
    path = url.removeprefix("file://")
    return url if path == url else f"file://{Path(path).resolve()}/"


def read_backup(store: ObjectStore, paths: BackupPaths) -> Backup:
    """The manifest of a complete backup.  Raises ``BackupError`` when there is none, or it is of something else."""
    try:
        data = store.read(paths.manifest)
    except ObjectNotFoundError:
        raise BackupError(
            f"mark {paths.mark_id} of {paths.repository} has no complete backup in {store.location.url}",
            remedy=f"`lakefs-gc backup {paths.repository} --mark {paths.mark_id}`: it goes on where it stopped",
        ) from None
    backup = Backup.from_json(data, paths.manifest)
    if (backup.repository, backup.mark_id) != (paths.repository, paths.mark_id):
        raise BackupError(
            f"{paths.manifest} is the backup of mark {backup.mark_id} of {backup.repository}",
            remedy="somebody moved it; move it back",
        )
    return backup


def require_backup(settings: Settings, mark: Mark) -> Backup | None:
    """Before a sweep: the backup that the policy demands, or None when it demands none.

    The policy is that of the settings that made the mark as well as of these: a sweep may be started from another
    machine, or from another folder, with other settings or none.
    Raises ``BackupError`` when the mark has none that is whole: its manifest is bound to this very mark, and as many
    objects and bytes as it says are there.
    """
    if not (settings.backup.required_before_sweep or mark.needs_backup):
        return None
    store = open_store(backup_location_of(settings.backup))
    backup = read_backup(store, BackupPaths(mark.repository, mark.mark_id))
    again = f"`lakefs-gc backup {mark.repository} --mark {mark.mark_id}`"
    if backup.mark_digest != mark.digest:
        raise BackupError(
            f"the backup of mark {mark.mark_id} was made of {backup.mark_digest}, but the mark is {mark.digest}",
            remedy=again,
        )
    objects, size_bytes = _count(store, backup.paths.objects)
    if objects < backup.objects or size_bytes < backup.copied_bytes:
        raise BackupError(
            f"the backup of mark {mark.mark_id} had {backup.objects} objects ({backup.copied_bytes} bytes), but "
            f"{objects} ({size_bytes} bytes) are there",
            remedy=f"find out what deletes them (a lifecycle rule?), then {again}",
        )
    return backup


def _count(store: ObjectStore, folder: str) -> tuple[int, int]:
    """Objects and bytes below ``objects/``: slice by slice, many at once, and what lies beside the slices."""
    folders, loose = store.list_level(folder)
    levels = [store.list_level(below) for below in folders]
    slices = [prefix for prefixes, _ in levels for prefix in prefixes]
    objects = size_bytes = 0
    for batch in chain([loose], (beside for _, beside in levels), list_concurrently(store, slices)):
        objects += batch.num_rows
        size_bytes += pc.sum(batch.column("size"), min_count=0).as_py()
    return objects, size_bytes


@dataclass(frozen=True)
class Listed:
    """One backup in a listing.  ``problem`` says why it is not complete; then the numbers are zero.

    ``namespace`` is that of the mark; empty where nothing says it.
    """

    repository: str
    mark_id: str
    created_at: datetime | None
    objects: int
    size_bytes: int
    mark_digest: str
    namespace: str
    problem: str = ""

    @property
    def paths(self) -> BackupPaths:
        return BackupPaths(self.repository, self.mark_id)


def list_backups(store: ObjectStore, repository: str = "") -> Iterator[Listed]:
    """The backups of a repository, or of all, newest mark first in each."""
    repositories = [repository] if repository else [f.rstrip("/") for f in sorted(store.list_level("")[0])]
    for name in repositories:
        for folder in sorted(store.list_level(f"{name}/")[0]):
            try:
                paths = BackupPaths(name, folder.removeprefix(f"{name}/").rstrip("/"))
            except LakeFSGCError:
                continue  # nothing of ours
            yield _listed(store, paths)


def _listed(store: ObjectStore, paths: BackupPaths) -> Listed:
    try:
        backup = read_backup(store, paths)
    except LakeFSGCError as error:
        there = store.stat_many([paths.manifest, paths.began])
        problem = error.message if paths.manifest in there else "not complete"
        began = there[paths.began].last_modified if paths.began in there else None
        namespace = _noted_namespace(store, paths) if began else ""
        return Listed(paths.repository, paths.mark_id, began, 0, 0, "", namespace, problem)
    return Listed(
        paths.repository,
        paths.mark_id,
        backup.created_at,
        backup.objects,
        backup.copied_bytes,
        backup.mark_digest,
        backup.namespace,
    )


def _noted_namespace(store: ObjectStore, paths: BackupPaths) -> str:
    try:
        return BackupStart.from_json(store.read(paths.began), paths.began).namespace
    except LakeFSGCError:
        return ""


def find_backup(store: ObjectStore, mark_id: str, repository: str = "") -> Backup:
    """The backup of a mark, whose repository need not be said.  Raises ``BackupError``."""
    if repository:
        return read_backup(store, BackupPaths(repository, mark_id))
    report_paths(mark_id)  # refuses what is no id
    names = [folder.rstrip("/") for folder in store.list_level("")[0]]
    paths = [BackupPaths(name, mark_id) for name in names if not name.startswith(".")]
    there = store.stat_many([p.manifest for p in paths])
    found = [p for p in paths if p.manifest in there]
    if len(found) != 1:
        said = f"{len(found)} repositories have" if found else "no repository has"
        raise BackupError(
            f"{said} a complete backup of mark {mark_id} in {store.location.url}",
            remedy="name one with --repository; `lakefs-gc backups` lists what is there",
        )
    return read_backup(store, found[0])


def note_backup_start(store: ObjectStore, mark: Mark, now: Callable[[], datetime]) -> None:
    """Leave a note that a backup of this mark is being made, by which an unfinished one is found and pruned."""
    note = BackupStart(mark.mark_id, mark.namespace, mark.digest, now().astimezone(UTC))
    store.put(BackupPaths(mark.repository, mark.mark_id).began, note.to_json())
