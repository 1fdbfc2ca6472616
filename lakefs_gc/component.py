"""lakefs-gc inside another Dagster project: a function and a component of ``dg``.

This module loads neither Spark nor the collector, so that ``dg`` can read the component without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dagster import Component, ComponentLoadContext, Definitions, Model, Resolvable
from pydantic import Field, field_validator

from lakefs_gc.config import Settings, load_settings, settings_from
from lakefs_gc.errors import ConfigurationError

if TYPE_CHECKING:
    from lakefs_gc.notify import Notify

__all__ = ["LakeFSGCComponent", "build_lakefs_gc_definitions"]

DEFAULT_KEY_PREFIX = "lakefs_gc"


def build_lakefs_gc_definitions(
    repositories: Sequence[str] | None = None,
    *,
    key_prefix: str | Sequence[str] = DEFAULT_KEY_PREFIX,
    settings: Settings | Mapping[str, Any] | None = None,
    notify: Notify | None = None,
) -> Definitions:
    """Return the assets, jobs, schedule and sensors of lakefs-gc for ``Definitions.merge`` with other definitions.

    - ``repositories``: the repositories that the schedule marks. Default: those of the settings.
    - ``key_prefix``: the prefix of the asset keys. All other names are derived from it, so that several of these
      definitions can be in one code location: ``<prefix>__gc_mark``, ``<prefix>__sweep_after_mark``.
    - ``settings``: the settings, or a mapping as in ``lakefs-gc.toml``. Default: those of ``lakefs-gc.toml``, as the
      command line reads them.
    - ``notify``: called with each event: a mark waits for approval, a check or a run failed, a mark was swept.

    Loads Spark, but starts neither Spark nor Java. Raises ``ConfigurationError`` for an invalid setting.
    """
    from lakefs_gc.pipeline.embedding import build_embedded_definitions  # loads Spark
    from lakefs_gc.pipeline.names import Names

    if settings is None:
        settings = load_settings()
    elif not isinstance(settings, Settings):
        settings = settings_from(settings, "settings")
    if repositories is not None:
        chosen = settings.model_dump(exclude_unset=True) | {"repositories": repositories}
        settings = settings_from(chosen, "build_lakefs_gc_definitions")
    return build_embedded_definitions(settings, Names.below(key_prefix), notify)


class LakeFSGCComponent(Component, Model, Resolvable):
    """Garbage collection for lakeFS: assets, jobs, a schedule and sensors for some repositories."""

    repositories: list[str] | None = Field(
        default=None, description="Repositories that the schedule marks. Default: those of the settings."
    )
    key_prefix: str = Field(
        default=DEFAULT_KEY_PREFIX,
        description="Prefix of the asset keys and the names of jobs and sensors: lakefs_gc, or lake/gc in two parts.",
    )
    settings: dict[str, Any] | None = Field(
        default=None, description="Settings as in lakefs-gc.toml. Default: the file lakefs-gc.toml."
    )

    @field_validator("settings")
    @classmethod
    def _settings_exist(cls, settings: dict[str, Any] | None) -> dict[str, Any] | None:
        """Refuse an unknown or invalid setting here, so that Dagster shows the line of the YAML file."""
        if settings is not None:
            try:
                settings_from(settings, "settings")
            except ConfigurationError as error:
                raise ValueError(error.message) from None
        return settings

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        """Return the definitions."""
        return build_lakefs_gc_definitions(
            self.repositories, key_prefix=self.key_prefix.split("/"), settings=self.settings
        )
