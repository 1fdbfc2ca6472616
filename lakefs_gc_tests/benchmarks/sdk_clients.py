"""The official SDKs of Azure and Google, used as their documents show: one page, and one key, after the other.

Google's is no dependency of the project: ``pip install google-cloud-storage``. Without it the baseline is the same
requests, one after the other, through a plain HTTP session, which is quicker: no Python object is made for each key.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

import requests
from azure.storage.blob import BlobServiceClient

from lakefs_gc_tests.benchmarks.simulated_bucket import ACCOUNT, ACCOUNT_KEY, BUCKET

HAS_GOOGLES = importlib.util.find_spec("google.cloud") is not None and bool(
    importlib.util.find_spec("google.cloud.storage")
)
NAMES = {
    "azure": "Azure: azure-storage-blob",
    "gcs": "Google: google-cloud-storage" if HAS_GOOGLES else "Google: a plain HTTP session",
}


class Client:
    """``count(prefix)`` lists, and ``delete(keys)`` deletes, one request after the other."""

    def __init__(self, count: Callable[[str], int], delete: Callable[[str], Any]) -> None:
        self.count = count
        self._delete = delete

    def delete(self, keys: Iterable[str]) -> int:
        """Return the number of deleted keys."""
        deleted = 0
        for key in keys:
            self._delete(key)
            deleted += 1
        return deleted


def client_of(protocol: str) -> Client:
    """Return the SDK as a client of the simulated store that the environment leads to."""
    if protocol == "azure":
        credential = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY}
        service: Any = BlobServiceClient(os.environ["AZURE_STORAGE_SERVICE_ENDPOINT"], credential=credential)
        container = service.get_container_client(BUCKET)
        return Client(
            lambda prefix: sum(1 for _ in container.list_blobs(name_starts_with=prefix)), container.delete_blob
        )
    return _googles() if HAS_GOOGLES else _plain_session()


def _googles() -> Client:
    credentials: Any = importlib.import_module("google.auth.credentials")
    storage: Any = importlib.import_module("google.cloud.storage")
    bucket = storage.Client(project="simulated", credentials=credentials.AnonymousCredentials()).bucket(BUCKET)
    return Client(lambda prefix: sum(1 for _ in bucket.list_blobs(prefix=prefix)), bucket.delete_blob)


def _plain_session() -> Client:
    session = requests.Session()
    objects = f"{os.environ['STORAGE_EMULATOR_HOST']}/storage/v1/b/{BUCKET}/o"

    def count(prefix: str) -> int:
        found, query = 0, {"prefix": prefix}
        while True:
            page = session.get(objects, params=query).json()
            found += len(page["items"])
            if "nextPageToken" not in page:
                return found
            query["pageToken"] = page["nextPageToken"]

    return Client(count, lambda key: session.delete(f"{objects}/{quote(key, safe='')}").raise_for_status())
