"""A wrong credential, a missing container and an endpoint that does not answer, with Azurite as the store."""

from __future__ import annotations

import base64

import pytest

from lakefs_gc.errors import AccessDeniedError, LakeFSGCError, ObjectNotFoundError, StoreUnavailableError
from lakefs_gc.sandbox.azurite import Azurite
from lakefs_gc.storage.base import DeletionOutcome
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.retry import RetryPolicy

_ONCE = RetryPolicy(tries=1)


def refused(location: StoreLocation, error: type[LakeFSGCError]) -> None:
    """Check that no operation takes a failure for an empty store, or for a deleted object."""
    with pytest.raises(error):
        list(open_store(location, retry=_ONCE).list(""))
    with pytest.raises(error):
        open_store(location, retry=_ONCE).stat_many(["data/a"])


def test_a_wrong_key_is_no_empty_store(azure_namespace: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(azure_namespace)
    store.put("data/a", b"live")
    with monkeypatch.context() as changed:
        wrong = base64.b64encode(b"wrong" * 8).decode()
        changed.setenv("AZURE_STORAGE_KEY", wrong)
        refused(azure_namespace, AccessDeniedError)
        # Azurite's code (AuthorizationFailure) may be about one blob, so each key has its own failure.
        answers = open_store(azure_namespace, retry=_ONCE).delete_many(["data/a", "data/b"])
        assert {answer.outcome for answer in answers} == {DeletionOutcome.FAILED}
    assert store.read("data/a") == b"live"


def test_a_missing_container_is_no_empty_store(azurite: Azurite, azure_namespace: StoreLocation) -> None:
    assert azure_namespace.url.startswith("https://")
    missing = StoreLocation(f"{azurite.url('no-such-container')}/repository")
    refused(missing, ObjectNotFoundError)
    with pytest.raises(ObjectNotFoundError):
        open_store(missing, retry=_ONCE).delete_many(["data/a", "data/b"])


def test_an_endpoint_without_a_server(azure_namespace: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", "http://127.0.0.1:9/devstoreaccount1")
    with pytest.raises(StoreUnavailableError):
        list(open_store(azure_namespace, retry=_ONCE).list(""))
    with pytest.raises(StoreUnavailableError):
        open_store(azure_namespace, retry=_ONCE).stat_many(["data/a"])
