"""How long to wait for the lakeFS server."""

from __future__ import annotations

from pydantic import Field

from lakefs_gc.config.section import Section

_DAY_SECONDS = 86400.0


class LakeFSSettings(Section):
    """How long to wait for the lakeFS server. Its URL and credentials are those of `lakectl`, not settings."""

    connect_timeout_seconds: float = Field(
        default=10.0,
        gt=0,
        le=_DAY_SECONDS,
        description="Seconds to wait until the lakeFS server accepts a connection. Each call makes up to five "
        "attempts. Raise it if errors name ConnectTimeoutError although the server is running.",
    )
    read_timeout_seconds: float = Field(
        default=600.0,
        gt=0,
        le=_DAY_SECONDS,
        description="Seconds to wait for the next bytes of an answer of the lakeFS server. Each call makes up to five "
        "attempts. One page of the list of uncommitted objects takes the server a minute by design, so a value below "
        "120 makes runs of large repositories fail. Raise it if errors name ReadTimeoutError, for example if the "
        "server lists active commits only synchronously.",
    )

    @property
    def timeouts_seconds(self) -> tuple[float, float]:
        """Return the timeouts for connecting and for reading, as the SDK takes them."""
        return self.connect_timeout_seconds, self.read_timeout_seconds
