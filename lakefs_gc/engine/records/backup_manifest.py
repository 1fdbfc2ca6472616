"""Backups as they stand in their place: where each lies, what makes it complete, and how long it stays.

Below ``backup.url``, for a repository and a mark::

    <repository>/<mark>/began.json   written first
    <repository>/<mark>/objects/     the copies, under the addresses that they have in the namespace
    <repository>/<mark>/records/     Parquet: what happened to each object, durable chunk by chunk
    <repository>/<mark>/contents/    Parquet: the same, one row for each object of the mark
    <repository>/<mark>/backup.json  the manifest, written last: without it the backup is not complete
    <repository>/<mark>/restores/<time>.json  what each restore from it did

The manifest is bound to the mark by its digest, and to the contents by their checksums.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from lakefs_gc.engine.records.mark import MarkPart
from lakefs_gc.errors import BackupError, CorruptFileError
from lakefs_gc.formats.json_object import read_json_object
from lakefs_gc.formats.report import report_paths

_VERSION = 1

COPIED = "copied"
ALREADY_GONE = "already_gone"
FAILED = "failed"
OUTCOMES = (COPIED, ALREADY_GONE, FAILED)
"""What happened to an object of a mark: copied and proved the same; not there any more; or neither."""


@dataclass(frozen=True)
class BackupPaths:
    """Keys of one backup, relative to the place; folders end in a slash."""

    repository: str
    mark_id: str

    def __post_init__(self) -> None:
        """Raises ``MarkError`` for an id that could name another place, ``BackupError`` for such a repository."""
        report_paths(self.mark_id)
        if not self.repository or "/" in self.repository or self.repository.startswith("."):
            raise BackupError(f"{self.repository!r} is no repository", remedy="give its name as lakeFS shows it")

    @property
    def folder(self) -> str:
        return f"{self.repository}/{self.mark_id}/"

    @property
    def began(self) -> str:
        return f"{self.folder}began.json"

    @property
    def objects(self) -> str:
        return f"{self.folder}objects/"

    @property
    def records(self) -> str:
        return f"{self.folder}records/"

    @property
    def contents(self) -> str:
        return f"{self.folder}contents/"

    @property
    def manifest(self) -> str:
        return f"{self.folder}backup.json"


@dataclass(frozen=True)
class Backup:
    """The manifest of a complete backup.  ``outcomes`` and ``proofs`` count objects; ``digest`` covers the rest."""

    mark_id: str
    repository: str
    namespace: str
    mark_digest: str
    created_at: datetime
    parts: tuple[MarkPart, ...]
    outcomes: dict[str, int]
    copied_bytes: int
    proofs: dict[str, int]
    version: str
    digest: str = ""

    @property
    def paths(self) -> BackupPaths:
        return BackupPaths(self.repository, self.mark_id)

    @property
    def objects(self) -> int:
        """How many objects can be brought back."""
        return self.outcomes[COPIED]

    def sealed(self) -> Backup:
        """With its digest."""
        content = self._content()
        del content["digest"]
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        return replace(self, digest="sha256:" + hashlib.sha256(canonical).hexdigest())

    def to_json(self) -> bytes:
        return json.dumps(self._content(), indent=2, sort_keys=True).encode()

    def _content(self) -> dict[str, Any]:
        return asdict(self) | {"format_version": _VERSION, "created_at": self.created_at.isoformat()}

    @classmethod
    def from_json(cls, data: bytes, file: str) -> Backup:
        """Raises ``CorruptFileError`` for what is no manifest, ``BackupError`` for one that was changed."""
        try:
            content = read_json_object(data, file, "a manifest of a backup", remedy="make the backup again")
            if content.pop("format_version") != _VERSION:
                raise CorruptFileError(file, "written by another version of lakefs-gc", remedy="use that version")
            content["parts"] = tuple(MarkPart(**part) for part in content["parts"])
            content["created_at"] = datetime.fromisoformat(content["created_at"])
            backup = cls(**content)
            intact = backup.sealed().digest == backup.digest and backup.to_json() == data
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptFileError(
                file, f"not a manifest of a backup: {type(error).__name__}: {error}", remedy="make the backup again"
            ) from None
        if not intact:
            raise BackupError(
                f"{file} was changed after it was written: its digest does not fit its content",
                remedy="do not rely on this backup; make it again while the objects are still there",
            )
        return backup
