"""The boto3 clients of the store, and the retries around their calls."""

from __future__ import annotations

import base64
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore import handlers
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, InvalidConfigError, ProfileNotFound
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from lakefs_gc.errors import ConfigurationError, StorageError
from lakefs_gc.storage.delete_window import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS, DeleteWindow
from lakefs_gc.storage.endpoints import S3, check_endpoint
from lakefs_gc.storage.pace import RequestLimit
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc.storage.s3.errors import (
    describe,
    is_answered,
    is_only_slow_down,
    is_retryable,
    is_slow_down,
    storage_error,
)
from lakefs_gc.storage.s3.plain_gets import PlainGets
from lakefs_gc.storage.urls import has_credentials, shown

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

RAW_PAGE = "RawPage"
"""The field in which ``list_objects_v2`` of the first client returns the body of a page: bytes of the store's XML.

So does ``get_bucket_versioning`` of the second one."""

_MOST_REGION_REQUESTS = 3

S3_FAILURES = (ClientError, BotoCoreError, HTTPError, ResponseParserError)


def new_clients(max_connections: int = 64) -> tuple[Any, Any, Any]:
    """Return two boto3 S3 clients, one for listings and one for all other calls, and their session.

    Credentials, region, endpoint, CA bundle and proxies come from the standard AWS chain. The clients differ from
    default ones in three ways. They do not retry, because ``call`` does, for every kind of failure. They send checksums
    only if the API requires them, because older stores reject others. The first client returns listings unparsed
    (``RAW_PAGE``). As usual in boto3, requests are in path style at a custom endpoint, unless the AWS profile sets
    ``addressing_style = virtual``, and in virtual-host style at AWS.

    Raise ``ConfigurationError`` for a profile or an endpoint that boto3 cannot use.
    """
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=max_connections,
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=READ_TIMEOUT_SECONDS,
        request_checksum_calculation="when_required",
        # A complete text, not an addition to botocore's own: botocore would build that twice for each request, which
        # takes 0.2 ms of the 2 ms of a page.
        user_agent=f"lakefs-gc Boto3/{boto3.__version__}",
    )
    try:
        session = _session()
        region = session.region_name or "us-east-1"
        lister: Any = session.client("s3", region_name=region, config=config)
        rest: Any = session.client("s3", region_name=region, config=config)
    except (ProfileNotFound, InvalidConfigError, ValueError) as error:
        raise ConfigurationError(
            f"Cannot set up boto3: {shown(str(error))}",
            remedy="Check AWS_PROFILE, AWS_ENDPOINT_URL_S3, AWS_REGION and ~/.aws/config",
        ) from None
    if has_credentials(rest.meta.endpoint_url):
        raise ConfigurationError(
            "The URL of the S3 endpoint contains credentials, and URLs are shown and logged",
            remedy="Remove the part before the @ in AWS_ENDPOINT_URL_S3, and set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY instead",
        )
    if _is_custom(rest.meta.endpoint_url):
        rest.meta.events.register("before-sign.s3.DeleteObjects", _add_content_md5)
    rest.meta.events.register("after-call.s3.GetBucketVersioning", _hand_over_page)
    lister.meta.events.register("before-parse.s3.ListObjectsV2", _hide_page)
    lister.meta.events.register("after-call.s3.ListObjectsV2", _hand_over_page)
    # botocore would parse every answer to detect errors with status 200; parse_page detects them too.
    if handler := getattr(handlers, "_handle_200_error", None):
        lister.meta.events.unregister("before-parse.s3.*", handler)
    return lister, rest, session


@lru_cache
def _loader() -> Any:
    """Return botocore's descriptions of services, read once (55 ms): each repository has its own clients."""
    return botocore.session.get_session().get_component("data_loader")


def _session() -> boto3.Session:
    # Not one session for all clients: credentials in files may have changed.
    core = botocore.session.get_session()
    loader = _loader()
    core.register_component("data_loader", loader)
    session = boto3.Session(botocore_session=core)
    loader.search_paths[:] = dict.fromkeys(loader.search_paths)  # each session adds boto3's own folder
    return session


def _is_custom(endpoint_url: str) -> bool:
    host = urlsplit(endpoint_url).hostname or ""
    return not host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _add_content_md5(request: Any, **_: Any) -> None:
    """Add an MD5 to a bulk delete: stores older than S3's CRC checksums require it, and others ignore it."""
    digest = hashlib.md5(request.body, usedforsecurity=False).digest()
    request.headers["Content-MD5"] = base64.b64encode(digest).decode()


def _hide_page(response_dict: dict[str, Any], **_: Any) -> None:
    """Hide a page from botocore, which would need 70 times as long as ``parse_page`` to parse it."""
    if response_dict["status_code"] == 200:
        response_dict["body"] = b""


def _hand_over_page(http_response: Any, parsed: dict[str, Any], **_: Any) -> None:
    if http_response.status_code == 200:
        parsed[RAW_PAGE] = http_response.content


