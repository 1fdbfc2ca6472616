"""The requests to Google Cloud Storage, with retries, and with a check of the time right before each delete is sent.

They are requests of the JSON API, signed by ``google-auth``. Google's own client does not fit: its listings make a
Python object for each key, and it repeats deletes by a schedule of its own.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import requests
from google.auth.transport.requests import AuthorizedSession
from requests.adapters import HTTPAdapter

from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.storage.delete_window import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS, DeleteWindow
from lakefs_gc.storage.endpoints import check_endpoint
from lakefs_gc.storage.gcs.access import BucketFolder, find_access
from lakefs_gc.storage.gcs.errors import (
    GCS_FAILURES,
    GCSFailure,
    IncompleteAnswerError,
    RefusedError,
    asks_to_slow_down,
    describe,
    http_status,
    is_answered,
    is_missing_by_proxy,
    is_missing_object,
    is_retryable,
    is_slow_down,
    missing_bucket,
    refused,
    storage_error,
)
from lakefs_gc.storage.pace import RequestLimit
from lakefs_gc.storage.retry import RetryPolicy

log = logging.getLogger(__name__)
Result = TypeVar("Result")

API = "/storage/v1"
UPLOAD_API = "/upload/storage/v1"
BATCH_API = "/batch/storage/v1"
_MOST_CONNECTIONS = 64
RESUME = 308
"""Google's status for a part of an upload that was received; from a proxy it is a redirect."""
LISTING_KIND = "storage#objects"
"""What the answer to each listing says that it is."""


class TooLateError(Exception):
    """A delete was not sent, because its window is over; ``error`` is the result of its previous try, or ''.

    This error is used within this package only.
    """

    def __init__(self, error: str = "") -> None:
        super().__init__(error)
        self.error = error


def is_success(status: int) -> bool:
    """Return whether a status is a success: no redirect, which only a proxy sends, and none before the final one."""
    return 200 <= status < 300


