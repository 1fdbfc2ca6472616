"""The files of a backup: their keys, the manifest that makes the backup complete, and the note of its start.

Below ``backup.url``, for a repository and a mark::

    <repository>/<mark>/began.json   written first
    <repository>/<mark>/objects/     the copies, under the addresses that they have in the namespace
    <repository>/<mark>/records/     Parquet: what happened to each object, durable chunk by chunk
    <repository>/<mark>/contents/    Parquet: the same, one row for each object of the mark
    <repository>/<mark>/workers/     by these files Spark's workers know that their location is this one
    <repository>/<mark>/backup.json  the manifest, written last: without it the backup is not complete
    <repository>/<mark>/restores/<time>.json  what each restore from it did
    <repository>/<mark>/gone.json    when a pruning noticed that another tool may have swept the mark
    <repository>/<mark>/removals/    the notes of prunings that remove it (``removal.py``)

The manifest is bound to the mark by its digest, and to the contents by their checksums.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from lakefs_gc.config import REPOSITORY_NAME
from lakefs_gc.engine.records.mark import MarkPart
from lakefs_gc.errors import BackupError, CorruptFileError, LakeFSGCError, ObjectNotFoundError
from lakefs_gc.formats.durable_record import DurableRecord, SealedRecord, Time, record
from lakefs_gc.formats.ids import is_run_id
from lakefs_gc.formats.report import report_paths
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.local_folder import TEMPORARY

COPIED = "copied"
ALREADY_GONE = "already_gone"
FAILED = "failed"
OUTCOMES = (COPIED, ALREADY_GONE, FAILED)
"""What happened to an object of a mark: copied and verified, no longer in the store, or neither."""

SIZE_ONLY = "size only"
"""The proof of a copy whose original did not exist any more: it was compared with the size that the mark records."""

MANIFEST, BEGAN, OBJECTS = "backup.json", "began.json", "objects/"
FOLDERS = (OBJECTS, "records/", "contents/", "workers/", "restores/", "removals/")
"""What is in the folder of a backup. ``MANIFEST`` and ``BEGAN`` are its records."""

_VERSION = 3
"""The version of manifests and notes. Those of version 1 do not name the server, and the notes no repository. Those of
version 2 do not say for how long the backup is kept."""
_UNFINISHED = re.compile(rf"([^/]+)/([^/]+)/(?:objects/.+|(?:.+/)?{TEMPORARY.pattern})", re.DOTALL)
"""The keys of writes of a backup that did not end: only copies are uploaded in parts, all else is one request."""


@dataclass(frozen=True)
class BackupPaths:
    """Keys of one backup, relative to the backup location; folders end in a slash."""

    repository: str
    mark_id: str

    def __post_init__(self) -> None:
        """Raise ``MarkError`` or ``BackupError`` for an id or repository that could lead to another folder."""
        report_paths(self.mark_id)
        if not re.fullmatch(REPOSITORY_NAME, self.repository):
            raise BackupError(
                f"{self.repository!r} is not a repository name", remedy="Pass the name as lakeFS shows it"
            )

    @property
    def folder(self) -> str:
        return f"{self.repository}/{self.mark_id}/"

    @property
    def command(self) -> str:
        """What makes this backup, or continues it."""
        return f"lakefs-gc backup {self.repository} --mark {self.mark_id}"

    @property
    def began(self) -> str:
        return f"{self.folder}{BEGAN}"

    @property
    def objects(self) -> str:
        return f"{self.folder}{OBJECTS}"

    @property
    def records(self) -> str:
        return f"{self.folder}records/"

    @property
    def contents(self) -> str:
        return f"{self.folder}contents/"

    @property
    def workers(self) -> str:
        return f"{self.folder}workers/"

    @property
    def manifest(self) -> str:
        return f"{self.folder}{MANIFEST}"

    @property
    def gone(self) -> str:
        return f"{self.folder}gone.json"

    @property
    def removals(self) -> str:
        return f"{self.folder}removals/"

    def has_run_id(self, now: datetime) -> bool:
        """Return whether the mark has an id as lakeFS gives to runs. Marks of lakeFS's own client may have others."""
        return is_run_id(self.mark_id, now)

    @classmethod
    def of_unfinished(cls, key: str) -> BackupPaths | None:
        """Return the backup to whose layout the key of an upload, or of a temporary file, fits; None if to none."""
        found = _UNFINISHED.fullmatch(key)
        try:
            return cls(found[1], found[2]) if found else None
        except LakeFSGCError:
            return None


@record
class Backup(SealedRecord):
    """The manifest of a complete backup. ``outcomes`` and ``proofs`` count objects; ``digest`` covers the rest.

    ``server`` is the ``ServerIdentity`` of the mark as JSON, and ``keep_days`` for how long the backup is kept at
    least, whatever the settings of the machine that prunes are. None if an earlier version wrote the manifest.
    """

    kind = "a manifest of a backup"
    current_version = _VERSION
    version_keys = MappingProxyType({1: "format_version"})
    remedy = "Back the mark up again"

    mark_id: str
    repository: str
    namespace: str
    mark_digest: str
    created_at: Time
    parts: tuple[MarkPart, ...]
    outcomes: dict[str, int]
    copied_bytes: int
    proofs: dict[str, int]
    version: str
    server: dict[str, str] | None = None
    keep_days: float | None = None
    schema_version: int = field(default=_VERSION, kw_only=True)

    @property
    def paths(self) -> BackupPaths:
        return BackupPaths(self.repository, self.mark_id)

    @property
    def objects(self) -> int:
        """How many objects can be restored."""
        return self.outcomes[COPIED]

    @classmethod
    def upgrade(cls, content: dict[str, Any], version: int, file: str) -> dict[str, Any]:
        """Return the fields. A manifest of version 1 names no server, and only one of version 3 has ``keep_days``."""
        return _unknown(version, {"server": None}) | content

    @classmethod
    def changed(cls, file: str) -> BackupError:
        """Return the error for a manifest that was changed after it was written."""
        return BackupError(
            f"{file} was changed after it was written: its digest does not fit its content",
            remedy="Do not rely on this backup. Back the mark up again while its objects exist",
        )


@record
class BackupStart(DurableRecord):
    """The note that a backup was begun, by which an unfinished one is found and pruned.

    If an earlier version wrote the note, ``repository`` is empty. ``server`` and ``keep_days`` are those of the
    manifest.
    """

    kind = "the note of a backup"
    current_version = _VERSION
    version_keys = MappingProxyType({1: None})
    remedy = "Restore it from an earlier version of the backup location, or delete the folder of the backup"
    sorted_fields = False

    mark_id: str
    namespace: str
    mark_digest: str
    began_at: Time
    repository: str = ""
    server: dict[str, str] | None = None
    keep_days: float | None = None
    schema_version: int = field(default=_VERSION, kw_only=True)

    @classmethod
    def upgrade(cls, content: dict[str, Any], version: int, file: str) -> dict[str, Any]:
        """Return the fields. A note of version 1 names no repository and no server, and none before 3 ``keep_days``."""
        return _unknown(version, {"repository": "", "server": None}) | content


def noted_start(store: ObjectStore, paths: BackupPaths) -> BackupStart | None:
    """Return the note of the begin of a backup; None if there is none, or only a damaged one."""
    try:
        return BackupStart.from_json(store.read(paths.began), paths.began)
    except (ObjectNotFoundError, CorruptFileError):
        return None


def _unknown(version: int, since_version_2: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that a record of an earlier version lacks."""
    return (since_version_2 if version == 1 else {}) | ({"keep_days": None} if version < _VERSION else {})
