"""What a restore did, as a file beside its backup: the proof that somebody can keep or check later."""

from __future__ import annotations

from types import MappingProxyType

from lakefs_gc.errors import BackupError
from lakefs_gc.formats.durable_record import SealedRecord, Time, record


@record
class RestoreRecord(SealedRecord):
    """The result of one restore. ``digest`` covers the rest.

    ``backup_digest`` and ``mark_digest`` name what was restored. The numbers are those of ``RestoreResult``.
    """

    kind = "the result of a restore"
    version_keys = MappingProxyType({1: "format_version"})

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
    errors: tuple[dict[str, str | int], ...]

    @classmethod
    def changed(cls, file: str) -> BackupError:
        """Return the error for a result that was changed after it was written."""
        return BackupError(
            f"{file} was changed after it was written: its digest does not fit its content",
            remedy="Do not rely on it. Restore again: the objects are compared again",
        )
