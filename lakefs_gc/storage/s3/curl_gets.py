"""Sends GETs to S3 with libcurl, which also signs them, as botocore would."""

from __future__ import annotations

from typing import Any

import pycurl
from botocore.exceptions import IncompleteReadError
from botocore.httpsession import get_cert_path

from lakefs_gc.storage.curl import Answer, CurlConnections, PartialBodyError

_DOTS = {".", ".."}
"""Parts of a path that libcurl resolves, as in a folder, if it also signs the request. S3 does not."""


class CurlGets:
    """Sends GETs to S3, from any number of threads of one process. Its arguments are those of ``CurlConnections``."""

    def __init__(self, *, ca_bundle: str, connect_seconds: float, read_seconds: float) -> None:
        self.connections = CurlConnections(
            "s3", ca_bundle=ca_bundle, connect_seconds=connect_seconds, read_seconds=read_seconds
        )

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
        options = {
            pycurl.AWS_SIGV4: f"aws:amz:{region}:s3",
            pycurl.USERNAME: credentials.access_key,
            pycurl.PASSWORD: credentials.secret_key,
            pycurl.HTTPHEADER: [f"x-amz-security-token: {token}"] if token else None,
            pycurl.USERAGENT: user_agent,
        }
        try:
            return self.connections.get(url, options)
        except PartialBodyError as error:
            raise IncompleteReadError(actual_bytes=error.actual_bytes, expected_bytes=error.stated_bytes) from error


def _is_ascii(url: str, credentials: Any, user_agent: str) -> bool:
    texts = (url, credentials.access_key, credentials.secret_key, credentials.token or "", user_agent)
    return all(text.isascii() for text in texts)
