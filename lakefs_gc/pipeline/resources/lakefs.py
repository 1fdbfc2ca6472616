"""The lakeFS server, as a Dagster resource."""

from __future__ import annotations

from dagster import ConfigurableResource
from pydantic import Field

from lakefs_gc.config import load_server_credentials, server_root
from lakefs_gc.lakefs.client import LakeFSClient


class LakeFSResource(ConfigurableResource[None]):
    """Credentials are read where the run is, as ``lakectl`` finds them; none of them is configuration of Dagster's."""

    endpoint_url: str = Field(
        default="", description="Server to use instead of LAKECTL_SERVER_ENDPOINT_URL; the keys stay the same."
    )

    def server(self) -> LakeFSClient:
        """A client of the server.  Raises ``ConfigurationError`` when it is not configured."""
        credentials = load_server_credentials()
        if self.endpoint_url:
            credentials = credentials.model_copy(update={"endpoint_url": server_root(self.endpoint_url)})
        return LakeFSClient(credentials)
