"""A missing bucket and an endpoint that does not answer, with fake-gcs-server as the store.

The emulator checks no credentials: see ``test_access`` and ``test_deletes`` for wrong ones.
"""

from __future__ import annotations

import pytest

from lakefs_gc.errors import ObjectNotFoundError, StoreUnavailableError
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.retry import RetryPolicy

_ONCE = RetryPolicy(tries=1)
_MISSING = StoreLocation("gs://no-such-bucket/repository")


def test_a_missing_bucket_is_no_empty_store(gcs_namespace: StoreLocation) -> None:
    assert list(open_store(gcs_namespace, retry=_ONCE).list()) == []
    store = open_store(_MISSING, retry=_ONCE)
    for call in (
        lambda: list(store.list("")),
        lambda: store.stat_many(["data/a"]),
        lambda: store.delete_many(["data/a", "data/b"]),
        lambda: store.put("data/a", b"1"),
        lambda: store.space_not_freed(),
    ):
        with pytest.raises(ObjectNotFoundError, match="bucket no-such-bucket does not exist"):
            call()


def test_an_endpoint_without_a_server(gcs_namespace: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:9")
    store = open_store(gcs_namespace, retry=_ONCE)
    for call in (
        lambda: list(store.list("")),
        lambda: store.stat_many(["data/a"]),
        lambda: store.delete_many(["data/a", "data/b"]),
    ):
        with pytest.raises(StoreUnavailableError):
            call()
