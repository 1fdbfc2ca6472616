"""The address and credentials of the lakeFS server, found in the same way as ``lakectl`` finds them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage.urls import has_credentials


class ServerCredentials(BaseModel):
    """The address and credentials of the lakeFS server. The secret is hidden when printed."""

    model_config = ConfigDict(frozen=True)

    endpoint_url: str
    access_key_id: str
    secret_access_key: str = Field(repr=False)


_VARIABLES = {
    "endpoint_url": "LAKECTL_SERVER_ENDPOINT_URL",
    "access_key_id": "LAKECTL_CREDENTIALS_ACCESS_KEY_ID",
    "secret_access_key": "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
}


def load_server_credentials(
    environment: Mapping[str, str] | None = None, home: Path | None = None
) -> ServerCredentials:
    """Return the credentials from lakectl's environment variables or, if unset, from ``~/.lakectl.yaml``.

    Raise ``ConfigurationError``, which names the missing variables.
    """
    environment = os.environ if environment is None else environment
    file = (home or Path.home()) / ".lakectl.yaml"
    from_file = _read_lakectl_file(file)
    values = {field: environment.get(variable) or from_file.get(field, "") for field, variable in _VARIABLES.items()}
    missing = [_VARIABLES[field] for field, value in values.items() if not value]
    if missing:
        raise ConfigurationError(
            f"The lakeFS server is not configured: {', '.join(missing)} not set, and not in {file.name} either",
            remedy="Set these variables, or run `lakectl config`",
        )
    return ServerCredentials(**{**values, "endpoint_url": server_root(values["endpoint_url"])})


def server_root(url: str) -> str:
    """Return the server's address without ``/api/v1``, which lakectl accepts with and without.

    Raise ``ConfigurationError`` if it is not a URL, or contains credentials: addresses are shown and logged.
    """
    url = url.strip()
    if has_credentials(url):
        raise ConfigurationError(
            "The URL of the lakeFS endpoint contains credentials",
            remedy="Remove the part before the @, and set LAKECTL_CREDENTIALS_* instead",
        )
    if not re.match(r"https?://[^/]", url):
        raise ConfigurationError(
            # The value is not shown: if the variables are mixed up, it is the secret.
            "The lakeFS endpoint is not a URL",
            remedy="Set LAKECTL_SERVER_ENDPOINT_URL to a URL that starts with http:// or https:// and names a host",
        )
    return re.sub(r"(?<!:/)/api/v1/?$", "", url).rstrip("/")


def _read_lakectl_file(file: Path) -> dict[str, str]:
    if not file.exists():
        return {}
    try:
        content = yaml.safe_load(file.read_text("utf-8")) or {}
        credentials, server = content.get("credentials") or {}, content.get("server") or {}
        values = {
            "endpoint_url": server.get("endpoint_url"),
            "access_key_id": credentials.get("access_key_id"),
            "secret_access_key": credentials.get("secret_access_key"),
        }
    except (yaml.YAMLError, AttributeError, UnicodeDecodeError, RecursionError):
        # The parser's own message would quote the file and thus the secret.
        raise ConfigurationError(f"{file} is not a lakectl configuration", remedy="Run `lakectl config`") from None
    return {field: str(value) for field, value in values.items() if value}
