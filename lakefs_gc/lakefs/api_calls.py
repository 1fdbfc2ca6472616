"""One call of the lakeFS API: its retries, and its failures as the errors of ``lakefs_gc.errors``."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import urllib3

from lakefs_gc.errors import (
    IncompleteAnswerError,
    ReadOnlyRepositoryError,
    RepositoryNotFoundError,
    ServerError,
    ServerUnavailableError,
)
from lakefs_gc.lakefs.sdk import ApiException
from lakefs_gc.lakefs.server_version import LEAST_VERSION_TEXT

logger = logging.getLogger(__name__)

T = TypeVar("T")

_ATTEMPTS = 5
_FIRST_PAUSE_SECONDS = 0.5
_RETRIED_STATUSES = (429, 500, 502, 503, 504)
_UNKNOWN_ENDPOINT = "invalid API endpoint"
"""The answer to a call that the server does not have: 404 since lakeFS 1.75, and 500 before."""
_NO_TLS = "WRONG_VERSION_NUMBER"
"""What OpenSSL reports about an answer without TLS."""
_NEEDS_TLS = re.compile(r"HTTP request (?:to an|was sent to) HTTPS")
"""The answer of a port with TLS to a request without: of servers in Go, as lakeFS, and of nginx."""
_S3_ERROR = re.compile(r"<Error\b[^>]*>.*<Code>", re.DOTALL)
_NO_BUCKET = "NoSuchBucket"


@dataclass(frozen=True)
class ApiCaller:
    """Call methods of the SDK, with timeouts for connecting and for reading. ``sleep`` waits between the attempts."""

    endpoint_url: str
    timeouts_seconds: tuple[float, float]
    sleep: Callable[[float], None]

    def call(self, what: str, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return the answer of ``method``, after up to five attempts. ``what`` names the call in errors and in the log.

        A broken connection, 429 and 5xx are retried. Raises as ``LakeFSClient`` says.
        """
        pause = _FIRST_PAUSE_SECONDS
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                answer = method(*args, _request_timeout=self.timeouts_seconds, **kwargs)
                if answer is None:  # the SDK returns None for a success with a status that the call does not define
                    raise ValueError("no answer")
                return answer
            except ValueError as error:  # pydantic's errors, too
                raise IncompleteAnswerError(
                    f"{what}: the answer of {self.endpoint_url} is not an answer of lakeFS ({type(error).__name__})",
                    remedy="Check LAKECTL_SERVER_ENDPOINT_URL, and that the version of the lakeFS server is 1.x",
                ) from error
            except ApiException as error:
                _refuse_other_service(what, self.endpoint_url, error)
                if error.status not in _RETRIED_STATUSES or attempt == _ATTEMPTS or _is_unknown_endpoint(error):
                    _raise_for(what, error)
                problem = f"HTTP {error.status}"
            except urllib3.exceptions.HTTPError as error:
                _refuse_missing_tls(what, self.endpoint_url, error)
                _refuse_redirect(what, self.endpoint_url, error)
                if attempt == _ATTEMPTS:
                    raise ServerUnavailableError(
                        f"{what}: cannot reach lakeFS at {self.endpoint_url}: {_cause(error)}",
                        remedy=_remedy(error),
                    ) from None
                problem = type(error).__name__
            logger.warning("%s: %s (attempt %d of %d), retrying in %.1f s", what, problem, attempt, _ATTEMPTS, pause)
            self.sleep(pause)
            pause *= 2
        raise AssertionError("unreachable")


def _refuse_missing_tls(what: str, endpoint_url: str, error: urllib3.exceptions.HTTPError) -> None:
    """Raise ``ServerError`` if a server without TLS answers an https URL: no later attempt can succeed."""
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, urllib3.exceptions.SSLError) and _NO_TLS in str(reason):
        raise ServerError(
            f"{what}: {endpoint_url} begins with https, but the server answers without TLS",
            remedy=f"Set LAKECTL_SERVER_ENDPOINT_URL to {_other_scheme(endpoint_url)}, or to a port with TLS",
        ) from None


def _refuse_redirect(what: str, endpoint_url: str, error: urllib3.exceptions.HTTPError) -> None:
    """Raise ``ServerError`` if the server answers with a redirect: no later attempt can succeed."""
    if isinstance(getattr(error, "reason", None), urllib3.exceptions.ResponseError):
        raise ServerError(
            f"{what}: {endpoint_url} redirects to another URL",
            remedy="Set LAKECTL_SERVER_ENDPOINT_URL to the URL that it redirects to. It often begins with https",
        ) from None


