"""The settings of the code location, as a Dagster resource. The UI shows them for each run."""

from __future__ import annotations

from typing import Any

from dagster import ConfigurableResource

from lakefs_gc.config import Settings


class SettingsResource(ConfigurableResource[None]):
    """``values`` is a ``Settings`` as JSON."""

    values: dict[str, Any] = {}  # noqa: RUF012 - a pydantic field

    @classmethod
    def of(cls, settings: Settings) -> SettingsResource:
        """Return the resource for ``settings``."""
        return cls(values=settings.model_dump(mode="json", exclude_unset=True))

    def get(self) -> Settings:
        """Return the settings."""
        return Settings.model_validate(self.values)
