"""Copies that an Azure account makes itself, and which fail: an incomplete one is never taken for the object.

Azurite makes each copy at once, so a stand-in before it shows copies that are pending, were aborted, or failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lakefs_gc.engine.records.backups.manifest import ALREADY_GONE, COPIED, FAILED, BackupPaths
from lakefs_gc.engine.undo.copy_object import Planned, copy_one
from lakefs_gc.engine.undo.same_content import same_content
from lakefs_gc.errors import AccessDeniedError, LakeFSGCError, ObjectNotFoundError, StorageError
from lakefs_gc.sandbox.azurite import ACCOUNT, Azurite
from lakefs_gc.storage.azure import content
from lakefs_gc.storage.azure.store import AzureStore
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc_tests.support.copying_azurite import CopyingAzurite
from lakefs_gc_tests.support.store_proxy import StoreAnswer, StoreRequest, azure_error

CONTENT = b"content of the object"


@pytest.fixture
def copying(
    azurite: Azurite, azure_namespace: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CopyingAzurite]:
    assert azure_namespace.url
    monkeypatch.setattr(content, "_PENDING_SECONDS", 0.3)
    monkeypatch.setattr(content, "_POLL_SECONDS", 0.01)
    with CopyingAzurite(azurite) as copying:
        monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", f"{copying.endpoint}/{ACCOUNT}")
        yield copying


@pytest.fixture
def store(copying: CopyingAzurite, azure_namespace: StoreLocation) -> ObjectStore:
    assert copying.endpoint
    store = AzureStore(azure_namespace, RetryPolicy(tries=3, base_seconds=0.001))
    store.put("a", CONTENT)
    return store


def keys(store: ObjectStore) -> list[str]:
    return [key for batch in store.list() for key in batch["address"].to_pylist()]


@pytest.mark.parametrize("states", [["success"], ["pending", "success"], ["pending", "pending", "pending", "success"]])
def test_a_copy_is_awaited(copying: CopyingAzurite, store: ObjectStore, states: list[str]) -> None:
    copying.states = states
    assert store.copy_to("a", store, "b")
    assert store.read("b") == CONTENT
    assert same_content(store, "a", store, "b")[0] is not None
    uploads = [request for request in copying.requests if "blocklist" in request.operation]
    assert not uploads, "the account made the copy"


@pytest.mark.parametrize(
    "states", [["failed"], ["aborted"], ["pending", "failed"], ["pending", "aborted"], ["pending"]]
)
def test_a_copy_that_the_account_does_not_complete_is_made_again_as_a_stream(
    copying: CopyingAzurite, store: ObjectStore, states: list[str]
) -> None:
    copying.states = states
    assert store.copy_to("a", store, "b")
    assert not copying.copies, "what it left was deleted"
    assert len(copying.aborted) == (states == ["pending"] or states[-1] == "pending")
    assert store.read("b") == CONTENT
    assert same_content(store, "a", store, "b")[0] is not None


@pytest.mark.parametrize("state", ["pending", "failed", "aborted"])
def test_what_an_incomplete_copy_left_is_not_the_object(
    copying: CopyingAzurite, store: ObjectStore, state: str
) -> None:
    """It may have the size and the MD5 of the source."""
    copying.states = ["pending", state]
    with cut_after_the_copy(copying), pytest.raises(LakeFSGCError):
        store.copy_to("a", store, "b")
    assert copying.copies
    copying.states = [state]
    facts = store.content_facts("b")
    assert facts is not None
    assert facts.checksums == {}
    assert store.content_md5(["b"]) == {}
    assert same_content(store, "a", store, "b")[0] is None
    assert not store.copy_to("a", store, "b", if_absent=True), "a blob of this name exists"


@contextmanager
def cut_after_the_copy(copying: CopyingAzurite) -> Iterator[None]:
    """Let no request be answered after the one that begins a copy."""

    def fault(_: StoreRequest) -> StoreAnswer | None:
        return StoreAnswer(0) if copying.copies else None

    copying.faults.append(fault)
    try:
        yield
    finally:
        copying.faults.remove(fault)


def test_a_copy_whose_answer_is_lost(copying: CopyingAzurite, store: ObjectStore) -> None:
    copying.states, copying.loses_answer = ["pending"], True
    with pytest.raises(StorageError, match="PendingCopyOperation"):
        store.copy_to("a", store, "b")
    copying.copies.clear()
    store.delete_many(["b"])
    copying.states, copying.loses_answer = ["pending"], True
    assert not store.copy_to("a", store, "b", if_absent=True), "it is not known to be this copy"
    copying.copies.clear()
    store.delete_many(["b"])
    copying.states, copying.loses_answer = [], True
    assert store.copy_to("a", store, "b", if_absent=True), "the store has the same content"
    assert store.read("b") == CONTENT


def test_another_program_writes_the_target(copying: CopyingAzurite, store: ObjectStore) -> None:
    copying.states = ["pending"]

    def overwrite(request: StoreRequest) -> None:
        if request.operation[0] == "HEAD" and copying.copies:
            copying.faults.remove(overwrite)
            store.put("b", b"of another program")

    copying.faults.append(overwrite)
    with pytest.raises(StorageError, match="another program"):
        store.copy_to("a", store, "b")
    assert store.read("b") == b"of another program", "it was not deleted"


def at_the_copy(copying: CopyingAzurite, act: Callable[[], object]) -> None:
    """Call ``act`` just before the request that begins a copy."""

    def watch(request: StoreRequest) -> None:
        if request.operation[0] == "PUT" and request.operation[1].endswith("/b"):
            copying.faults.remove(watch)
            act()

    copying.faults.append(watch)


def test_the_source_is_gone_or_was_changed(copying: CopyingAzurite, store: ObjectStore) -> None:
    at_the_copy(copying, lambda: store.delete_many(["a"]))
    with pytest.raises(ObjectNotFoundError):
        store.copy_to("a", store, "b")
    assert keys(store) == []
    store.put("a", CONTENT)
    at_the_copy(copying, lambda: store.put("a", b"changed"))
    with pytest.raises(StorageError):
        store.copy_to("a", store, "b")
    assert keys(store) == ["a"]


@pytest.mark.parametrize("status", [403, 404, 409, 500])
@pytest.mark.parametrize("if_absent", [False, True])
def test_an_account_that_cannot_read_the_source_itself(
    copying: CopyingAzurite, store: ObjectStore, status: int, if_absent: bool
) -> None:
    """Its firewall keeps it from the source, or the signature is for the addresses of this machine."""
    refusals: list[StoreRequest] = []

    def refuse(request: StoreRequest) -> StoreAnswer | None:
        if request.operation[0] != "PUT" or refusals:
            return None
        refusals.append(request)
        return azure_error(status, "CannotVerifyCopySource")

    copying.faults.append(refuse)
    assert store.copy_to("a", store, "b", if_absent=if_absent)
    assert refusals
    assert store.read("b") == CONTENT


def test_an_incomplete_copy_that_cannot_be_removed_is_an_error(copying: CopyingAzurite, store: ObjectStore) -> None:
    copying.states = ["failed"]
    copying.faults.append(
        lambda request: (
            azure_error(403, "AuthorizationPermissionMismatch") if request.operation[0] == "DELETE" else None
        )
    )
    with pytest.raises(AccessDeniedError):
        store.copy_to("a", store, "b")
    assert same_content(store, "a", store, "b")[0] is None


# -- a backup


PATHS = BackupPaths("repository", "mark")
COPY = f"{PATHS.objects}a"


def backed_up(store: ObjectStore, recorded: str | None = None) -> str:
    record, _ = copy_one(store, store, PATHS, Planned("a", len(CONTENT), recorded))
    return record.outcome if record else str(recorded)


@pytest.mark.parametrize("states", [["pending", "success"], ["pending", "failed"], ["aborted"], ["pending"]])
def test_a_backup_is_complete_only_with_the_whole_content(
    copying: CopyingAzurite, store: ObjectStore, states: list[str]
) -> None:
    copying.states = states
    assert backed_up(store) == COPIED
    assert store.read(COPY) == CONTENT


@pytest.mark.parametrize("state", ["pending", "failed", "aborted"])
def test_a_backup_that_was_cut_in_the_middle_of_a_copy(copying: CopyingAzurite, store: ObjectStore, state: str) -> None:
    copying.states = ["pending", state]
    with cut_after_the_copy(copying):
        assert backed_up(store) == FAILED
    copying.states = [state]
    if state == "pending":
        assert backed_up(store) == FAILED, "the account still makes it"
        copying.states = ["success"]
    assert backed_up(store) == COPIED
    assert store.read(COPY) == CONTENT


def test_a_backup_whose_object_is_gone(copying: CopyingAzurite, store: ObjectStore) -> None:
    def delete(request: StoreRequest) -> None:
        if request.operation[0] == "PUT":
            copying.faults.remove(delete)
            store.delete_many(["a"])

    copying.faults.append(delete)
    assert backed_up(store) == ALREADY_GONE
    assert keys(store) == []
