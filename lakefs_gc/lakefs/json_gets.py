"""Sends the GETs of the lakeFS API that a run sends thousands of times, by libcurl instead of the SDK.

Pages of changes and of objects, and logs: for a page of 90 objects the SDK takes 0.7 ms of processor time, most of it
for the arguments and headers, and one thread at a time can use it. This takes 0.25 ms, and 0.15 of that parses JSON.
What libcurl cannot send, or gets no answer to, is sent by the SDK, which reports what is wrong.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from http.client import responses
from types import SimpleNamespace
from urllib.parse import quote, urlencode

import pycurl

from lakefs_gc.lakefs.sdk import ApiException
from lakefs_gc.storage.curl import CurlConnections, PartialBodyError

_MOST_IN_VAIN = 3
"""After so many requests in a row without an answer, the SDK sends all."""


class JsonGets:
    """GETs of one server. ``url`` is that of its API, and ``timeouts_seconds`` are for connecting and for reading."""

    def __init__(
        self, url: str, user: str, password: str, user_agent: str, timeouts_seconds: tuple[float, float]
    ) -> None:
        self._url = url
        self._connections: CurlConnections | None = None
        self._in_vain = 0
        connect_seconds, read_seconds = timeouts_seconds
        # urllib3 trusts what OpenSSL does by default. libcurl has no such default that is the same everywhere.
        ca_bundle = ssl.get_default_verify_paths().cafile or "" if url.startswith("https:") else ""
        can_verify = url.startswith("http:") or bool(ca_bundle)
        if can_verify and all(text.isascii() for text in (url, user, password, user_agent)):
            self._connections = CurlConnections(
                "lakefs", ca_bundle=ca_bundle, connect_seconds=connect_seconds, read_seconds=read_seconds
            )
        self._options = {
            pycurl.PATH_AS_IS: 1,
            pycurl.ACCEPT_ENCODING: "identity",  # as urllib3. What is compressed nevertheless is decoded
            pycurl.HTTPAUTH: pycurl.HTTPAUTH_BASIC,
            pycurl.USERNAME: user,
            pycurl.PASSWORD: password,
            pycurl.HTTPHEADER: ["Accept: application/json"],
            pycurl.USERAGENT: user_agent,
        }

    def get(self, path: tuple[str, ...], query: Mapping[str, str | int]) -> bytes | None:
        """Return the body of the answer to a request for ``path``, in parts; None if the SDK must send the request.

        Raises ``ApiException``, as the SDK does, for the answer that the request failed.
        """
        if self._connections is None or self._in_vain >= _MOST_IN_VAIN:
            return None
        url = "/".join((self._url, *(quote(part, safe="") for part in path))) + f"?{urlencode(query, quote_via=quote)}"
        try:
            answer = self._connections.get(url, self._options)
        except PartialBodyError:
            answer = None
        if answer is None or 300 <= answer.status < 400:
            self._in_vain += 1
            return None
        self._in_vain = 0
        if answer.status >= 400:
            raise ApiException(
                http_resp=SimpleNamespace(
                    status=answer.status,
                    reason=responses.get(answer.status, ""),
                    data=answer.body.decode(errors="replace"),
                    getheaders=dict,
                )
            )
        return answer.body
