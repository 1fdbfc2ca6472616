"""boto3 clients for the store, and the retries around their calls."""

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
from lakefs_gc.storage.pace import RequestLimit
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc.storage.s3.errors import (
    describe,
    is_answered,
    is_retryable,
    is_slow_down,
    is_well_but_slow,
    storage_error,
)
from lakefs_gc.storage.urls import has_credentials, shown

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

RAW_PAGE = "RawPage"
"""Where ``list_objects_v2`` of the first client puts the page's body: bytes, XML as the store sent it."""

S3_FAILURES = (ClientError, BotoCoreError, HTTPError, ResponseParserError)


def new_clients(max_connections: int = 64) -> tuple[Any, Any]:
    """Two boto3 S3 clients, one for listings and one for the rest, by the standard AWS chain: credentials,
    region, endpoint, CA bundle, proxies.

    They differ from plain ones in this: no retries of their own (``call`` makes them, for every kind of
    failure alike); checksums only where the API demands them, which older stores need; and the first one's
    listings come unparsed (``RAW_PAGE``). As boto3 has it, requests are in path style at a custom endpoint,
    unless the AWS profile sets ``addressing_style = virtual``, and in virtual-host style at AWS.

    Raises ``ConfigurationError`` for a profile or an endpoint that boto3 cannot use.
    """
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=max_connections,
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=READ_TIMEOUT_SECONDS,
        request_checksum_calculation="when_required",
        # A text of our own, and not an addition to botocore's: it puts that together anew, twice for each request
        # (0.2 ms of the 2 ms that a page takes).
        user_agent=f"lakefs-gc Boto3/{boto3.__version__}",
    )
    try:
        session = _session()
        region = session.region_name or "us-east-1"
        lister: Any = session.client("s3", region_name=region, config=config)
        rest: Any = session.client("s3", region_name=region, config=config)
    except (ProfileNotFound, InvalidConfigError, ValueError) as error:
        raise ConfigurationError(
            f"boto3 cannot be set up: {shown(str(error))}",
            remedy="check AWS_PROFILE, AWS_ENDPOINT_URL_S3, AWS_REGION and ~/.aws/config",
        ) from None
    if has_credentials(rest.meta.endpoint_url):
        raise ConfigurationError(
            "the endpoint of S3 has credentials in its URL, which is shown and logged",
            remedy="remove what is before the @ in AWS_ENDPOINT_URL_S3; the keys go to AWS_ACCESS_KEY_ID and so on",
        )
    if _is_custom(rest.meta.endpoint_url):
        rest.meta.events.register("before-sign.s3.DeleteObjects", _add_content_md5)
    lister.meta.events.register("before-parse.s3.ListObjectsV2", _hide_page)
    lister.meta.events.register("after-call.s3.ListObjectsV2", _hand_over_page)
    # botocore parses every answer to see whether it is an error in spite of its 200, which parse_page sees
    # too.
    if handler := getattr(handlers, "_handle_200_error", None):
        lister.meta.events.unregister("before-parse.s3.*", handler)
    return lister, rest


@lru_cache
def _loader() -> Any:
    """botocore's descriptions of services: to read them takes 55 ms, and each repository has clients of its own."""
    return botocore.session.get_session().get_component("data_loader")


def _session() -> boto3.Session:
    # Not one session for all: credentials in files may have changed.
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
    """Stores that predate S3's CRC checksums demand an MD5 of a bulk delete; the others ignore it."""
    digest = hashlib.md5(request.body, usedforsecurity=False).digest()
    request.headers["Content-MD5"] = base64.b64encode(digest).decode()


def _hide_page(response_dict: dict[str, Any], **_: Any) -> None:
    """Keep botocore from parsing a page, at 70 times the cost of ``parse_page``."""
    if response_dict["status_code"] == 200:
        response_dict["body"] = b""


def _hand_over_page(http_response: Any, parsed: dict[str, Any], **_: Any) -> None:
    if http_response.status_code == 200:
        parsed[RAW_PAGE] = http_response.content


