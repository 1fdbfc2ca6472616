"""Send many GETs that differ in their key or query only, without most of what boto3 does for each request.

For listings and SSTables (ranges and metaranges) only: boto3 also verifies the checksum of a file, if the store has
one. An SSTable has checksums inside and is compared with its name (``named_files``), and a page that is cut off is no
XML.

For a file of 17 KB boto3 takes 1.5 ms of processor time. libcurl takes 0.2 ms, and sends the requests if that is
possible (``curl_gets``). Otherwise botocore's connections do, with its signatures, proxies and certificates: 0.75 ms.
For a page of 1,000 objects this and all that is done with it takes 1.3 to 1.9 ms by libcurl, and 2.2 ms by botocore.
Listings and marks read thousands of pages and files.

boto3 sends the first request. Where and how it sent that is the pattern of the next ones. Whatever is neither a success
nor a temporary failure is sent again by boto3, which knows redirects and errors.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError, IncompleteReadError
from botocore.utils import percent_encode, percent_encode_sequence

from lakefs_gc.storage.curl import Answer
from lakefs_gc.storage.s3.curl_gets import CurlGets
from lakefs_gc.storage.s3.errors import RETRYABLE_CODES

_KEY_SAFE = "/~"
"""What boto3 does not encode in a key."""
_SIGNATURE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]*/[0-9]{8}/([^/,]+)/s3/aws4_request, ")
_USUAL_HEADERS = {
    "authorization",
    "user-agent",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-security-token",
    # Not sent here: the number of the try, for AWS's support, and the wish for checksums.
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "x-amz-checksum-mode",
}
_MOST_IN_VAIN = 3
"""After so many requests in a row of which only boto3's succeeded, boto3 sends all."""
_CODE = re.compile(rb"<Code>([A-Za-z]{1,60})</Code>")


@dataclass(frozen=True)
class _Pattern:
    """How boto3 sent a request: the URL without key and query, the region of its signature, and its user agent."""

    url: str
    region: str
    user_agent: str


class PlainGets:
    """The GETs of one operation, such as ``GetObject``, of a boto3 client. ``session`` has its credentials.

    Unless ``by_curl``, botocore's connections send them: libcurl's may give the answer to another request (``curl``).
    """

    def __init__(self, client: Any, session: Any, operation: str, *, by_curl: bool) -> None:
        self._session, self._operation = session, operation
        # botocore has no public name for the connections of a client. Without them boto3 sends everything.
        self._http = getattr(getattr(client, "_endpoint", None), "http_session", None)
        self._curl = None
        if by_curl and self._http is not None:
            self._curl = CurlGets.instead_of(self._http, client.meta.endpoint_url, client.meta.config)
        self._pattern: _Pattern | None = None
        self._in_vain = 0
        self._of_thread = threading.local()
        client.meta.events.register(f"before-send.s3.{operation}", self._note)

    def get(self, by_boto3: Callable[[], bytes], key: str = "", query: Mapping[str, str] | None = None) -> bytes:
        """Return the body of the answer to a request for ``key``, with ``query`` in the URL.

        ``by_boto3`` sends the same request with boto3. Raise its errors, and the same for temporary failures.
        """
        end = percent_encode(key, safe=_KEY_SAFE) + (f"?{percent_encode_sequence(query)}" if query else "")
        used = self._pattern if self._in_vain < _MOST_IN_VAIN else None
        if self._http is not None and used is not None:
            body = self._send(used, end)
            if body is not None:
                self._in_vain = 0
                return body
        self._of_thread.sent = None
        body = by_boto3()
        self._pattern = _pattern_of(self._of_thread.sent, end)
        if used is not None and used == self._pattern:
            self._in_vain += 1
        return body

    def _note(self, request: Any, **_: Any) -> None:
        self._of_thread.sent = request

    def _send(self, pattern: _Pattern, end: str) -> bytes | None:
        """Return the body of a success; None if boto3 must send the request."""
        assert self._http is not None
        credentials = self._session.get_credentials()
        if credentials is None:
            return None
        frozen = credentials.get_frozen_credentials()
        if self._curl is not None:
            answer = self._curl.get(pattern.url + end, frozen, pattern.region, pattern.user_agent)
        else:
            request = AWSRequest("GET", pattern.url + end, headers={"User-Agent": pattern.user_agent})
            S3SigV4Auth(frozen, "s3", pattern.region).add_auth(request)
            answer = self._answer(request)
        if answer is None:
            return None
        status, body = answer.status, answer.body
        code = match[1].decode() if status != HTTPStatus.OK and (match := _CODE.search(body)) else str(status)
        has_failed = status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.NOT_IMPLEMENTED
        if has_failed or status == HTTPStatus.TOO_MANY_REQUESTS or code in RETRYABLE_CODES:
            # Not sent again at once: the store may be asking to slow down.
            facts: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
            raise ClientError(facts, self._operation)
        if status != HTTPStatus.OK:
            return None
        if not answer.is_whole:
            return None
        return body

    def _answer(self, request: AWSRequest) -> Answer:
        """Send a request by botocore's connections."""
        assert self._http is not None
        answer = self._http.send(request.prepare())
        stated, body = answer.headers.get("content-length"), bytes(answer.content)
        if stated is not None and stated != str(len(body)):  # botocore tells urllib3 not to look
            raise IncompleteReadError(actual_bytes=len(body), expected_bytes=stated)
        is_chunked = "chunked" in answer.headers.get("transfer-encoding", "").lower()
        return Answer(int(answer.status_code), body, is_whole=stated is not None or is_chunked)


def _pattern_of(sent: Any, end: str) -> _Pattern | None:
    """Return the pattern of a request; None if it has something that others may not have."""
    if sent is None or sent.method != "GET" or not sent.url.endswith(end):
        return None
    headers = {name.lower(): _text(value) for name, value in sent.headers.items()}
    signature = _SIGNATURE.match(headers.get("authorization", ""))
    if signature is None or headers.keys() - _USUAL_HEADERS:
        return None
    return _Pattern(sent.url.removesuffix(end), signature[1], headers.get("user-agent", ""))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
