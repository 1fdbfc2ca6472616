"""Reads marks for ``show`` and ``history``. Needs no Dagster."""

from __future__ import annotations

import json
from typing import Any

from lakefs_gc.config import Settings, load_server_credentials
from lakefs_gc.engine.records.check import failed_checks
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_history import history_of
from lakefs_gc.engine.records.stored_marks import Marked, open_mark, open_namespace
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.base import ObjectStore


def mark_facts(mark: Mark) -> dict[str, Any]:
    """Return a mark as JSON for scripts."""
    return {
        "mark_id": mark.mark_id,
        "repository": mark.repository,
        "location": mark.location,
        "digest": mark.digest,
        "listed": mark.counts.get("store_listing"),
        "committed": mark.counts.get("committed"),
        "uncommitted": mark.counts.get("uncommitted"),
        "only": mark.only.value,
        "candidates": mark.candidates,
        "candidate_bytes": mark.candidate_bytes,
        "deleted_bytes": mark.run.get("deleted_bytes", "unknown"),
        "not_lakefs": mark.run.get("not_lakefs"),
        "not_lakefs_bytes": mark.run.get("not_lakefs_bytes"),
        "named_at_root": mark.named_at_root,
        "cutoff": mark.cutoff.isoformat(),
        "failed_checks": [
            {"name": check.name, "severity": check.severity.value, "message": check.message}
            for check in failed_checks(mark.checks)
        ],
        # The former key, for one release.
        "brakes": [
            {"name": check.name, "message": check.message, "blocks": check.blocks_sweep}
            for check in failed_checks(mark.checks)
        ],
    }


def history(settings: Settings, repository: str, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the newest marks of a repository, newest first, with their states (``state_of``), or unreadable."""
    server = LakeFSClient(load_server_credentials(), settings.lakefs)
    namespace = open_namespace(repository, server, settings)
    return history_of(namespace.store, repository, namespace.url, limit)


def find_mark(settings: Settings, repository: str, mark_id: str) -> Marked:
    """Return the mark ``mark_id`` of a repository, with its store."""
    return open_mark(repository, mark_id, LakeFSClient(load_server_credentials(), settings.lakefs), settings)


def read_json(store: ObjectStore, key: str) -> dict[str, Any]:
    """Read a file of a namespace that contains one JSON object."""
    content: dict[str, Any] = json.loads(store.read(key))
    return content