def _refuse_other_service(what: str, endpoint_url: str, error: ApiException) -> None:
    """Raise ``ServerError`` if the answer shows that the URL is not that of lakeFS's API."""
    body = str(error.body or "")
    if error.status == 400 and _NEEDS_TLS.search(body):
        raise ServerError(
            f"{what}: {endpoint_url} begins with http, but the server expects TLS",
            remedy=f"Set LAKECTL_SERVER_ENDPOINT_URL to {_other_scheme(endpoint_url)}",
            status=error.status,
        ) from None
    if error.status and error.status < 500 and _S3_ERROR.search(body):
        raise ServerError(
            f"{what}: {endpoint_url} answers as an S3 store ({error.status}), not as lakeFS",
            remedy="Set LAKECTL_SERVER_ENDPOINT_URL to the URL of lakeFS, where its web page is. The store's URL "
            "belongs in AWS_ENDPOINT_URL_S3",
            status=error.status,
        ) from None


def _other_scheme(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{'http' if scheme == 'https' else 'https'}://{rest}"


def _cause(error: urllib3.exceptions.HTTPError) -> str:
    """Return the kind of a failure only: its text may contain the URL with a token."""
    return type(getattr(error, "reason", None) or error).__name__


def _remedy(error: urllib3.exceptions.HTTPError) -> str:
    """Return what to do about a server that cannot be reached; for a timeout, also the setting that limits it."""
    remedy = "Check LAKECTL_SERVER_ENDPOINT_URL, and that the server is running"
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, urllib3.exceptions.ReadTimeoutError):
        return f"{remedy}. If it needs more time to answer, raise lakefs.read_timeout_seconds"
    if isinstance(reason, urllib3.exceptions.ConnectTimeoutError):
        return f"{remedy}. If it needs more time to accept a connection, raise lakefs.connect_timeout_seconds"
    return remedy


def _raise_for(what: str, error: ApiException) -> NoReturn:
    message = _message(error)
    facts = {"status": error.status}
    text = f"{what}: lakeFS answered {error.status}: {message}"
    if error.status == 401:
        raise ServerError(text, remedy="Check the access key id and the secret access key", **facts) from None
    if error.status == 403 and "read-only" in message:
        raise ReadOnlyRepositoryError(
            text,
            remedy="lakeFS does not permit garbage collection of a read-only repository. Remove it from the settings, "
            "or make it writable. Nothing was deleted",
            **facts,
        ) from None
    if error.status == 403:
        raise ServerError(
            text, remedy="Grant this lakeFS user the actions in docs/reference/permissions.md", **facts
        ) from None
    if error.status == 404 and not _is_lakefs_answer(error):
        # The answer came from something in front of the server, so it does not say whether the resource exists.
        raise ServerUnavailableError(
            f"{text}. The answer is not from lakeFS",
            remedy="Check LAKECTL_SERVER_ENDPOINT_URL, and the proxy or ingress in front of the lakeFS server",
            **facts,
        ) from None
    if error.status == 500 and _is_unknown_endpoint(error):
        raise ServerError(
            text,
            remedy=f"Upgrade the lakeFS server: it does not have this call. The oldest version that works is "
            f"{LEAST_VERSION_TEXT}",
            **facts,
        ) from None
    if error.status == 404:
        raise RepositoryNotFoundError(text, remedy="Check the name of the repository", **facts) from None
    if error.status == 500 and _NO_BUCKET in message:
        raise ServerError(
            text,
            remedy="The lakeFS server cannot find the bucket of the repository. Create the bucket, or check "
            "blockstore.s3.endpoint in the configuration of the server",
            **facts,
        ) from None
    if error.status == 429 or error.status >= 500:
        raise ServerUnavailableError(
            text, remedy="Check the log of the lakeFS server, then run again", **facts
        ) from None
    raise ServerError(text, remedy="Check the log of the lakeFS server, and that its version is 1.x", **facts) from None


def _is_unknown_endpoint(error: ApiException) -> bool:
    """Return whether the server does not have the call (``_UNKNOWN_ENDPOINT``)."""
    return error.status in (404, 500) and _is_lakefs_answer(error) and _message(error) == _UNKNOWN_ENDPOINT


def _is_lakefs_answer(error: ApiException) -> bool:
    """Return whether an error has the JSON object with a message that every error of lakeFS's API has."""
    try:
        return isinstance(json.loads(error.body)["message"], str)
    except (TypeError, ValueError, KeyError):
        return False


def _message(error: ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)