@dataclass(frozen=True)
class Answer:
    """A successful answer. ``headers`` may be read in any case. ``body`` is empty if the answer is a stream."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    stream: Any = None
    """The unread body, a ``urllib3.HTTPResponse``, which raises an error if it ends early."""

    def document(self) -> dict[str, Any]:
        """Return the JSON object of the body. Raise ``IncompleteAnswerError``, also for a field that is repeated.

        Parsers differ in which of the repeated fields they keep.
        """
        try:
            document = json.loads(self.body, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError) as error:
            raise IncompleteAnswerError("the answer is not JSON, is cut, or repeats a field") from error
        if not isinstance(document, dict):
            raise IncompleteAnswerError("the answer is not a JSON object")
        return document


def _without_repeats(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(fields)
    if len(found) != len(fields):
        raise ValueError("a field is repeated")
    return found


def checked_kind(answer: Answer) -> Answer:
    """Return the answer to a listing. Raise ``IncompleteAnswerError`` for another one, such as a page of a proxy."""
    if answer.document().get("kind") != LISTING_KIND:
        raise IncompleteAnswerError("the answer is not a page of a listing")
    return answer


class _Adapter(HTTPAdapter):
    """Sends requests, after asking ``before_send``: getting a token takes time."""

    def __init__(self, before_send: Callable[[], None]) -> None:
        super().__init__(pool_connections=4, pool_maxsize=_MOST_CONNECTIONS, max_retries=0)
        self._before_send = before_send

    def send(self, *arguments: Any, **options: Any) -> Any:
        """See ``HTTPAdapter``. Raise ``TooLateError`` if the window of a delete is over."""
        self._before_send()
        return super().send(*arguments, **options)


def _authorized(credentials: Any) -> Any:
    session: Any = AuthorizedSession
    return session(credentials)


def _read_environment_once(session: Any, endpoint: str) -> None:
    """Take proxy and certificates from the environment now, and not anew for each request: that costs 1 ms each.

    Credentials in ``~/.netrc`` are not used: they would replace Google's.
    """
    merged = session.merge_environment_settings(endpoint, {}, None, None, None)
    session.proxies, session.verify = merged["proxies"], merged["verify"]
    session.trust_env = False


def object_path(bucket: str, name: str) -> str:
    """Return the path of an object in the JSON API."""
    return f"{API}/b/{bucket}/o/{quote(name, safe='')}"


class GCSClient:
    """Requests with retries, and errors with remedies, for one bucket in one process."""

    def __init__(self, folder: BucketFolder, retry: RetryPolicy) -> None:
        """Raise ``AccessDeniedError`` if there are no credentials, and ``ConfigurationError`` as ``check_endpoint``."""
        access = find_access()
        check_endpoint("Google Cloud Storage", access.endpoint)
        self.folder, self.retry = folder, retry
        self.endpoint = access.endpoint
        self.is_emulator = access.credentials is None
        self.limit: RequestLimit | None = None
        """The maximum of requests per second, if one is set."""
        self.has_no_batches = False
        """Whether the endpoint turned out to have no batch requests, so that each object has its own request."""
        self.slow_downs = 0
        """The number of answers that asked to slow down, counted without a lock because approximate is enough."""
        self._of_thread = threading.local()
        self._session: Any = requests.Session() if self.is_emulator else _authorized(access.credentials)
        for scheme in ("https://", "http://"):
            self._session.mount(scheme, _Adapter(self._refuse_late))
        _read_environment_once(self._session, self.endpoint)

    # -- requests

    @property
    def listing_path(self) -> str:
        """Return the path of the bucket's objects."""
        return f"{API}/b/{self.folder.bucket}/o"

    def path(self, name: str) -> str:
        """Return the path of an object."""
        return object_path(self.folder.bucket, name)

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
        as_stream: bool = False,
        is_part: bool = False,
    ) -> Answer:
        """Send one request; return the answer if it is a success. Raise ``GCS_FAILURES``.

        With ``as_stream`` the caller reads and closes the body. The answer to a part of an upload (``is_part``) may be
        ``RESUME``.
        """
        url = f"{self.endpoint}{path}" + (f"?{urlencode(query, quote_via=quote, safe='')}" if query else "")
        response = self._session.request(
            method,
            url,
            # Content that is stored compressed stays so if the client accepts it; other answers are plain.
            headers={"Accept-Encoding": "gzip" if as_stream else "identity", **(headers or {})},
            data=data,
            stream=True,
            timeout=(CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS),
            allow_redirects=False,
        )
        is_taken_over = False
        try:
            status, headers_received = response.status_code, response.headers
            if not (is_success(status) or (is_part and status == RESUME)):
                raise refused(status, response.raw.read(decode_content=True))
            if as_stream:
                is_taken_over = True
                return Answer(status, headers_received, stream=response.raw)
            return Answer(status, headers_received, response.raw.read(decode_content=False))
        finally:
            if not is_taken_over:
                response.close()

    # -- retries

    def call(
        self,
        function: Callable[[], Result],
        *,
        action: str,
        key: str,
        window: DeleteWindow | None = None,
    ) -> Result:
        """Return ``function()``, repeated after temporary failures; ``key`` (or a prefix) appears in the message.

        A delete is sent only while ``window`` is open; afterwards raise ``TooLateError``. Raise ``StorageError`` or a
        subclass for all other failures.
        """
        failures, failed_with = 0, ""
        while True:
            self._of_thread.window = window
            try:
                if self.limit:
                    self.limit.wait()
                return function()
            except TooLateError:
                raise TooLateError(failed_with) from None
            except GCS_FAILURES as error:
                self._of_thread.window = None  # what explains the error does not delete
                failures, failed_with = failures + 1, describe(error)
                if window and not is_answered(error):
                    window.unanswered = True
                self.slow_downs += is_slow_down(error)
                most = self.retry.tries_when_slow if asks_to_slow_down(error) else self.retry.tries
                if not is_retryable(error) or failures >= most:
                    raise self.explain(error, action=action, key=key) from error
                self.pause(failures, f"gcs: {action} {key}: {failed_with}")
            finally:
                self._of_thread.window = None

    def _refuse_late(self) -> None:
        window: DeleteWindow | None = getattr(self._of_thread, "window", None)
        if window and window.is_over:
            raise TooLateError

    def pause(self, failures: int, why: str) -> None:
        """Wait before the next try."""
        seconds = self.retry.pause_seconds(failures)
        log.info("store retry: failures=%d pause_seconds=%.2f %s", failures, seconds, why)
        time.sleep(seconds)

    def explain(self, error: GCSFailure, *, action: str, key: str) -> LakeFSGCError:
        """Return the error to raise for a failure of a call; for a 404 find out whether the bucket exists."""
        if http_status(error) == 404 and not is_missing_object(error):
            missing, failures = error, 0
            while True:
                try:
                    self._ask_for_bucket()
                    is_unclear = action == "read" and is_missing_by_proxy(missing)
                    error = self._answer_of_store(missing, key) if is_unclear else missing
                    break
                except RefusedError as answer:
                    if answer.status == 404:
                        return missing_bucket(self.folder.bucket)
                    error = answer  # unknown: not a proof that the object does not exist
                except GCS_FAILURES as failure:
                    error = failure
                failures += 1
                if failures >= self.retry.tries or not is_retryable(error):
                    break
                self.pause(failures, f"gcs: list {key}: {describe(error)}")
        return storage_error(error, action=action, bucket=self.folder.bucket, where=self.where(key))

    def _answer_of_store(self, missing: GCSFailure, name: str) -> GCSFailure:
        """Return what the store itself answers about an object whose 404 may be that of a proxy.

        The 404 of a download is plain text, in the emulator without the words of Google's.
        """
        try:
            self.send("GET", self.path(name), query={"fields": "generation"})
        except RefusedError as answer:
            return answer
        return missing

    def where(self, key: str) -> str:
        """Return the URL of an object as a namespace spells it, with the endpoint if that is an emulator."""
        url = f"gs://{self.folder.bucket}/{key}"
        return f"{url} at {self.endpoint}" if self.is_emulator else url

    # -- facts

    def _ask_for_bucket(self) -> None:
        query = {"maxResults": "1", "prefix": self.folder.root, "fields": "kind"}
        checked_kind(self.send("GET", self.listing_path, query=query))

    def require_bucket(self) -> None:
        """Raise ``ObjectNotFoundError`` unless the bucket exists: a 404 may be that of the bucket."""
        self.call(self._ask_for_bucket, action="list", key="")
