"""Open the store of a storage namespace.

The SDK of Azure is in the extra ``azure``, and Google's library in the extra ``gcs``. Each is imported when a URL needs
it.
"""

from __future__ import annotations

import re

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage import local
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc.storage.s3 import store as s3

_AZURE = re.compile(r"https?://", re.IGNORECASE)
_HADOOP_AZURE = re.compile(r"(?:abfss?|wasbs?|azure|adl)://", re.IGNORECASE)
_GOOGLE = re.compile(r"gs://", re.IGNORECASE)


def open_store(location: StoreLocation, *, retry: RetryPolicy | None = None) -> ObjectStore:
    """Return the store at ``location``, without sending a request to it.

    ``retry`` says how long a failing call is repeated. Raise ``ConfigurationError`` if this version does not support
    the URL, or if the SDK of its store is not installed.
    """
    if location.url.startswith(s3.SCHEME):
        return s3.S3Store(location, retry)
    if location.url.startswith(local.SCHEME):
        return local.LocalStore(location)
    if _AZURE.match(location.url):
        return _open_azure(location, retry)
    if _GOOGLE.match(location.url):
        return _open_google(location, retry)
    if _HADOOP_AZURE.match(location.url):
        raise ConfigurationError(
            f"{location.url!r} is a URL of Hadoop. lakeFS and lakefs-gc name a container of Azure by its https URL",
            remedy="Write https://ACCOUNT.blob.core.windows.net/container/path",
        )
    raise ConfigurationError(
        f"Cannot open the storage namespace {location.url!r}: unknown kind of URL",
        remedy="Write s3://bucket/prefix, gs://bucket/path, https://ACCOUNT.blob.core.windows.net/container/path or "
        "file:///absolute/folder",
    )


def _open_azure(location: StoreLocation, retry: RetryPolicy | None) -> ObjectStore:
    try:
        from lakefs_gc.storage.azure.store import AzureStore
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("azure", "requests"):
            raise
        raise ConfigurationError(
            f"{location.url!r} is in Azure Blob Storage, but Azure's SDK is not installed ({error.name})",
            remedy="Run `pip install 'lakefs-gc[azure]'`, also where Spark's executors run",
        ) from error
    return AzureStore(location, retry)


def _open_google(location: StoreLocation, retry: RetryPolicy | None) -> ObjectStore:
    try:
        from lakefs_gc.storage.gcs.store import GCSStore
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("google", "requests"):
            raise
        raise ConfigurationError(
            f"{location.url!r} is in Google Cloud Storage, but Google's library is not installed ({error.name})",
            remedy="Run `pip install 'lakefs-gc[gcs]'`, also where Spark's executors run",
        ) from error
    return GCSStore(location, retry)
