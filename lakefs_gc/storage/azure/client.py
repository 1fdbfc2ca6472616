"""The requests to Azure, with retries, and with a check of the time right before each delete is sent.

The requests are built here, and pass through the pipeline of the vendor's SDK, which signs them. The SDK's own methods
do not fit: its listings take 30 times as long to parse, and the answers to its batches of deletes are matched with the
keys by their position and not by their id.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import requests
from azure.core.pipeline import PipelineContext, PipelineRequest
from azure.core.pipeline.transport import HttpRequest, RequestsTransport
from azure.storage.blob import BlobServiceClient
from requests.adapters import HTTPAdapter

from lakefs_gc.errors import ConfigurationError, LakeFSGCError, ObjectNotFoundError
from lakefs_gc.storage.azure.access import BlobFolder, find_access
from lakefs_gc.storage.azure.errors import (
    AZURE_FAILURES,
    SLOW_DOWN_CODES,
    AzureFailure,
    IncompleteAnswerError,
    RefusedError,
    describe,
    error_code,
    is_answered,
    is_retryable,
    is_slow_down,
    refused,
    storage_error,
)
from lakefs_gc.storage.delete_window import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS, DeleteWindow
from lakefs_gc.storage.endpoints import check_endpoint
from lakefs_gc.storage.pace import RequestLimit
from lakefs_gc.storage.retry import RetryPolicy

log = logging.getLogger(__name__)
Result = TypeVar("Result")

VERSION = "2026-02-06"
"""The first version of the service in which a listing can start at a name (``startFrom``)."""
_EARLIER_VERSION = "2021-12-02"
"""For accounts that refuse ``VERSION``. Listings encode names that XML cannot contain since 2021-02-12."""
_VERSION_CODES = frozenset({"InvalidHeaderValue", "UnsupportedHeader", "InvalidApiVersion"})
_MOST_CONNECTIONS = 64
_SUCCESSES: Mapping[str, tuple[int, ...]] = {
    "GET": (200, 206),
    "HEAD": (200,),
    "PUT": (201, 202, 204),
    "DELETE": (202,),
    "POST": (202,),
}
"""The statuses by which Azure says that it did what was asked; others come from a proxy (a redirect, a page)."""

# The SDK logs each request at INFO.
logging.getLogger("azure").setLevel(logging.WARNING)


class TooLateError(Exception):
    """A delete was not sent, because its window is over; ``error`` is the result of its previous try, or ''.

    This error is used within this package only.
    """

    def __init__(self, error: str = "") -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True)
class Answer:
    """A successful answer. ``headers`` may be read in any case. ``body`` is empty if the answer is a stream."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    stream: Any = None
    """The unread body, a ``urllib3.HTTPResponse``, which raises an error if it ends early."""


class _Transport(RequestsTransport):  # type: ignore[misc]  # its annotations are incomplete
    """Sends requests, after asking ``before_send``: signing a request and getting a token take time."""

    def __init__(self, before_send: Callable[[], None]) -> None:
        session = requests.Session()
        session.trust_env = True
        adapter = HTTPAdapter(pool_connections=4, pool_maxsize=_MOST_CONNECTIONS, max_retries=0)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        super().__init__(
            session=session,
            connection_timeout=CONNECT_TIMEOUT_SECONDS,
            read_timeout=READ_TIMEOUT_SECONDS,
        )
        self._before_send = before_send

    def send(self, request: Any, **options: Any) -> Any:
        """See ``RequestsTransport``. Raise ``TooLateError`` if the window of a delete is over."""
        self._before_send()
        return super().send(request, **options)


