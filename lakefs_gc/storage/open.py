"""From a storage namespace to a store."""

from __future__ import annotations

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage import local
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc.storage.s3 import store as s3

_NOT_YET = {
    "azure": "Azure Blob Storage",
    "abfs": "Azure Blob Storage",
    "abfss": "Azure Blob Storage",
    "wasb": "Azure Blob Storage",
    "wasbs": "Azure Blob Storage",
    "gs": "Google Cloud Storage",
}


def open_store(location: StoreLocation, *, retry: RetryPolicy | None = None) -> ObjectStore:
    """The store at ``location``; nothing is sent to it yet.

    ``retry`` says how long a failing S3 call is tried again. Raises ``ConfigurationError`` for a URL that
    names no store of this version.
    """
    scheme, separator, _ = location.url.partition("://")
    if location.url.startswith(s3.SCHEME):
        return s3.S3Store(location, retry)
    if location.url.startswith(local.SCHEME):
        return local.LocalStore(location)
    if separator and (scheme in _NOT_YET or ".blob.core.windows.net/" in location.url):
        name = _NOT_YET.get(scheme, "Azure Blob Storage")
        raise ConfigurationError(
            f"{location.url!r}: {name} is not supported in this version",
            remedy="collect repositories whose storage namespace is s3:// or file://",
        )
    raise ConfigurationError(
        f"{location.url!r} is no storage namespace that can be opened",
        remedy="write s3://bucket/prefix or file:///absolute/folder",
    )
