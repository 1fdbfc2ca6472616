"""Runs ``backup``, ``restore`` and ``backups``. Imported late: Dagster and Spark take seconds to load."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from lakefs_gc.config import Settings, load_server_credentials
from lakefs_gc.engine.records.backups.location import (
    ListedBackup,
    backup_location_of,
    list_backups,
    open_backup_location,
    read_backup,
)
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.stored_marks import open_mark
from lakefs_gc.engine.run import RunContext, checked_store_time
from lakefs_gc.engine.undo import restore as stage
from lakefs_gc.engine.undo.pruning import Pruned, kept_facts, prune_backups
from lakefs_gc.engine.undo.restore_source import find_restore_source
from lakefs_gc.engine.workspace.workspace import Workspace, utc_now
from lakefs_gc.errors import BackupIncompleteError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.pipeline.assets.backup import BackupConfig
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc.pipeline.session import GCSession
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.open import open_store
from lakefs_gc.terminal.output import Output
from lakefs_gc.units import human_bytes

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BackedUp:
    """A backup as JSON for scripts. ``incomplete`` is the error to raise after its output."""

    facts: dict[str, Any]
    incomplete: BackupIncompleteError | None = None


def backup(settings: Settings, out: Output, repository: str, mark_id: str) -> BackedUp:
    """Back up a mark. Raises what the stage raises, except for objects that could not be copied."""
    server = LakeFSClient(load_server_credentials(), settings.lakefs)
    location = open_backup_location(settings, server)  # fails before Spark starts
    marked = open_mark(repository, mark_id, server, settings)
    paths = BackupPaths(repository, mark_id)
    about = {
        "mark_id": mark_id,
        "repository": repository,
        "mark_digest": marked.mark.digest,
        "location": f"{location.folder_url}{paths.folder}",
    }
    try:
        with GCSession.open(settings) as session, out.progress(f"backing up {mark_id}"):
            facts = session.backup(marked.mark.run_key, BackupConfig(mark_id=mark_id))
    except BackupIncompleteError as error:
        if "outcomes" not in error.facts:
            raise
        counts = {
            name: error.facts.get(name, empty) for name, empty in (("outcomes", {}), ("proofs", {}), ("errors", []))
        }
        return BackedUp({**about, **counts, "pruned": 0}, error)
    manifest = read_backup(open_store(location), paths)
    outcomes = {
        name: {"objects": objects, "size_bytes": facts[f"{name}_bytes"]} for name, objects in manifest.outcomes.items()
    }
    numbers = {"outcomes": outcomes, "proofs": manifest.proofs, "errors": [], "pruned": facts["pruned_backups"]}
    return BackedUp({**about, "mark_digest": manifest.mark_digest, **numbers})


def restore(
    settings: Settings, out: Output, mark_id: str, repository: str, prefix: str, from_server: str
) -> stage.RestoreResult:
    """Restore all objects of a backup, or those with a prefix."""
    server = LakeFSClient(load_server_credentials(), settings.lakefs)
    source = find_restore_source(settings, server, mark_id, repository, prefix, from_server)
    with TemporaryDirectory(prefix="lakefs-gc-") as folder, out.progress(f"restoring {mark_id}"):
        work_url = settings.work_url or f"file://{folder}/work"
        context = RunContext(
            compute=SparkResource(spark_config=dict(settings.spark)),
            connect=lambda: server,
            settings=settings,
            workspace=Workspace(work_url, utc_now, max_range_cache_bytes=settings.max_range_cache_bytes),
            clock=utc_now,
            open_store=open_store,
        )
        return stage.restore(context, source, prefix=prefix)


def restore_facts(result: stage.RestoreResult) -> dict[str, Any]:
    """Return a restore as JSON for scripts."""
    outcomes = {
        name: {"objects": objects, "size_bytes": result.size_bytes[name]} for name, objects in result.objects.items()
    }
    return {
        "mark_id": result.mark_id,
        "repository": result.repository,
        "outcomes": outcomes,
        "read_through_lakefs": result.read_through_lakefs,
        "shown_by_no_commit": result.shown_by_no_commit,
        "unreadable": result.unreadable,
        "unreadable_metadata": result.unreadable_metadata,
        "checksums_compared": result.checksums_compared,
        "missing": result.missing,
        "without_copy": result.without_copy,
        "not_requested": result.not_requested,
        "without_path": result.without_path,
        "record": result.record_url,
        "digest": result.digest,
        "errors": result.errors,
    }


def backups(settings: Settings, repository: str, *, prune: bool) -> dict[str, Any]:
    """Return the backups. With ``prune``, remove expired backups first."""
    store = open_store(backup_location_of(settings.backup))
    pruned = _prune(settings, store, repository) if prune else None
    facts: dict[str, Any] = {"backups": [_facts(listed) for listed in list_backups(store, repository)]}
    if repository and not facts["backups"] and not (pruned and pruned.removed):
        logger.warning("repository %s has no backup in %s", repository, store.location.url)
    if pruned:
        facts["removed"] = [listed.mark_id for listed in pruned.removed]
        facts["kept"] = [kept_facts(*each) for each in pruned.kept]
    return facts


def _prune(settings: Settings, store: ObjectStore, repository: str) -> Pruned:
    server = LakeFSClient(load_server_credentials(), settings.lakefs)
    open_backup_location(settings, server)
    now = checked_store_time(store, settings.safety, utc_now)
    return prune_backups(
        store,
        repository,
        settings.backup.keep_days,
        now,
        lambda namespace: open_store(settings.reach(namespace)),
        server.endpoint_url,
    )


def _facts(listed: ListedBackup) -> dict[str, Any]:
    return {
        "repository": listed.repository,
        "mark_id": listed.mark_id,
        "created_at": listed.created_at.isoformat(timespec="seconds") if listed.created_at else "",
        "objects": listed.objects,
        "size_bytes": listed.size_bytes,
        "size": human_bytes(listed.size_bytes),
        "mark_digest": listed.mark_digest,
        "state": listed.problem or "complete",
    }
