"""Open the store of a storage namespace."""

from __future__ import annotations

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage import local
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc.storage.s3 import store as s3

_UNSUPPORTED = {
    "azure": "Azure Blob Storage",
    "abfs": "Azure Blob Storage",
    "abfss": "Azure Blob Storage",
    "wasb": "Azure Blob Storage",
    "wasbs": "Azure Blob Storage",
    "gs": "Google Cloud Storage",
}


def open_store(location: StoreLocation, *, retry: RetryPolicy | None = None) -> ObjectStore:
    """Return the store at ``location``, without sending a request to it.

    ``retry`` says how long a failing S3 call is repeated. Raise ``ConfigurationError`` if this version does not support
    the URL.
    """
    scheme, separator, _ = location.url.partition("://")
    if location.url.startswith(s3.SCHEME):
        return s3.S3Store(location, retry)
    if location.url.startswith(local.SCHEME):
        return local.LocalStore(location)
    if separator and (scheme in _UNSUPPORTED or ".blob.core.windows.net/" in location.url):
        name = _UNSUPPORTED.get(scheme, "Azure Blob Storage")
        raise ConfigurationError(
            f"{location.url!r}: {name} is not supported in this version",
            remedy="Collect only repositories with a storage namespace that begins with s3:// or file://",
        )
    raise ConfigurationError(
        f"Cannot open the storage namespace {location.url!r}: unknown kind of URL",
        remedy="Write s3://bucket/prefix or file:///absolute/folder",
    )