class TooLateError(Exception):
    """A delete was not sent, because its window is over; ``error`` is the result of its previous try, or ''.

    This error is used within this package only.
    """

    def __init__(self, error: str = "") -> None:
        super().__init__(error)
        self.error = error


class _RedirectedError(Exception):
    """A request is redirected each time that the store is asked for the region of the bucket."""


class RetryingClient:
    """Calls with retries and errors with remedies, for one bucket in one process."""

    def __init__(self, bucket: str, retry: RetryPolicy) -> None:
        self.lister, self.client, session = new_clients()
        self.pages = PlainGets(self.lister, session, "ListObjectsV2", by_curl=False)
        self.quick_pages = PlainGets(self.lister, session, "ListObjectsV2", by_curl=True)
        self.sstables = PlainGets(self.client, session, "GetObject", by_curl=True)
        self.bucket = bucket
        self.retry = retry
        self.endpoint: str = self.client.meta.endpoint_url
        check_endpoint(S3, self.endpoint)
        self._of_thread = threading.local()
        for operation in ("DeleteObject", "DeleteObjects"):
            self.client.meta.events.register(f"before-send.s3.{operation}", self._refuse_late)
        for client in (self.client, self.lister):
            client.meta.events.register("before-send.s3.HeadBucket", self._refuse_redirects)
        self.limit: RequestLimit | None = None
        """The maximum of requests per second, if one is set."""
        self.slow_downs = 0
        """The number of answers that asked to slow down, counted without a lock because approximate is enough."""

    def call(
        self,
        function: Callable[[], Answer],
        *,
        action: str,
        key: str,
        tries: int | None = None,
        window: DeleteWindow | None = None,
    ) -> Answer:
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
                self._of_thread.region_requests = 0
                return function()
            except TooLateError:
                raise TooLateError(failed_with) from None
            except _RedirectedError:
                if window:
                    window.unanswered = True
                raise StorageError(
                    f"s3://{self.bucket}/{key}: {action} is redirected again and again, as a proxy does",
                    remedy="Check AWS_ENDPOINT_URL_S3, and the proxies between this machine and the store",
                ) from None
            except S3_FAILURES as error:
                failures, failed_with = failures + 1, describe(error)
                if window and not is_answered(error):
                    window.unanswered = True
                self.slow_downs += is_slow_down(error)
                most = tries or (self.retry.tries_when_slow if is_only_slow_down(error) else self.retry.tries)
                if not is_retryable(error) or failures >= most:
                    raise self.explain(error, action=action, key=key) from error
                self.pause(failures, f"s3:{action} {key}: {failed_with}")

    def _refuse_late(self, **_: Any) -> None:
        """Check the window before each send, including redirects: credentials and waiting for a slot take time."""
        window: DeleteWindow | None = getattr(self._of_thread, "window", None)
        if window and window.is_over:
            raise TooLateError

    def _refuse_redirects(self, **_: Any) -> None:
        """End a chain of redirects: botocore asks for the bucket's region after each, also after one of this request.

        Otherwise the chain ends where Python's stack does. A thread of an upload has a count of its own.
        """
        requests = getattr(self._of_thread, "region_requests", 0) + 1
        self._of_thread.region_requests = requests
        if requests > _MOST_REGION_REQUESTS:
            raise _RedirectedError

    def head(self, name: str, **parameters: Any) -> Mapping[str, Any]:
        """Return the facts about the object ``name`` of the bucket, which include its size and time.

        Raise ``StorageError`` if the answer lacks one of these, and the errors of ``call``.
        """

        def ask() -> Mapping[str, Any]:
            try:
                answer: Mapping[str, Any] = self.client.head_object(Bucket=self.bucket, Key=name, **parameters)
            except ValueError as error:  # from botocore, for a header that is not a number or not a date
                raise self.incomplete_answer(name, f"has an invalid header ({error})") from None
            return answer

        answer = self.call(ask, action="GetObject", key=name)
        for fact in ("ContentLength", "LastModified"):
            self.required(answer, fact, key=name)
        return answer

    def required(self, answer: Mapping[str, Any], fact: str, *, key: str) -> Any:
        """Return a fact of the store's answer. Raise ``StorageError`` if the answer does not have it."""
        if fact not in answer:
            raise self.incomplete_answer(key, f"does not have {fact}")
        return answer[fact]

    def incomplete_answer(self, key: str, problem: str) -> StorageError:
        """Return the error for a successful answer that ``problem`` (a verb and its object) makes unusable."""
        return StorageError(
            f"s3://{self.bucket}/{key} at {self.endpoint}: the answer is a success, but {problem}",
            remedy="Check whether a proxy in front of the store changes its answers, then run again",
        )

    def pause(self, failures: int, why: str) -> None:
        """Wait before the next try."""
        seconds = self.retry.pause_seconds(failures)
        log.info("store retry: failures=%d pause_seconds=%.2f %s", failures, seconds, why)
        time.sleep(seconds)

    def explain(self, error: Any, *, action: str, key: str) -> Exception:
        """Return the ``StorageError`` for an error of boto3."""
        return storage_error(error, action=action, bucket=self.bucket, key=key, endpoint=self.endpoint)
