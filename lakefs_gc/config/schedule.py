"""The settings of the schedule that marks each configured repository."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from lakefs_gc.config.section import Section


class ScheduleSettings(Section):
    """When the schedule marks each configured repository."""

    cron: str = Field(
        default="0 3 * * *",
        description="Cron expression (five fields) that says when the schedule marks every repository in "
        "`repositories`. Choose a time when the lakeFS server is not busy. A shorter interval finds garbage earlier "
        "and costs one listing per run.",
    )
    timezone: str = Field(
        default="UTC",
        description="IANA time zone in which `cron` is read, e.g. Europe/Berlin. In a zone with daylight saving time, "
        "the schedule moves with the local clock.",
    )

    @field_validator("timezone")
    @classmethod
    def _timezone_exists(cls, timezone: str) -> str:
        try:
            ZoneInfo(timezone)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"Unknown time zone {timezone!r}. Use an IANA name, e.g. Europe/Berlin") from None
        return timezone
