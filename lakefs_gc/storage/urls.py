"""URLs of storage namespaces: the bucket and folder that they name, and URLs without credentials, for logs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

_USER_INFO = re.compile(r"(?<=://)[^/?#\s]*@")


def has_credentials(url: str) -> bool:
    """Return whether a URL has user information before its host, as in ``https://user:password@host``."""
    return _USER_INFO.search(url) is not None


def shown(text: str) -> str:
    """Return ``text`` with the user information of each URL in it masked."""
    return _USER_INFO.sub("***@", text)


_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[^/]*)/*(?P<path>[\s\S]*)", re.IGNORECASE)
_GO_UNESCAPED = "-_.~$&+,/:;=@"
"""What Go's ``net/url`` does not escape in a path, beside letters and digits."""


# Not the names of accounts and containers only: what is wrong with one is said where it is opened.
_HADOOP_URL = re.compile(
    r"(?:abfs|wasb)s?://(?P<container>[^/@:]+)@(?P<account>[^./@:]+)\.(?:dfs|blob)\.(?P<domain>[^/?#@:]+)(?P<path>/[^?#]*)?",
    re.IGNORECASE,
)


def https_of_hadoop(url: str) -> str:
    """Return the https URL of a folder in Azure that Hadoop and Spark spell otherwise; any other URL as it is.

    ``abfss://container@ACCOUNT.dfs.core.windows.net/path`` is
    ``https://ACCOUNT.blob.core.windows.net/container/path``. Hadoop reads the path as it is written, so it is encoded.
    """
    match = _HADOOP_URL.fullmatch(url)
    if match is None:
        return url
    return f"https://{match['account']}.blob.{match['domain']}/{match['container']}{quote(match['path'] or '')}"


@dataclass(frozen=True)
class BucketFolder:
    """A folder of a bucket or container. ``root`` is the prefix of all its keys: empty, or ending in a slash.

    ``account`` is the account in Azure, in lower case; otherwise empty.
    """

    account: str
    bucket: str
    root: str


def bucket_folder(url: str) -> BucketFolder:
    """Return the bucket and the folder that a URL names, as its store reads it, without any check.

    In Azure the path is decoded. In Google's store it is decoded if it has Go's usual encoding. Other stores read it as
    it is written. Raise ``UnicodeDecodeError`` if a path is not UTF-8 when it is decoded.
    """
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError(f"{url!r} is not a URL")
    scheme, host, path = match["scheme"].lower(), match["host"].rpartition("@")[2], match["path"]
    account = ""
    if scheme in ("http", "https"):
        account = host.lower().partition(".")[0].partition("-")[0]
        host, _, path = unquote(path, errors="strict").strip("/").partition("/")
    elif scheme == "gs":
        path = path_as_go_reads(path)
    root = path.strip("/")
    return BucketFolder(account, host, root + "/" if root else "")


def path_as_go_reads(path: str) -> str:
    """Return a path decoded if it has Go's usual encoding (``a%20b``), and otherwise as it is written (``a%2Fb``).

    lakeFS reads paths in Google's store so: ``RawPathFromURI`` in ``pkg/block/namespace.go``. Raise
    ``UnicodeDecodeError`` if the path is not UTF-8 when it is decoded.
    """
    if "%" not in path:
        return path
    decoded = unquote(path, errors="strict")
    return decoded if quote(decoded, safe=_GO_UNESCAPED) == path else path
