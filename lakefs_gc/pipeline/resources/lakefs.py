"""The lakeFS server, as a Dagster resource."""

from __future__ import annotations

from dagster import ConfigurableResource
from pydantic import Field, PrivateAttr

from lakefs_gc.config import LakeFSSettings, ServerCredentials, load_server_credentials, server_root
from lakefs_gc.lakefs.client import LakeFSClient


class LakeFSResource(ConfigurableResource[None]):
    """Reads the credentials in the process of the run, as ``lakectl`` does. Dagster's configuration has none."""

    endpoint_url: str = Field(
        default="", description="Server to use instead of LAKECTL_SERVER_ENDPOINT_URL, with the same keys."
    )

    connect_timeout_seconds: float = Field(
        default=LakeFSSettings().connect_timeout_seconds, description="lakefs.connect_timeout_seconds of the settings."
    )
    read_timeout_seconds: float = Field(
        default=LakeFSSettings().read_timeout_seconds, description="lakefs.read_timeout_seconds of the settings."
    )

    _last: tuple[ServerCredentials, LakeFSClient] | None = PrivateAttr(default=None)

    def server(self) -> LakeFSClient:
        """Return a client of the server, one for all stages of a run: it requests the content of a commit only once.

        Raises ``ConfigurationError`` if no server is configured.
        """
        credentials = load_server_credentials()
        if self.endpoint_url:
            credentials = credentials.model_copy(update={"endpoint_url": server_root(self.endpoint_url)})
        timeouts = LakeFSSettings(
            connect_timeout_seconds=self.connect_timeout_seconds, read_timeout_seconds=self.read_timeout_seconds
        )
        if self._last is None or self._last[0] != credentials:  # changed credentials take effect in the next stage
            self._last = credentials, LakeFSClient(credentials, timeouts)
        return self._last[1]