class AzureClient:
    """Requests with retries, and errors with remedies, for one container in one process."""

    def __init__(self, folder: BlobFolder, retry: RetryPolicy) -> None:
        access = find_access(folder)
        self.folder, self.retry = folder, retry
        self.endpoint = access.endpoint
        check_endpoint(folder.host, access.endpoint)
        self.sas = access.sas
        parts = urlsplit(access.endpoint)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self.version = VERSION
        self.limit: RequestLimit | None = None
        """The maximum of requests per second, if one is set."""
        self.is_hierarchical: bool | None = None
        """Whether the account has a hierarchical namespace; None before it was asked."""
        self.refuses_batches = False
        """Whether the account refused a batch of deletes, so that each blob is deleted in its own request."""
        self.slow_downs = 0
        """The number of answers that asked to slow down, counted without a lock because approximate is enough."""
        self._of_thread = threading.local()
        try:
            self._service: Any = BlobServiceClient(
                access.endpoint,
                credential=access.credential,
                transport=_Transport(self._refuse_late),
                retry_total=0,
                permit_redirects=False,
            )
        except ValueError as error:  # a token over http
            raise ConfigurationError(
                f"{access.endpoint} cannot be used with these credentials: {error}",
                remedy="Use https, or set AZURE_STORAGE_KEY or AZURE_STORAGE_CONNECTION_STRING (an emulator has a key)",
            ) from error

    # -- requests

    def url(self, name: str = "") -> str:
        """Return the URL of a blob, or of the container."""
        container = f"{self.endpoint}/{self.folder.container}"
        return f"{container}/{quote(name, safe='/~')}" if name else container

    def path(self, name: str) -> str:
        """Return the path of a blob, as a request inside a batch has it."""
        return self.url(name).removeprefix(self._origin)

    def send(
        self,
        method: str,
        name: str = "",
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        data: bytes = b"",
        url: str = "",
        as_stream: bool = False,
    ) -> Answer:
        """Send one request about a blob, or about the container; return the answer if it is a success.

        Raise ``AZURE_FAILURES``. With ``as_stream`` the caller reads and closes the body.
        """
        request = HttpRequest(method, url or self.url(name), headers={**(headers or {}), "x-ms-version": self.version})
        if query:
            request.format_parameters({key: quote(value, safe="") for key, value in query.items()})
        if data or method in ("PUT", "POST"):
            request.set_bytes_body(data)
        # As a stream: the SDK would parse each XML body, and decompress content that is stored compressed.
        response = self._service._pipeline.run(request, stream=True).http_response.internal_response
        is_taken_over = False
        try:
            status, headers_received = response.status_code, response.headers
            if status not in _SUCCESSES[method]:
                code = headers_received.get("x-ms-error-code", "")
                raise refused(status, code, response.raw.read(decode_content=False))
            if as_stream:
                is_taken_over = True
                return Answer(status, headers_received, stream=response.raw)
            return Answer(status, headers_received, response.raw.read(decode_content=False))
        finally:
            if not is_taken_over:
                response.close()

    def signed(self, request: HttpRequest) -> HttpRequest:
        """Return a request inside a batch with the account's credential added to it."""
        if policy := self._service._credential_policy:
            # The URL of such a request has no scheme, so the SDK would not give it a token.
            policy.on_request(PipelineRequest(request, PipelineContext(None, enforce_https=False)))
        return request

    # -- retries

    def call(
        self,
        function: Callable[[], Result],
        *,
        action: str,
        key: str,
        tries: int | None = None,
        window: DeleteWindow | None = None,
    ) -> Result:
        """Return ``function()``, repeated after temporary failures; ``key`` (or a prefix) appears in the message.

        ``tries`` overrides the policy's number. A delete is sent only while ``window`` is open; afterwards raise
        ``TooLateError``. Raise ``StorageError`` or a subclass for all other failures.
        """
        failures, failed_with = 0, ""
        self._of_thread.window = window
        while True:
            try:
                if self.limit:
                    self.limit.wait()
                return function()
            except TooLateError:
                raise TooLateError(failed_with) from None
            except AZURE_FAILURES as error:
                if self._refuses_version(error):
                    continue
                failures, failed_with = failures + 1, describe(error)
                if window and not is_answered(error):
                    window.unanswered = True
                self.slow_downs += is_slow_down(error)
                only_slow = error_code(error) in SLOW_DOWN_CODES
                most = tries or (self.retry.tries_when_slow if only_slow else self.retry.tries)
                if not is_retryable(error) or failures >= most:
                    raise self.explain(error, action=action, key=key) from error
                self.pause(failures, f"azure: {action} {key}: {failed_with}")

    def _refuse_late(self) -> None:
        window: DeleteWindow | None = getattr(self._of_thread, "window", None)
        if window and window.is_over:
            raise TooLateError

    def may_refuse_version(self, error: BaseException) -> bool:
        """Return whether an account may be older than ``VERSION``, so that ``call`` tries an earlier version."""
        return isinstance(error, RefusedError) and error.code in _VERSION_CODES and self.version == VERSION

    def _refuses_version(self, error: BaseException) -> bool:
        is_refused = self.may_refuse_version(error)
        if is_refused:
            self.version = _EARLIER_VERSION
            log.warning("%s refuses version %s of the service, so %s is used", self.folder.host, VERSION, self.version)
        return is_refused

    def pause(self, failures: int, why: str) -> None:
        """Wait before the next try."""
        seconds = self.retry.pause_seconds(failures)
        log.info("store retry: failures=%d pause_seconds=%.2f %s", failures, seconds, why)
        time.sleep(seconds)

    def explain(self, error: AzureFailure, *, action: str, key: str) -> LakeFSGCError:
        """Return the error to raise for a failure of a call."""
        return storage_error(error, action=action, account=self.folder.account, where=self.where(key))

    def where(self, key: str) -> str:
        """Return the URL of a blob as a namespace spells it, with the endpoint where that is another host."""
        url = f"https://{self.folder.host}/{self.folder.container}/{key}"
        return url if urlsplit(self.endpoint).hostname == self.folder.host else f"{url} at {self.endpoint}"

    # -- facts

    def head(self, name: str) -> Mapping[str, str]:
        """Return the headers of a blob, which include its size and time. Raise the errors of ``call``."""

        def ask() -> Mapping[str, str]:
            headers = self.send("HEAD", name).headers
            for fact in ("Content-Length", "Last-Modified", "ETag"):
                if fact not in headers:
                    raise IncompleteAnswerError(f"the answer is a success, but does not have {fact}")
            return headers

        return self.call(ask, action="read", key=name)

    def head_or_none(self, name: str) -> Mapping[str, str] | None:
        """Return the headers of a blob; None if it does not exist. Raise an error if its container does not exist."""
        try:
            return self.head(name)
        except ObjectNotFoundError as error:
            if error.facts.get("code") != "BlobNotFound":
                raise
            return None
