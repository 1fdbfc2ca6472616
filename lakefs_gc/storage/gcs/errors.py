"""The meaning of Google's errors: which calls to repeat, and the message and remedy of the others.

Source: Google's documents, "HTTP status and error codes for JSON" and "Retry strategy".
"""

from __future__ import annotations

import json
import re
from typing import Any

from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError
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
from lakefs_gc.storage.gcs.access import CREDENTIALS_REMEDY

SLOW_DOWN_REASONS = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})
"""Reasons that ask for fewer requests; all of them are retryable."""

_PERMISSIONS = {
    "list": "storage.objects.list",
    "read": "storage.objects.get",
    "write": "storage.objects.create (and storage.objects.delete to replace an object)",
    "delete": "storage.objects.delete",
    "read the settings of the bucket": "storage.buckets.get",
}
_NO_OBJECT = re.compile("No such object", re.IGNORECASE)
_LOCKED_REASONS = frozenset({"retentionPolicyNotMet", "objectUnderActiveHold"})
# A hold is documented with a reason of its own, but was seen with the one of a missing permission (`forbidden`).
_LOCKED = re.compile("under active (?:temporary|event-based) hold|retention policy|object retention", re.IGNORECASE)


class RefusedError(Exception):
    """The store answered with an error. Used within this package only.

    ``is_of_store`` is false for a 404 without Google's reason or words: it may be that of a proxy, and proves nothing.
    """

    def __init__(self, status: int, reason: str, message: str, *, is_of_store: bool = True) -> None:
        super().__init__(status, reason, message)
        self.status, self.reason, self.message, self.is_of_store = status, reason, message, is_of_store


class IncompleteAnswerError(Exception):
    """A successful answer is incomplete: its body is cut, or lacks a required part. Used within this package only."""


GCSFailure = RefusedError | IncompleteAnswerError | GoogleAuthError | HTTPError | RequestException
GCS_FAILURES = (RefusedError, IncompleteAnswerError, GoogleAuthError, HTTPError, RequestException)
"""Everything that a call raises on purpose."""


def refused(status: int, body: bytes) -> RefusedError:
    """Return the error of an answer that is not a success. Its body is JSON, or the plain text of a download."""
    try:
        error = json.loads(body)["error"]
        message, details = error.get("message", ""), error.get("errors") or [{}]
        reason = details[0].get("reason", "")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        reason, message = "", body[:200].decode(errors="replace")
        if "<" in message:  # a page of a proxy
            message = ""
    is_of_store = status != 404 or reason == "notFound" or _NO_OBJECT.search(str(message)) is not None
    return RefusedError(status, str(reason), str(message).partition("\n")[0].strip(), is_of_store=is_of_store)


def http_status(error: BaseException) -> int:
    """Return the HTTP status of the answer, or 0 if there was no answer."""
    return error.status if isinstance(error, RefusedError) else 0


def asks_to_slow_down(error: BaseException) -> bool:
    """Return whether the store refused a request only because there were too many."""
    return isinstance(error, RefusedError) and (error.status == 429 or error.reason in SLOW_DOWN_REASONS)


def is_slow_down(error: BaseException) -> bool:
    """Return whether fewer requests would help: the store says so, or is unavailable."""
    return asks_to_slow_down(error) or http_status(error) == 503


def is_answered(error: BaseException) -> bool:
    """Return whether the store itself refused the request, so that it will not execute it later.

    A broken connection proves no refusal, and neither does a time limit (408) or any 5xx.
    """
    if not isinstance(error, RefusedError):
        return False
    return error.status < 500 and error.status != 408 and not is_missing_by_proxy(error)


def is_retryable(error: BaseException) -> bool:
    """Return whether the same call may succeed later: 5xx except 501, 408, 429, broken connections."""
    if isinstance(error, RefusedError):
        return asks_to_slow_down(error) or error.status == 408 or 500 <= error.status != 501
    if _is_configuration(error):
        return False
    if isinstance(error, GoogleAuthError):
        return isinstance(error, TransportError) or bool(getattr(error, "retryable", False))
    return isinstance(error, IncompleteAnswerError | HTTPError | RequestException)


def is_missing_object(error: BaseException) -> bool:
    """Return whether the answer itself says that the object, and not its bucket, does not exist."""
    return isinstance(error, RefusedError) and error.status == 404 and _NO_OBJECT.search(error.message) is not None


def is_missing_by_proxy(error: BaseException) -> bool:
    """Return whether an answer says "not found" without being the store's."""
    return http_status(error) == 404 and isinstance(error, RefusedError) and not error.is_of_store


def is_locked(error: RefusedError) -> bool:
    """Return whether a hold or a retention policy protects the object."""
    return error.status == 403 and (error.reason in _LOCKED_REASONS or _LOCKED.search(error.message) is not None)


def _is_configuration(error: BaseException) -> bool:
    """Return whether a connection fails for good: an untrusted certificate, a server without TLS, or a proxy."""
    text = str(error)
    return any(
        word in text for word in ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER", "UNKNOWN_CA", "ProxyError")
    )


def describe(error: BaseException) -> str:
    """Return ``reason: message`` of the store's answer, or the type of the failure. It never has a URL or a secret."""
    if isinstance(error, RefusedError):
        return ": ".join(part for part in (error.reason or f"HTTP status {error.status}", error.message) if part)
    return str(error) if isinstance(error, IncompleteAnswerError) else type(error).__name__


def storage_error(error: GCSFailure, *, action: str, bucket: str, where: str) -> LakeFSGCError:
    """Return the error to raise for ``error`` of a call; ``action`` is a key of the permissions above.

    A 404 is about the object here: the caller has made sure that its bucket exists.
    """
    status, facts = http_status(error), describe(error)
    permission = _PERMISSIONS[action]
    note: dict[str, Any] = {"action": permission, "bucket": bucket, "code": facts, "status": status}
    if status == 401:
        return AccessDeniedError(
            f"{where}: the store does not accept the credentials ({facts})",
            remedy="Check that the Google credentials are valid, and that the clock of this machine is right",
            **note,
        )
    if status == 403:
        return AccessDeniedError(
            f"{where}: access denied to {action} ({facts})", remedy=f"Grant these credentials {permission}", **note
        )
    if status == 404 and not is_missing_by_proxy(error):
        return ObjectNotFoundError(f"{where} does not exist", remedy="Check the namespace and the key", **note)
    if _is_configuration(error):
        return ConfigurationError(
            f"{where}: the connection failed (certificate, protocol or proxy)",
            remedy="Check STORAGE_EMULATOR_HOST if it is set, REQUESTS_CA_BUNDLE, HTTPS_PROXY and NO_PROXY",
            **note,
        )
    if is_retryable(error):
        return StoreUnavailableError(
            f"{where}: the call to {action} still fails after all retries ({facts})",
            remedy="Check that the endpoint is healthy and reachable from this machine, then run again. "
            "If the store asks to slow down, lower requests_at_once",
            **note,
        )
    if isinstance(error, RefreshError | GoogleAuthError):
        return AccessDeniedError(
            f"{where}: no access token could be got with the Google credentials ({facts})",
            remedy=CREDENTIALS_REMEDY,
            **note,
        )
    return StorageError(
        f"{where}: the call to {action} failed ({facts})",
        remedy="Correct the cause that the store names, then run again",
        **note,
    )


def missing_bucket(bucket: str) -> ObjectNotFoundError:
    """Return the error for a bucket that does not exist."""
    return ObjectNotFoundError(
        f"The bucket {bucket} does not exist",
        remedy="Check the name of the bucket, and STORAGE_EMULATOR_HOST if it is set",
        bucket=bucket,
    )
