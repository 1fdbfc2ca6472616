"""The settings of the schedule that marks each configured repository."""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from lakefs_gc.config.section import Section

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))


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

    @field_validator("cron")
    @classmethod
    def _cron_has_five_fields(cls, cron: str) -> str:
        """Refuse the usual mistakes here. Dagster knows every form: ``pipeline.automation.cron`` asks it."""
        fields = cron.split()
        if cron.startswith("@") and len(fields) == 1:
            return cron
        if len(fields) != len(_FIELDS):
            raise ValueError(
                f"{cron!r} has {len(fields)} fields instead of 5 (minute, hour, day, month, day of week). Every night "
                'at three is "0 3 * * *"'
            )
        for text, (name, least, most) in zip(fields, _FIELDS, strict=True):
            for number in re.findall(r"(?<![/#\w])\d+", text):
                if not least <= int(number) <= most:
                    raise ValueError(f"{cron!r}: the {name} is {number}, and must be from {least} to {most}")
        return cron

    @field_validator("timezone")
    @classmethod
    def _timezone_exists(cls, timezone: str) -> str:
        try:
            ZoneInfo(timezone)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"Unknown time zone {timezone!r}. Use an IANA name, e.g. Europe/Berlin") from None
        return timezone
