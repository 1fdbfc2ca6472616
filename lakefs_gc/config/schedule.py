"""When the schedule marks each configured repository."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from lakefs_gc.config.section import Section


class ScheduleSettings(Section):
    """When the schedule marks each configured repository."""

    cron: str = Field(default="0 3 * * *", description="Cron expression, in the time zone of the schedule.")
    timezone: str = Field(default="UTC", description="IANA time zone of the cron expression.")

    @field_validator("timezone")
    @classmethod
    def _timezone_exists(cls, timezone: str) -> str:
        try:
            ZoneInfo(timezone)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"there is no time zone {timezone!r}; write one of IANA's, e.g. Europe/Berlin") from None
        return timezone
