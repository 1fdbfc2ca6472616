"""What a restore did, as a file beside its backup: the proof that somebody can keep or check later."""

from __future__ import annotations

from dataclasses import field
from types import MappingProxyType
from typing import Any

from lakefs_gc.errors import BackupError
from lakefs_gc.formats.durable_record import SealedRecord, Time, record


@record
class RestoreRecord(SealedRecord):
    """The result of one restore. ``digest`` covers the rest.

    ``backup_digest`` and ``mark_digest`` name what was restored. The numbers are those of ``RestoreResult``;
    ``without_path`` is None if an earlier version wrote the file.
    """

    kind = "the result of a restore"
    current_version = 2
    version_keys = MappingProxyType({1: "format_version"})
    schema_version: int = field(default=2, kw_only=True)

    mark_id: str
    repository: str
    mark_digest: str
    backup_digest: str
    prefix: str
    ended_at: Time
    objects: dict[str, int]
    size_bytes: dict[str, int]
    checksums_compared: int
    read_through_lakefs: int
    shown_by_no_commit: int
    unreadable: int
    unreadable_metadata: int
    without_copy: int
    not_requested: int
    without_path: int | None
    errors: tuple[dict[str, str | int], ...]

    @classmethod
    def upgrade(cls, content: dict[str, Any], version: int, file: str) -> dict[str, Any]:
        """Return the fields. A result of version 1 does not have ``without_path``."""
        return content if version > 1 else content | {"without_path": None}

    @classmethod
    def changed(cls, file: str) -> BackupError:
        """Return the error for a result that was changed after it was written."""
        return BackupError(
            f"{file} was changed after it was written: its digest does not fit its content",
            remedy="Do not rely on it. Restore again: the objects are compared again",
        )
