"""The namespace of a repository, opened, and a mark in it: for the assets and for the commands."""

from __future__ import annotations

from dataclasses import dataclass

from lakefs_gc.config import Settings
from lakefs_gc.engine.records.mark import Mark, read_mark
from lakefs_gc.engine.run import repository_of
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.formats.addresses import normalize_namespace
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.open import open_store


@dataclass(frozen=True)
class Namespace:
    """A repository's namespace: its URL with a final slash, and its open store."""

    url: str
    store: ObjectStore


@dataclass(frozen=True)
class Marked:
    """A mark and the open store of its namespace."""

    mark: Mark
    store: ObjectStore


def open_namespace(repository: str, server: LakeFSClient, settings: Settings) -> Namespace:
    """The namespace of a repository."""
    url = normalize_namespace(server.repository(repository).storage_namespace)
    return Namespace(url, open_store(settings.reach(url)))


def open_mark(repository: str, mark_id: str, server: LakeFSClient, settings: Settings) -> Marked:
    """The mark ``mark_id`` of a repository.  Raises ``MarkError``."""
    namespace = open_namespace(repository, server, settings)
    return Marked(read_mark(namespace.store, repository, namespace.url, mark_id), namespace.store)


def mark_of_run(run_key: str, mark_id: str, server: LakeFSClient, settings: Settings, workspace: Workspace) -> Marked:
    """The mark ``mark_id``, or the one that the run of this partition made when it is empty.

    Raises ``MarkError``, or ``InputOrderError`` when the run has no mark.
    """
    # A mark has the id of the server's uncommitted list that it was made from.
    mark_id = mark_id or str(workspace.manifest(run_key, "uncommitted").facts["run_id"])
    return open_mark(repository_of(run_key), mark_id, server, settings)
