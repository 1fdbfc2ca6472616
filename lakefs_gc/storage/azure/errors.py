"""The meaning of Azure's errors: which calls to repeat, and the message and remedy of the others.

Source: Microsoft Learn, "Common REST API error codes" and "Blob Storage error codes".
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from lakefs_gc.errors import (
    AccessDeniedError,
    ConfigurationError,
    LakeFSGCError,
    ObjectNotFoundError,
    StorageError,
    StoreUnavailableError,
)

SLOW_DOWN_CODES = frozenset({"ServerBusy", "TooManyRequests"})
"""Codes that ask for fewer requests; all of them are retryable."""

_EXPIRED = re.compile("expired|not valid in the specified time frame", re.IGNORECASE)
NOT_ABOUT_KEYS = frozenset(
    {
        "AccountIsDisabled",
        "AuthenticationFailed",
        "AuthorizationProtocolMismatch",
        "AuthorizationResourceTypeMismatch",
        "AuthorizationServiceMismatch",
        "AuthorizationSourceIPMismatch",
        "ContainerBeingDeleted",
        "ContainerDisabled",
        "ContainerNotFound",
        "InsufficientAccountPermissions",
        "InvalidAuthenticationInfo",
        "KeyBasedAuthenticationNotPermitted",
        "NoAuthenticationInformation",
        "PublicAccessNotPermitted",
        "ResourceNotFound",
    }
)
"""Codes of an answer that are the same for any choice of blobs."""

_DATA = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/"
_PERMISSIONS = {
    "list": _DATA + "read",
    "read": _DATA + "read",
    "write": _DATA + "write",
    "delete": _DATA + "delete",
    "read the settings of the container": "Microsoft.Storage/storageAccounts/blobServices/containers/read",
    "read the settings of the account": "Microsoft.Storage/storageAccounts/blobServices/read",
}


class RefusedError(Exception):
    """The account answered with an error. Used within this package only."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message)
        self.status, self.code, self.message = status, code, message


class IncompleteAnswerError(Exception):
    """A successful answer is incomplete: its body is cut, or lacks a required part. Used within this package only."""


AzureFailure = RefusedError | IncompleteAnswerError | AzureError | HTTPError | RequestException
AZURE_FAILURES = (RefusedError, IncompleteAnswerError, AzureError, HTTPError, RequestException)
"""Everything that a call raises on purpose."""


def refused(status: int, header_code: str, body: bytes) -> RefusedError:
    """Return the error of an answer with a status from 400 on.

    Of its body only the code and the first line of the message are kept: the rest may describe a signature.
    """
    code, message = header_code, ""
    try:
        document = ElementTree.fromstring(body) if body else None
    except (ElementTree.ParseError, ValueError, LookupError):
        document = None
    if document is not None:
        code = code or document.findtext("Code", "")
        message = document.findtext("Message", "").partition("\n")[0].strip()
    return RefusedError(status, code, message)


def error_code(error: BaseException) -> str:
    """Return Azure's code (``ServerBusy``), or an empty text."""
    return error.code if isinstance(error, RefusedError) else ""


def http_status(error: BaseException) -> int:
    """Return the HTTP status of the answer, or 0 if there was no answer."""
    return error.status if isinstance(error, RefusedError) else 0


def is_answered(error: BaseException) -> bool:
    """Return whether the store itself refused the request, so that it will not execute it later.

    A broken connection proves no refusal. Neither does any 5xx (``OperationTimedOut``) except ``ServerBusy``.
    """
    return isinstance(error, RefusedError) and (error.status < 500 or error.code in SLOW_DOWN_CODES)


def is_retryable(error: BaseException) -> bool:
    """Return whether the same call may succeed later: 5xx except 501, 408, 429, throttling, broken connections."""
    if isinstance(error, RefusedError):
        return error.code in SLOW_DOWN_CODES or error.status in (408, 429) or 500 <= error.status != 501
    if _is_configuration(error):
        return False
    # The errors of urllib3 and of requests are those of a body that breaks while it is read.
    return isinstance(
        error, IncompleteAnswerError | ServiceRequestError | ServiceResponseError | HTTPError | RequestException
    ) or (isinstance(error, HttpResponseError) and not isinstance(error, ClientAuthenticationError))


def _is_configuration(error: BaseException) -> bool:
    """Return whether a connection fails for good: an untrusted certificate, a server without TLS, or a proxy."""
    text = str(error)
    return any(
        word in text
        for word in ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER", "UNKNOWN_CA", "ProxyError", "non-TLS")
    )


def is_slow_down(error: BaseException) -> bool:
    """Return whether the store asks for fewer requests."""
    return error_code(error) in SLOW_DOWN_CODES or http_status(error) in (429, 503)


def describe(error: BaseException) -> str:
    """Return ``Code: message`` of the store's answer, or the type of the failure. It never has a URL or a secret."""
    if isinstance(error, RefusedError):
        return ": ".join(part for part in (error.code or f"HTTP status {error.status}", error.message) if part)
    return str(error) if isinstance(error, IncompleteAnswerError) else type(error).__name__


def storage_error(error: AzureFailure, *, action: str, account: str, where: str) -> LakeFSGCError:
    """Return the error to raise for ``error`` of a call; ``action`` is a key of the permissions above."""
    code, status, facts = error_code(error), http_status(error), describe(error)
    permission = _PERMISSIONS[action]
    note: dict[str, Any] = {"action": permission, "account": account, "code": code, "status": status}
    if code in ("ContainerNotFound", "ContainerBeingDeleted"):
        return ObjectNotFoundError(
            f"{where}: the container does not exist ({code})",
            remedy="Check the name of the container and of the account, and the endpoint",
            **note,
        )
    if status in (401, 403) and isinstance(error, RefusedError) and _EXPIRED.search(error.message):
        return AccessDeniedError(
            f"The credentials for {where} have expired ({code})", remedy="Renew the credentials", **note
        )
    if status == 401 or code in ("AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation"):
        return AccessDeniedError(
            f"{where} does not accept the credentials ({code or status})",
            remedy="Check that the Azure credentials belong to this account, and that the clock of this machine is "
            "right",
            **note,
        )
    if status == 403:
        return AccessDeniedError(
            f"{where}: access denied to {action} ({facts})",
            remedy=f"Grant these credentials {permission}, and allow this machine in the firewall of the account",
            **note,
        )
    if status == 404:
        return ObjectNotFoundError(f"{where} does not exist", remedy="Check the namespace and the key", **note)
    if isinstance(error, ClientAuthenticationError):
        return AccessDeniedError(
            f"No usable Azure credentials for {where} ({facts})",
            remedy="Set AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, set AZURE_CLIENT_ID, "
            "AZURE_TENANT_ID and AZURE_CLIENT_SECRET, run `az login`, or give the machine a managed identity",
            **note,
        )
    if _is_configuration(error):
        return ConfigurationError(
            f"{where}: the connection failed (certificate, protocol or proxy)",
            remedy="Check http:// and https:// of the endpoint, REQUESTS_CA_BUNDLE, HTTPS_PROXY and NO_PROXY",
            **note,
        )
    if is_retryable(error):
        return StoreUnavailableError(
            f"{where}: the call to {action} still fails after all retries ({facts})",
            remedy="Check that the endpoint is healthy and reachable from this machine, then run again. "
            "If the store asks to slow down, lower requests_at_once",
            **note,
        )
    return StorageError(
        f"{where}: the call to {action} failed ({facts})",
        remedy="Correct the cause that the store names, then run again",
        **note,
    )
