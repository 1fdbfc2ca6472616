"""The folders of a repository's runs in the workspace: which run is the newest, and which files may be removed.

One listing of the repository's folder answers both, for any number of runs. Manifests are not read, because a damaged
manifest must not prevent newer runs from starting.

The folder may also contain files of people, or of a repository whose namespace is in it. Only files with the names of
stage files are removed. A folder without a store listing is removed only if it contains no other files.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lakefs_gc.engine.spark import schemas
from lakefs_gc.storage.base import ObjectStore, written_at

MANIFEST = "manifest.json"
MARK_RECORD = "mark_digest.json"
"""The digest of the mark that was made from a run. It is never pruned, and neither are the manifests of assets."""
LISTING = "store_listing"

_FOLDER = re.compile(r"(?P<run>[A-Za-z0-9][A-Za-z0-9._-]{0,99})/(?P<rest>.+)", re.DOTALL)
_STAGE_FILE = re.compile(
    rf"(?P<stage>(?:{'|'.join(schemas.BY_STAGE)}|foreign_files|twins|restore|look_[0-9]+)(?:_[a-z0-9_]+)?)"
    rf"/(?:(?P<manifest>{re.escape(MANIFEST)})|data/.+)",
    re.DOTALL,
)
"""A file of a stage, of an intermediate table of a stage (``sweep_plan``), or of a second look of a sweep."""
_ABANDONED_AFTER = timedelta(days=7)
"""The time since the last write to a run without a store listing after which the run counts as ended.

Such a run may be in progress on another machine. While it lists or sweeps, it writes every few minutes. A backup or a
restore may copy for days before it writes again, and would fail if its files were removed.
"""


@dataclass
class RunFolder:
    """The folder of a run, and the files in it that may be removed.

    ``listed_at`` is the time at which its store listing ended, on the store's clock. It is None for a run that was
    killed during the listing, and for the sweep of a mark that another tool made. The manifests of assets are not
    ``removable``, because a mark that waits for its approval is found by them.
    """

    run_key: str
    last_write: datetime
    listed_at: datetime | None = None
    removable: list[str] = field(default_factory=list)
    has_only_stages: bool = True


def run_folders(store: ObjectStore, repository: str) -> dict[str, RunFolder]:
    """Return the folders of a repository in a workspace, by run key. Takes one listing."""
    parent = f"{repository}/"
    folders: dict[str, RunFolder] = {}
    for batch in store.list(parent):
        for key, at in written_at(batch).items():
            if match := _FOLDER.fullmatch(key.removeprefix(parent)):
                run_key = parent + match["run"]
                folder = folders.setdefault(run_key, RunFolder(run_key, at))
                _add(folder, key, match["rest"], at)
    return folders


def _add(folder: RunFolder, key: str, rest: str, written_at: datetime) -> None:
    folder.last_write = max(folder.last_write, written_at)
    if rest == MARK_RECORD:
        return
    stage_file = _STAGE_FILE.fullmatch(rest)
    if stage_file is None:
        folder.has_only_stages = False
    elif not stage_file["manifest"] or stage_file["stage"] not in schemas.BY_STAGE:
        folder.removable.append(key)
    elif stage_file["stage"] == LISTING:
        folder.listed_at = written_at


def listed(folders: Collection[RunFolder]) -> list[RunFolder]:
    """Return the folders of runs whose store listing ended, newest first."""
    # If the store's times are whole seconds, the name decides.
    ended = [(folder.listed_at, folder.run_key, folder) for folder in folders if folder.listed_at is not None]
    return [folder for *_, folder in sorted(ended, key=lambda one: one[:2], reverse=True)]


def abandoned(folders: Collection[RunFolder], store: ObjectStore) -> list[RunFolder]:
    """Return the folders without a store listing whose last write is longer ago than ``_ABANDONED_AFTER``."""
    unlisted = [f for f in folders if f.listed_at is None and f.has_only_stages and f.removable]
    if not unlisted:
        return []
    limit = store.now() - _ABANDONED_AFTER
    return [folder for folder in unlisted if folder.last_write < limit]
