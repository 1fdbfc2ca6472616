"""Map storage namespaces and physical addresses to locations in the sandbox's object store.

With a local root (``file:///folder``), the namespace ``local://name`` is the folder ``name`` below it. With a root in
S3, Azure or Google's store, a namespace is its own URL, which must be inside the root. Addresses outside every
namespace (imports, staged objects) are read anywhere in the same kind of store, and never written.
"""

from __future__ import annotations

import json
import os
import re
import threading
from urllib.parse import quote, unquote

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.addresses import normalize_namespace
from lakefs_gc.formats.entry import AddressType, Entry
from lakefs_gc.sandbox.data.addresses import DATA_FOLDER
from lakefs_gc.sandbox.problems import ApiError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
# The characters that Go's net/url does not escape in a path.
_GO_PATH_SAFE = "-_.~$&+,/:;=@"


class Namespaces:
    """The stores below one root. Each is opened once and cached."""

    def __init__(self, root: StoreLocation) -> None:
        """Raise ``ConfigurationError`` for a root that is not ``file://``, ``s3://``, ``gs://`` or ``https://``."""
        self.root = root
        scheme = root.url.partition("://")[0]
        kinds = {"file": "local", "s3": "s3", "gs": "gs", "https": "azure"}
        if scheme not in kinds:
            raise ConfigurationError(
                f"The sandbox cannot store objects at {root.url!r}",
                remedy="Use file:///folder, s3://bucket/prefix, gs://bucket/path or "
                "https://ACCOUNT.blob.core.windows.net/container",
            )
        self.blockstore_type = kinds[scheme]
        self._stores: dict[str, ObjectStore] = {}
        self._lock = threading.Lock()

    @property
    def scheme(self) -> str:
        """Return the scheme of the URLs of this kind of store."""
        return "https" if self.blockstore_type == "azure" else self.blockstore_type

    @property
    def validity_regex(self) -> str:
        """Return the regular expression of lakeFS that a namespace must match."""
        return f"^{self.scheme}://"

    @property
    def default_namespace_prefix(self) -> str:
        """Return a prefix that makes a namespace from the name of a new repository."""
        return "local://" if self.blockstore_type == "local" else self.root.folder_url

    def check_namespace(self, namespace: str) -> None:
        """Raise ``ApiError`` 400 for a namespace of another kind of store, or outside the root."""
        if not re.match(self.validity_regex, namespace):
            reason = f"failed to match required regex {self.validity_regex}: invalid namespace"
            raise ApiError(400, reason)
        if not self._location(namespace).startswith(self.root.folder_url):
            raise ApiError(400, "failed to create repository: failed to access storage")

    def store(self, namespace: str) -> ObjectStore:
        """Return the store of a namespace, or of any other folder of this kind of store."""
        url = self._location(namespace)
        with self._lock:
            if url not in self._stores:
                self._stores[url] = open_store(StoreLocation(url))
            return self._stores[url]

    def place(self, namespace: str, entry: Entry) -> tuple[ObjectStore, str]:
        """Return the store and the key at which the bytes of an entry are."""
        if not is_full(entry):
            return self.store(namespace), entry.address
        folder = namespace.rstrip("/") + "/"
        url = shown_address(namespace, entry.address, entry.address_type)
        if url.startswith(folder):
            return self.store(namespace), url.removeprefix(folder)
        return self.outside(url)

    def outside(self, url: str) -> tuple[ObjectStore, str]:
        """Return the store and the key (perhaps the beginning of one) of a URL of this kind of store."""
        bucket, _, key = url.partition("://")[2].partition("/")
        if not bucket and self.blockstore_type == "local":  # a lakeFS server also accepts the folder itself
            folder = self.root.folder_url.removeprefix("file://")
            bucket, _, key = f"/{key}".removeprefix(folder).partition("/")
        if self.blockstore_type == "azure":  # the host is the account's
            container, _, key = key.partition("/")
            bucket = f"{bucket}/{container}"
        return self.store(f"{self.scheme}://{bucket}"), key

    def by_folder(self, url: str) -> str:
        """Return the URL of an object as a lakeFS server shows it: with its folder if the store is local."""
        if self.blockstore_type != "local":
            return url
        folder = self.root.folder_url.removeprefix("file://")
        return f"local://{folder}{url.removeprefix('local://').lstrip('/')}"

    def key_by_links(self, folder: str, url: str) -> str | None:
        """Return the key of a local path that leads into a namespace's folder through symbolic links, or None."""
        path = url.removeprefix("local://")
        if self.blockstore_type != "local" or not url.startswith("local:///") or "\0" in path:
            return None
        root = os.path.realpath(self._location(folder).removeprefix("file://"))
        real = os.path.realpath(path)
        return real.removeprefix(f"{root}/") if real.startswith(f"{root}/") else None

    def _location(self, namespace: str) -> str:
        """Return the URL of a namespace's folder, with a final slash."""
        folder = normalize_namespace(namespace)
        if self.blockstore_type != "local":
            return folder
        parts = folder.removeprefix("local://").strip("/").split("/")
        if not parts[0] or not {"", ".", ".."}.isdisjoint(parts):
            raise ApiError(400, f"{namespace}: invalid address")
        return self.root.folder_url + "/".join(parts) + "/"


def is_full(entry: Entry) -> bool:
    """Return whether the address of an entry is a whole URL."""
    if entry.address_type is AddressType.BY_PREFIX:
        return _SCHEME.match(entry.address) is not None
    return entry.address_type is AddressType.FULL


def relative_if_data(namespace: str, address: str) -> tuple[str, AddressType]:
    """Return an address as lakeFS stores it: relative if it is in the namespace's ``data/``."""
    folder = namespace.rstrip("/") + "/"
    if address.startswith(folder + DATA_FOLDER):
        return address.removeprefix(folder), AddressType.RELATIVE
    return address, AddressType.FULL


def shown_address(namespace: str, address: str, address_type: AddressType) -> str:
    """Return an address as the REST API shows it. A full address is decoded as by Go's URL parser, and cut at ``?``.

    Raise ``ApiError`` 500 for a URL that Go does not parse.
    """
    if address_type is AddressType.RELATIVE:
        return namespace.rstrip("/") + "/" + address
    _check_url(address)
    scheme, separator, rest = address.partition("://")
    if not separator:
        return namespace.rstrip("/") + "/" + address
    host, slash, raw_path = rest.partition("?")[0].partition("/")
    path = unquote(raw_path, errors="surrogateescape")
    canonical = quote(path.encode("utf-8", "surrogateescape"), safe=_GO_PATH_SAFE)
    return f"{scheme}://{host}{slash}{path if canonical == raw_path else raw_path}"


def _check_url(url: str) -> None:
    """Raise ``ApiError`` 500, with the message of Go's URL parser, for a URL that it does not parse."""
    quoted = json.dumps(url, ensure_ascii=False)
    if re.search(r"[\x00-\x1f\x7f]", url):
        raise ApiError(500, f"could not parse URI: parse {quoted}: net/url: invalid control character in URL")
    bad_escape = re.search(r"%(?![0-9a-fA-F]{2}).{0,2}", url)
    if bad_escape:
        raise ApiError(500, f'could not parse URI: parse {quoted}: invalid URL escape "{bad_escape[0]}"')