class TooLateError(Exception):
    """A delete was not sent, because its window is over; ``error`` is what its try before ended with, or ''.

    Never leaves this package.
    """

    def __init__(self, error: str = "") -> None:
        super().__init__(error)
        self.error = error


class RetryingClient:
    """Calls with retries, and errors that tell the user what to do. For one bucket, in one process."""

    def __init__(self, bucket: str, retry: RetryPolicy) -> None:
        self.lister, self.client = new_clients()
        self.bucket = bucket
        self.retry = retry
        self.endpoint: str = self.client.meta.endpoint_url
        self._of_thread = threading.local()
        for operation in ("DeleteObject", "DeleteObjects"):
            self.client.meta.events.register(f"before-send.s3.{operation}", self._refuse_late)
        self.limit: RequestLimit | None = None
        """A ceiling on requests in a second, if there is one."""
        self.slow_downs = 0
        """Answers so far that asked to slow down. Threads count without a lock: one more or less is no matter."""

    def call(
        self,
        function: Callable[[], Answer],
        *,
        action: str,
        key: str,
        tries: int | None = None,
        window: DeleteWindow | None = None,
    ) -> Answer:
        """``function()``, tried again after failures that may pass; ``key`` (or prefix) is for the message.

        ``tries`` overrides the policy's. A delete of an object is sent while ``window`` is open; after that
        ``TooLateError``. Raises ``StorageError`` or one of its kinds.
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
            except S3_FAILURES as error:
                failures, failed_with = failures + 1, describe(error)
                if window and not is_answered(error):
                    window.unanswered = True
                self.slow_downs += is_slow_down(error)
                most = tries or (self.retry.tries_when_slow if is_well_but_slow(error) else self.retry.tries)
                if not is_retryable(error) or failures >= most:
                    raise self.explain(error, action=action, key=key) from error
                self.pause(failures, f"s3:{action} {key}: {failed_with}")

    def _refuse_late(self, **_: Any) -> None:
        """Before each send, redirected ones too: by then credentials were got and other requests waited for."""
        window: DeleteWindow | None = getattr(self._of_thread, "window", None)
        if window and window.is_over:
            raise TooLateError

    def head(self, name: str, **parameters: Any) -> Mapping[str, Any]:
        """Facts about the object ``name`` of the bucket, its size and time among them.

        Raises ``StorageError`` when the store leaves out one of these, and what ``call`` raises.
        """

        def ask() -> Mapping[str, Any]:
            try:
                answer: Mapping[str, Any] = self.client.head_object(Bucket=self.bucket, Key=name, **parameters)
            except ValueError as error:  # botocore's, for a header that is no number or no date
                raise self.not_told(name, f"what can be read ({error})") from None
            return answer

        answer = self.call(ask, action="GetObject", key=name)
        for fact in ("ContentLength", "LastModified"):
            self.told(answer, fact, key=name)
        return answer

    def told(self, answer: Mapping[str, Any], fact: str, *, key: str) -> Any:
        """What the store says under this name; raises ``StorageError`` when it does not say it."""
        if fact not in answer:
            raise self.not_told(key, fact)
        return answer[fact]

    def not_told(self, key: str, fact: str) -> StorageError:
        """For an answer without ``fact``."""
        return StorageError(
            f"s3://{self.bucket}/{key} at {self.endpoint}: the answer is a success, and does not have {fact}",
            remedy="see whether a proxy stands before the store, and what it does to answers; then run again",
        )

    def pause(self, failures: int, why: str) -> None:
        """Wait before the next try."""
        seconds = self.retry.pause_seconds(failures)
        log.info("store retry: failures=%d pause_seconds=%.2f %s", failures, seconds, why)
        time.sleep(seconds)

    def explain(self, error: Any, *, action: str, key: str) -> Exception:
        """The error of this project for one of boto3's."""
        return storage_error(error, action=action, bucket=self.bucket, key=key, endpoint=self.endpoint)
