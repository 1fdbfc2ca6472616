"""The folders of a repository's runs in the workspace: which is the newest, and what of them may go.

All of it is said by one listing of the repository's folder, whatever the number of its runs.  Manifests are not read: a
damaged one must not keep newer runs from beginning.

Other things may lie in that folder, of people or of a repository whose namespace is there, too.  Only files with the
names that stages leave are ever removed, and of a folder without a listing only if there are no others in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lakefs_gc.engine.spark import schemas
from lakefs_gc.storage.base import ObjectStore

MANIFEST = "manifest.json"
MARK_RECORD = "mark_digest.json"
"""The digest of the mark that was made from a run: it stays, as the manifests of assets do."""
LISTING = "store_listing"

_FOLDER = re.compile(r"(?P<run>[A-Za-z0-9][A-Za-z0-9._-]{0,99})/(?P<rest>.+)", re.DOTALL)
_OF_STAGE = re.compile(
    rf"(?P<stage>(?:{'|'.join(schemas.BY_STAGE)}|foreign_files|twins|restore|look_[0-9]+)(?:_[a-z0-9_]+)?)"
    rf"/(?:(?P<manifest>{re.escape(MANIFEST)})|data/.+)",
    re.DOTALL,
)
"""A file of a stage, of what a stage keeps on its way (``sweep_plan``), or of a look of a sweep."""
_LEFT_BEHIND = timedelta(days=7)
"""How long nothing must have been written to a run without a listing before it is taken for one that ended.

Such a run may be under way elsewhere.  While it lists or sweeps it writes every few minutes, but a backup or a restore
reads for as long as it copies, which with very many objects takes days.  Were it removed too early the run would fail.
"""


@dataclass
class RunFolder:
    """A folder below a repository's, and what may go of it.

    ``listed_at`` is when its listing ended, on the store's clock; None for a run that was killed while it listed, and
    for the sweep of a mark that another tool made.  The manifests of assets are not ``removable``: by them a mark that
    waits for its approval is found.
    """

    run_key: str
    newest: datetime
    listed_at: datetime | None = None
    removable: list[str] = field(default_factory=list)
    only_stages: bool = True


def run_folders(store: ObjectStore, repository: str) -> dict[str, RunFolder]:
    """The folders of a repository in a workspace, by run key.  One listing."""
    above = f"{repository}/"
    found: dict[str, RunFolder] = {}
    for batch in store.list(above):
        times = batch.column("last_modified").to_pylist()
        for key, written_at in zip(batch.column("address").to_pylist(), times, strict=True):
            if place := _FOLDER.fullmatch(key.removeprefix(above)):
                run_key = above + place["run"]
                folder = found.setdefault(run_key, RunFolder(run_key, written_at))
                _add(folder, key, place["rest"], written_at)
    return found


def _add(folder: RunFolder, key: str, rest: str, written_at: datetime) -> None:
    folder.newest = max(folder.newest, written_at)
    if rest == MARK_RECORD:
        return
    of_stage = _OF_STAGE.fullmatch(rest)
    if of_stage is None:
        folder.only_stages = False
    elif not of_stage["manifest"] or of_stage["stage"] not in schemas.BY_STAGE:
        folder.removable.append(key)
    elif of_stage["stage"] == LISTING:
        folder.listed_at = written_at


def listed(folders: Collection[RunFolder]) -> list[RunFolder]:
    """Those whose listing has ended, the newest first."""
    # Where the store's clock has whole seconds, the name decides.
    ended = [(folder.listed_at, folder.run_key, folder) for folder in folders if folder.listed_at is not None]
    return [folder for *_, folder in sorted(ended, key=lambda one: one[:2], reverse=True)]


def left_behind(folders: Collection[RunFolder], store: ObjectStore) -> list[RunFolder]:
    """Those without a listing to which nothing was written for long."""
    unlisted = [folder for folder in folders if folder.listed_at is None and folder.only_stages and folder.removable]
    if not unlisted:
        return []
    before = store.now() - _LEFT_BEHIND
    return [folder for folder in unlisted if folder.newest < before]
