"""The settings of backups: verified copies of the objects that a sweep deletes."""

from __future__ import annotations

from pydantic import Field, field_validator

from lakefs_gc.config.section import Section, checked_url

MOST_DAYS = 1_000_000
"""Of more, no time can be computed."""


class BackupSettings(Section):
    """Verified copies of the objects that a sweep deletes, so that they can be restored."""

    url: str = Field(
        default="",
        description="Location of the backups: s3://bucket/prefix, gs://bucket/path, file:///folder or "
        "https://ACCOUNT.blob.core.windows.net/container/path, outside the storage namespace of every repository. "
        "Empty: no backup can be made, and a deleted object cannot be restored from one.",
    )
    required_before_sweep: bool = Field(
        default=False,
        description="Refuse to sweep a mark until it has a complete, verified backup. Set it to true if a deletion "
        "must always be reversible. The backup reads and stores every marked byte once more.",
    )
    keep_days: float = Field(
        default=30.0,
        gt=0,
        le=MOST_DAYS,
        description="Days that a backup is kept after the sweep of its mark. For a mark that was never approved, the "
        "days count from the backup itself, or from when a pruning notices that another tool deleted objects of it. "
        "Expired backups are removed at the end of the next backup, or by `lakefs-gc backups --prune`, if their mark "
        "still exists. A smaller value frees space earlier and leaves less time to notice a wrong deletion. It is for "
        "new backups only: one stays for at least the days that it was made with. At most 1,000,000 (2,700 years): the "
        "times of more days cannot be computed.",
    )
    copies_at_once: int = Field(
        default=8,
        ge=1,
        le=256,
        description="Copies that one Spark task has in progress at the same time (1 to 256). A copy that the store "
        "cannot make itself is streamed through the task and needs up to 40 MiB of memory. A larger value is faster "
        "until memory or the store's request rate runs out.",
    )

    @field_validator("url")
    @classmethod
    def _url_can_be_opened(cls, url: str) -> str:
        return checked_url(url, "file:///", "s3://", "gs://", "https://")
