"""Sends GETs with libcurl, which also signs them, as botocore would.

botocore's connections are Python's ``http.client``. It takes 0.5 ms of processor time for a file of 11 KB, most of it
for headers, and one thread at a time can use it. libcurl takes 0.1 ms, and other threads go on meanwhile: 16 threads
read 4,507 such files in 1.3 s, and by botocore's connections in 3.0 to 3.3 s.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any, NamedTuple

import pycurl
from botocore.exceptions import IncompleteReadError
from botocore.httpsession import get_cert_path
from urllib3.util.wait import wait_for_read

_UNKNOWN = -1
_DOTS = {".", ".."}
"""Parts of a path that libcurl resolves, as in a folder, if it also signs the request. S3 does not."""


class Answer(NamedTuple):
    """The answer to a GET. ``is_whole``: it says where the body ends. The end of a connection proves nothing."""

    status: int
    body: bytes
    is_whole: bool


class CurlGets:
    """Sends GETs, from any number of threads of one process. Connections stay open for the next ones.

    ``ca_bundle`` is the file with the certificates that are trusted; an empty one: none is verified. ``read_seconds``:
    how long nothing may arrive. All that have the same of these in a process share their connections: each takes three
    file descriptors.
    """

    def __init__(self, *, ca_bundle: str, connect_seconds: float, read_seconds: float) -> None:
        self._ca_bundle, self._connect_seconds, self._read_seconds = ca_bundle, connect_seconds, read_seconds
        self._idle = _idle(os.getpid(), ca_bundle, connect_seconds, read_seconds)

    @classmethod
    def instead_of(cls, connections: Any, url: str, config: Any) -> CurlGets | None:
        """Return what sends GETs to ``url`` as ``connections`` does, with the configuration ``config`` of its client.

        None if that is not possible: through a proxy, with a certificate of the client, or if the connections are not
        those of the botocore that is known here.
        """
        try:
            proxy = connections._proxy_config.proxy_url_for(url)
            verify, certificate = get_cert_path(connections._verify), connections._cert_file
        except AttributeError:
            return None
        if proxy or certificate:
            return None
        return cls(
            ca_bundle=str(verify or ""), connect_seconds=config.connect_timeout, read_seconds=config.read_timeout
        )

    def get(self, url: str, credentials: Any, region: str, user_agent: str) -> Answer | None:
        """Send a GET to S3, and return its answer.

        None if there is no answer, for example without a connection. Nothing is sent, and None returned, if a part of
        the key is ``.`` or ``..``, which libcurl would resolve, or if a text is not ASCII. ``credentials`` are
        botocore's ``ReadOnlyCredentials``, for a bucket in ``region``. Raises ``IncompleteReadError`` for a body that
        ends before its stated end.
        """
        token = credentials.token
        if not _DOTS.isdisjoint(url.split("/")) or not _is_ascii(url, credentials, user_agent):
            return None
        connection = self._unused() or self._connection()
        chunks = list[bytes]()
        connection.setopt(pycurl.URL, url)
        connection.setopt(pycurl.AWS_SIGV4, f"aws:amz:{region}:s3")
        connection.setopt(pycurl.USERNAME, credentials.access_key)
        connection.setopt(pycurl.PASSWORD, credentials.secret_key)
        connection.setopt(pycurl.HTTPHEADER, [f"x-amz-security-token: {token}"] if token else [])
        connection.setopt(pycurl.USERAGENT, user_agent)
        connection.setopt(pycurl.WRITEFUNCTION, chunks.append)
        try:
            connection.perform()
        except pycurl.error as error:
            stated_bytes = int(connection.getinfo(pycurl.CONTENT_LENGTH_DOWNLOAD_T))
            connection.close()
            if error.args[0] != pycurl.E_PARTIAL_FILE:
                return None
            actual_bytes = sum(map(len, chunks))
            raise IncompleteReadError(actual_bytes=actual_bytes, expected_bytes=stated_bytes) from error
        stated_bytes = int(connection.getinfo(pycurl.CONTENT_LENGTH_DOWNLOAD_T))
        status = int(connection.getinfo(pycurl.RESPONSE_CODE))
        body = b"".join(chunks)
        chunks.clear()  # the connection keeps the list
        self._idle.append(connection)
        return Answer(status, body, is_whole=stated_bytes != _UNKNOWN)

    def _unused(self) -> Any:
        """Return a connection that waits for a request, or None.

        A connection with bytes to read is closed: they may be an answer that nobody asked for, and the next request
        would get it. urllib3 does the same. libcurl checks only connections that were idle for a second.
        """
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread took it
                return None
            socket = connection.getinfo(pycurl.ACTIVESOCKET)
            if socket != _UNKNOWN and wait_for_read(socket, timeout=0):
                connection.close()
                continue
            return connection
        return None

    def _connection(self) -> Any:
        connection = pycurl.Curl()
        connection.setopt(pycurl.NOSIGNAL, 1)  # signals are the main thread's
        connection.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        connection.setopt(pycurl.MAXCONNECTS, 1)
        connection.setopt(pycurl.PROXY, "")  # `instead_of` knows whether there is one
        connection.setopt(pycurl.CONNECTTIMEOUT_MS, int(1000 * self._connect_seconds))
        connection.setopt(pycurl.LOW_SPEED_LIMIT, 1)
        connection.setopt(pycurl.LOW_SPEED_TIME, max(1, round(self._read_seconds)))
        if self._ca_bundle:
            connection.setopt(pycurl.CAINFO, self._ca_bundle)
        else:
            connection.setopt(pycurl.SSL_VERIFYPEER, 0)
            connection.setopt(pycurl.SSL_VERIFYHOST, 0)
        return connection


@cache
def _idle(pid: int, ca_bundle: str, connect_seconds: float, read_seconds: float) -> list[Any]:
    """Return the connections of a process that wait for requests. ``append`` and ``pop`` of a list need no lock."""
    return []


def _is_ascii(url: str, credentials: Any, user_agent: str) -> bool:
    texts = (url, credentials.access_key, credentials.secret_key, credentials.token or "", user_agent)
    return all(text.isascii() for text in texts)
