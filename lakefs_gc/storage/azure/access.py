"""The URLs of Azure Blob Storage, and which endpoint and credentials lead to the account of one.

lakeFS writes a namespace as ``https://ACCOUNT.blob.core.windows.net/container/path``, and reads the account from the
first label of the host, and container and path from the decoded path (``pkg/block/azure/adapter.go``).

The variables are those of the Azure CLI (Microsoft Learn, "az storage"): AZURE_STORAGE_CONNECTION_STRING, or
AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, and AZURE_STORAGE_SERVICE_ENDPOINT. They apply
to the account that they name, and to no other: requests about one account that reach another one would list and delete
there. All other accounts use the standard credential chain (``DefaultAzureCredential``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from azure.core.credentials import AzureSasCredential
from azure.identity import DefaultAzureCredential
from azure.storage.blob import BlobServiceClient

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage.urls import has_credentials

_EXAMPLE = "Write https://ACCOUNT.blob.core.windows.net/container/path"
_HTTP_URL = re.compile(r"https?://(?P<host>[^/?]*)/+(?P<path>[^?]*)", re.IGNORECASE)
# Account names have lower-case letters and digits only, so no host of a secondary endpoint matches (ACCOUNT-secondary).
_VENDOR_HOST = re.compile(
    r"(?P<account>[a-z0-9]{3,24})\.(?P<zone>(?:privatelink|z\d{1,2})\.)?(?:blob|dfs)\."
    r"(?P<domain>core\.windows\.net|core\.chinacloudapi\.cn|core\.usgovcloudapi\.net|storage\.azure\.net)"
)
_CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"
_ACCOUNT, _ENDPOINT = "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_SERVICE_ENDPOINT"
_KEY, _SAS = "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"


@dataclass(frozen=True)
class BlobFolder:
    """A folder of a container. ``root`` is the prefix of all its blobs: empty, or ending in a slash."""

    account: str
    host: str
    container: str
    root: str


def blob_folder(url: str) -> BlobFolder:
    """Return the account, container and prefix that a URL names, as lakeFS reads it.

    Raise ``ConfigurationError`` for a URL without an account or a container, or with a path that is no plain folder.
    """
    if has_credentials(url):
        raise ConfigurationError("The URL of a container has user information before its host", remedy=_EXAMPLE)
    match = _HTTP_URL.fullmatch(url)
    if match is None:
        raise ConfigurationError(f"{url!r} does not name a container of Azure Blob Storage", remedy=_EXAMPLE)
    container, _, path = _decoded(match["path"], url).strip("/").partition("/")
    host = match["host"].lower().removesuffix(":443")
    account, dot, _ = host.partition(".")
    if not (account and dot and container):
        raise ConfigurationError(f"{url!r} does not name an account and a container", remedy=_EXAMPLE)
    parts = path.split("/") if path else []
    if any(part in ("", ".", "..") for part in parts) or not re.fullmatch(r"\$?[a-z0-9-]+", container):
        raise ConfigurationError(
            f"{url!r} has an empty, '.' or '..' part, or an invalid name of a container", remedy=_EXAMPLE
        )
    return BlobFolder(account, host, container, "".join(f"{part}/" for part in parts))


def _decoded(path: str, url: str) -> str:
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{url!r} is not valid UTF-8 when it is decoded", remedy=_EXAMPLE) from error


@dataclass(frozen=True)
class Access:
    """Where the requests about an account go, and the credential for it. ``sas`` is its signature, or empty."""

    endpoint: str
    credential: Any
    sas: str = ""


def find_access(folder: BlobFolder, environment: Mapping[str, str] | None = None) -> Access:
    """Return the endpoint and the credential of the account of ``folder``.

    Raise ``ConfigurationError`` if the variables contradict each other or name no account, or if the host of an account
    that they do not name is none of Azure's: a token must not be sent to any host that a namespace names.
    """
    variables = os.environ if environment is None else environment
    if text := variables.get(_CONNECTION_STRING, ""):
        account, access = _from_connection_string(text)
        if account == folder.account:
            return access
    account = variables.get(_ACCOUNT, "").lower()
    if not account and any(variables.get(name) for name in (_KEY, _SAS, _ENDPOINT)):
        raise ConfigurationError(
            f"{_KEY}, {_SAS} or {_ENDPOINT} is set, but not {_ACCOUNT}, so the account that it is for is unknown",
            remedy=f"Set {_ACCOUNT} to the name of the account",
        )
    is_named = account == folder.account
    endpoint = variables.get(_ENDPOINT, "").rstrip("/") if is_named else ""
    if endpoint:
        _check_endpoint(endpoint, account)
    else:
        endpoint = _vendor_endpoint(folder)
    if is_named and (key := variables.get(_KEY)):
        return Access(endpoint, {"account_name": account, "account_key": key})
    if is_named and (sas := variables.get(_SAS, "").lstrip("?")):
        return Access(endpoint, AzureSasCredential(sas), sas)
    return Access(endpoint, DefaultAzureCredential())


def _vendor_endpoint(folder: BlobFolder) -> str:
    match = _VENDOR_HOST.fullmatch(folder.host)
    if match is None:
        raise ConfigurationError(
            f"{folder.host} is not a host of Azure Blob Storage, so no credentials are sent to it",
            remedy=f"Set {_ACCOUNT}={folder.account} and {_ENDPOINT} to the URL of the account, or "
            f"{_CONNECTION_STRING}",
        )
    return f"https://{match['account']}.{match['zone'] or ''}blob.{match['domain']}"


def _check_endpoint(endpoint: str, account: str) -> None:
    """Raise ``ConfigurationError`` unless requests to ``endpoint`` can reach ``account`` only."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or has_credentials(endpoint):
        raise ConfigurationError(
            f"The endpoint of the account {account} is not a plain URL",
            remedy=f"Write {_ENDPOINT}=https://{account}.blob.core.windows.net, and a signature into {_SAS}",
        )
    of_vendor = _VENDOR_HOST.fullmatch(parts.hostname.lower())
    in_url = parts.path.strip("/") or (of_vendor["account"] if of_vendor else account)
    if in_url != account:
        raise ConfigurationError(
            f"The endpoint is that of the account {in_url}, but the variables name the account {account}. Objects of "
            "the wrong account would be listed and deleted",
            remedy=f"Set {_ACCOUNT} and {_ENDPOINT}, or {_CONNECTION_STRING}, to the same account",
        )


def _from_connection_string(text: str) -> tuple[str, Access]:
    """Return the account of a connection string, and the access to it. No error shows any part of it."""
    invalid = ConfigurationError(
        f"{_CONNECTION_STRING} cannot be read",
        remedy="Copy it from the account's page `Access keys`, or from `az storage account show-connection-string`",
    )
    try:
        service = BlobServiceClient.from_connection_string(text)
    except (ValueError, KeyError, AttributeError):
        raise invalid from None
    fields = {name.lower(): value for name, _, value in (field.partition("=") for field in text.split(";"))}
    endpoint, _, query = str(service.url).partition("?")
    endpoint = endpoint.rstrip("/")
    host = urlsplit(endpoint).hostname or ""
    account = (fields.get("accountname") or service.account_name or host.partition(".")[0]).lower()
    _check_endpoint(endpoint, account)
    if sas := fields.get("sharedaccesssignature", "").lstrip("?") or query:
        return account, Access(endpoint, AzureSasCredential(sas), sas)
    if service.credential is None:
        raise invalid
    key = service.credential.account_key
    return account, Access(endpoint, {"account_name": account, "account_key": key})
