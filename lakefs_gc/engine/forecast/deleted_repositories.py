"""Find folders that look like the namespace of a repository, but that no repository of this server uses.

lakeFS keeps the namespace when a repository is deleted. Two signs lead to such a folder: it lies beside the namespace
of a repository, or a run of this workspace recorded it. Both only report. Another lakeFS server, or a repository that
these credentials cannot see, may use the folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from lakefs_gc.config import REPOSITORY_NAME, Settings
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.workspace.run_folders import LISTING
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.lakefs.models import Repository
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation

MAX_FOLDERS = 1000
"""The folders beside namespaces that are checked below one parent. Each takes a request."""

_SIGNS = ("_lakefs/", "dummy")
"""A folder or an object with which lakeFS begins each namespace."""

OpenStore = Callable[[StoreLocation], ObjectStore]


@dataclass(frozen=True)
class UnusedNamespace:
    """A folder that looks like a namespace. ``newest`` is the time of its last change, None if it is empty."""

    url: str
    found_by: str
    objects: int
    size_bytes: int
    newest: datetime | None

    def to_facts(self) -> dict[str, Any]:
        """Return the folder as plain values."""
        return {**asdict(self), "newest": None if self.newest is None else self.newest.isoformat()}


@dataclass(frozen=True)
class Findings:
    """The unused namespaces, and each location that could not be read with the reason."""

    namespaces: list[UnusedNamespace]
    not_read: dict[str, str]


def find_unused_namespaces(
    repositories: Iterable[Repository], settings: Settings, open_store: OpenStore, workspace: Workspace | None
) -> Findings:
    """Return the folders that look like namespaces without a repository. Reads the size of every object in them."""
    names: set[str] = set()
    used: set[str] = set()
    not_read: dict[str, str] = {}
    for repository in repositories:
        names.add(repository.name)
        try:
            used.add(settings.reach(repository.storage_namespace).folder_url)
        except LakeFSGCError as error:
            not_read[repository.storage_namespace] = error.message
    suspects = _recorded(workspace, names, settings, not_read) if workspace else {}
    for parent in sorted({_parent(url) for url in used} - {""}):
        try:
            folders, _ = open_store(StoreLocation(parent)).list_level()
        except LakeFSGCError as error:
            not_read[parent] = error.message
            continue
        unused = [url for folder in folders if not _overlaps(url := parent + folder, used)]
        if len(unused) > MAX_FOLDERS:
            not_read[parent] = f"it has {len(unused):,} folders that are no namespace, more than {MAX_FOLDERS:,}"
            continue
        for url in unused:
            suspects.setdefault(url, "")
    found = []
    for url, record in sorted(suspects.items()):
        if _overlaps(url, used):
            continue
        try:
            namespace = _measure(url, record, open_store(StoreLocation(url)))
        except LakeFSGCError as error:
            not_read[url] = error.message
            continue
        if namespace is not None:
            found.append(namespace)
    return Findings(found, not_read)


def _recorded(workspace: Workspace, names: set[str], settings: Settings, not_read: dict[str, str]) -> dict[str, str]:
    """Return the namespaces of runs of repositories that do not exist any more, each with how it is known."""
    recorded = {}
    for name in workspace.repositories():
        if name in names or not re.fullmatch(REPOSITORY_NAME, name):
            continue
        try:
            run_key = next(workspace.listed_runs(name), "")
            if run_key:
                namespace = GCRun.of(workspace.manifest(run_key, LISTING)).namespace
                reason = f"run {run_key} collected repository {name}, which the server does not list"
                recorded[settings.reach(namespace).folder_url] = reason
        except LakeFSGCError as error:
            not_read[f"the namespace of {name}"] = error.message
    return recorded


def _parent(url: str) -> str:
    """Return the folder above a namespace; empty for a whole bucket."""
    scheme, _, path = url.rstrip("/").partition("://")
    above = path.rpartition("/")[0]
    return f"{scheme}://{above}/" if above.strip("/") else ""


def _overlaps(url: str, used: Iterable[str]) -> bool:
    return any(url.startswith(other) or other.startswith(url) for other in used)


def _measure(url: str, record: str, store: ObjectStore) -> UnusedNamespace | None:
    """Return the folder with its size; None if it does not look like a namespace."""
    folders, objects = store.list_level()
    signs = [sign for sign in _SIGNS if sign in (*folders, *objects["address"].to_pylist())]
    if not signs and not record:
        return None
    count = size_bytes = 0
    newest: datetime | None = None
    for batch in store.list():
        count += batch.num_rows
        size_bytes += pc.sum(batch["size"], min_count=0).as_py()
        newest = max(filter(None, (newest, pc.max(batch["last_modified"]).as_py())), default=None)
    if not count:
        return None
    found_by = record or f"it lies beside the namespace of a repository, and has {' and '.join(signs)}"
    return UnusedNamespace(url, found_by, count, size_bytes, newest)
