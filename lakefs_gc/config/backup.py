"""Copies of what a sweep deletes."""

from __future__ import annotations

from pydantic import Field, field_validator

from lakefs_gc.config.section import Section, checked_url


class BackupSettings(Section):
    """Copies of what a sweep deletes: the undo."""

    url: str = Field(
        default="",
        description="Where backups go: s3://bucket/prefix or file:///folder, outside every repository's namespace.  "
        "Without it nothing can be backed up.",
    )
    required_before_sweep: bool = Field(
        default=False, description="Refuse to sweep a mark that has no complete, verified backup."
    )
    keep_days: float = Field(
        default=30.0,
        gt=0,
        description="How long a backup is kept after the sweep of its mark (after it was made, for a mark that nobody "
        "approved).  Removed at the end of the next backup, or by `lakefs-gc backups --prune`, if its mark is found.",
    )
    copies_at_once: int = Field(
        default=8,
        ge=1,
        le=256,
        description="Copies that one Spark task has under way.  One that is streamed needs up to 40 MiB.",
    )

    @field_validator("url")
    @classmethod
    def _url_can_be_opened(cls, url: str) -> str:
        return checked_url(url, "file:///", "s3://")
