"""Where the lakeFS server is, and the keys to it, as ``lakectl`` finds them."""

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
    """Where the lakeFS server is, and the keys to it.  The secret is hidden when printed."""

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
    """Credentials as ``lakectl`` finds them: its environment variables first, then ``~/.lakectl.yaml``.

    Raises ``ConfigurationError`` that names what is missing.
    """
    environment = os.environ if environment is None else environment
    file = (home or Path.home()) / ".lakectl.yaml"
    from_file = _read_lakectl_file(file)
    values = {field: environment.get(variable) or from_file.get(field, "") for field, variable in _VARIABLES.items()}
    missing = [_VARIABLES[field] for field, value in values.items() if not value]
    if missing:
        raise ConfigurationError(
            f"the lakeFS server is not configured: {', '.join(missing)} not set, and not in {file.name} either",
            remedy="set these variables, or run `lakectl config`",
        )
    return ServerCredentials(**{**values, "endpoint_url": server_root(values["endpoint_url"])})


def server_root(url: str) -> str:
    """The server's address without ``/api/v1``, which lakectl accepts with and without.

    Raises ``ConfigurationError`` for what is no URL, or has credentials in it: addresses are shown and logged.
    """
    url = url.strip()
    if has_credentials(url):
        raise ConfigurationError(
            "the lakeFS endpoint has credentials in its URL",
            remedy="remove what is before the @; the keys go to LAKECTL_CREDENTIALS_*",
        )
    if not re.match(r"https?://[^/]", url):
        raise ConfigurationError(
            # Not what it is: whoever mixes the settings up has the secret in it.
            "the lakeFS endpoint is not a URL",
            remedy="set LAKECTL_SERVER_ENDPOINT_URL; it must start with http:// or https://, and name a host",
        )
    return re.sub(r"(?<!:/)/api/v1/?$", "", url).rstrip("/")


def _read_lakectl_file(file: Path) -> dict[str, str]:
    if not file.exists():
        return {}
    try:
        content = yaml.safe_load(file.read_text("utf-8")) or {}
        credentials, server = content.get("credentials") or {}, content.get("server") or {}
        found = {
            "endpoint_url": server.get("endpoint_url"),
            "access_key_id": credentials.get("access_key_id"),
            "secret_access_key": credentials.get("secret_access_key"),
        }
    except (yaml.YAMLError, AttributeError, UnicodeDecodeError, RecursionError):
        # The parser's own message would quote the file, and with it the secret.
        raise ConfigurationError(f"{file} is not a lakectl configuration", remedy="run `lakectl config`") from None
    return {field: str(value) for field, value in found.items() if value}
