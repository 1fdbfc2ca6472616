"""What else an address may mean, and on which kind of store it is.

lakeFS reads full addresses as URLs, local stores read addresses as paths, and some stores convert the names of objects.
An entry keeps the object of each meaning (rule 12).
"""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
LOCAL_SCHEME, LOCAL_STORE, _S3_SCHEME = "local://", "file://", "s3://"
_HOST = re.compile(r"(?:[^/?]*@)?(?P<name>[^/?]*)")
_AZURE_URL = re.compile(r"https?://", re.IGNORECASE)
_AZURE_DOMAIN = ".blob.core.windows.net/"
UNTIDY_PATH = re.compile(r"(?:\A|/)\.{0,2}/|/\.{0,2}\Z")
"""A path with an empty part, ``.`` or ``..``."""


def other_readings(address: str) -> list[str]:
    """Return the other meanings of an address that is read as a URL: without a query, decoded, or both.

    lakeFS reads full addresses as Go's ``url.ParseRequestURI`` does (``pkg/block/namespace.go``, ``resolveFull``). An
    address of a local store is also a path, in which ``//``, ``.`` and ``..`` lead to the object of a shorter path.
    Other stores may keep keys as paths, too (SeaweedFS), and convert backslashes (``with_slashes``). In Azure lakeFS
    decodes the path first, then removes the slashes at both of its ends. In Google's store it keeps an encoded path if
    that is not the usual encoding (``%2F``): both meanings are returned. The address itself is not returned.
    """
    address_as_read = as_read(address)
    before_query = address_as_read.partition("?")[0]
    decoded = (unquote(text, errors="surrogateescape") for text in (address_as_read, before_query))
    readings = list(dict.fromkeys([address_as_read, before_query, *decoded]))
    readings += [with_slashes(text, address) for text in readings]
    if is_in_azure(address):
        # Decoding may add slashes at both ends.
        readings += [as_read(text).rstrip("/") for text in readings]
    readings += [_resolved(text) for text in readings]
    return [text for text in dict.fromkeys(readings) if text != address and _is_utf8(text)]


def may_be_read_otherwise(addresses: pa.StringArray) -> pa.BooleanArray:
    """Return whether a full address may have ``other_readings`` that lie in its bucket."""
    return pc.match_substring_regex(addresses, r"[%?\\]|[^:/]/\.{0,2}/|///\.{0,2}/|/\.{0,2}\z|://\.{1,2}/")


def as_read(address: str) -> str:
    """Return a URL with its scheme and its bucket as lakeFS reads them; both have one meaning only.

    Go's ``url.Parse`` converts the scheme to lower case, and removes ``user:password@`` from the host. If the host of
    an S3 address is empty, the first part of the path is the bucket. Local stores read the address unchanged.

    An Azure address is returned with the scheme ``https`` and the domain ``blob.core.windows.net``: lakeFS uses only
    the account, which is the first label of the host (``pkg/block/azure/adapter.go``). ``ACCOUNT-secondary`` is the
    read-only copy of the same account. A host is a DNS name, in any case, and no account has a hyphen in its name.
    """
    address = with_small_scheme(address)
    scheme = SCHEME.match(address)
    if scheme is None or address.startswith(LOCAL_SCHEME):
        return address
    host = _HOST.match(address, scheme.end())
    if host is not None and is_in_azure(address) and "." in host["name"]:
        account = host["name"].lower().partition(".")[0].partition("-")[0]
        return f"https://{account}{_AZURE_DOMAIN}{address[host.end() :].lstrip('/')}"
    rest = address[scheme.end() :] if host is None else host["name"] + address[host.end() :]
    return scheme[0] + (rest.lstrip("/") if scheme[0] == _S3_SCHEME else rest)


def with_small_scheme(address: str) -> str:
    """Return a URL with its scheme in lower case, as Go's ``url.Parse`` returns it."""
    scheme = SCHEME.match(address)
    return address if scheme is None else scheme[0].lower() + address[scheme.end() :]


def with_slashes(address: str, url: str) -> str:
    """Return the key that the store of ``url`` may have in place of ``address``: with slashes for its backslashes.

    Azure and SeaweedFS convert them (``blobStorageContext.middleware.ts`` of Azurite says so), for each kind of
    request, and list the other key. AWS and Google keep backslashes, and so does a file system.
    """
    return address if is_local(url) or url.startswith(LOCAL_STORE) else address.replace("\\", "/")


def _resolved(url: str) -> str:
    """Return an address, which may be relative, with its path resolved as an operating system does, ignoring links."""
    scheme = SCHEME.match(url)
    start = scheme.end() if scheme else 0
    prefix, path = url[:start], url[start:]
    if not UNTIDY_PATH.search(path):
        return url
    resolved = posixpath.normpath(path).lstrip("/")
    if is_local(url):
        return f"{prefix}/{resolved}" if path.startswith("/") else prefix + resolved
    return prefix + resolved + ("/" if path.endswith("/") else "")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_in_azure(url: str) -> bool:
    """Return whether lakeFS reads a URL as one of Azure Blob Storage: it has no other namespaces with http or https."""
    return _AZURE_URL.match(url) is not None


def is_local(url: str) -> bool:
    """Return whether a URL is on a server's own disk."""
    return with_small_scheme(url).startswith(LOCAL_SCHEME)
