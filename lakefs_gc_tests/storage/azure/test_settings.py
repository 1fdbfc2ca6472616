"""Settings of an account that keep deleted blobs, or forbid deletes: in Azurite, or by a stand-in before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lakefs_gc.cli.doctor import _space_after_deletes
from lakefs_gc.config import Settings, SweepSettings
from lakefs_gc.errors import ConfigurationError, StorageError
from lakefs_gc.sandbox.azurite import Azurite
from lakefs_gc.storage.base import DeletionOutcome, ObjectInfo, ObjectStore, VersionedTarget
from lakefs_gc.storage.freed_space import freed_space
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.azure_account import AzureAccount, azure_account, soft_delete
from lakefs_gc_tests.support.store_proxy import StoreAnswer, StoreRequest, azure_error

DELETED, LOCKED = DeletionOutcome.DELETED, DeletionOutcome.LOCKED
_FORBIDDEN = azure_error(403, "AuthorizationPermissionMismatch")
_REDIRECT = StoreAnswer(302, b"", {"Location": "https://login.test/"})
POLICY, HOLD = "BlobImmutableDueToPolicy", "BlobImmutableDueToLegalHold"


@pytest.fixture
def account(
    azurite: Azurite, azure_namespace: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AzureAccount]:
    assert azure_namespace.url
    with azure_account(azurite) as (account, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield account


@pytest.fixture
def store(account: AzureAccount, azure_namespace: StoreLocation) -> ObjectStore:
    assert account.endpoint
    store = open_store(azure_namespace)
    for key in ("data/s/a", "data/s/b", "data/s/c"):
        store.put(key, b"content")
    return store


def keys(store: ObjectStore) -> list[str]:
    return [key for batch in store.list() for key in batch["address"].to_pylist()]


# -- space after deletes


def test_soft_delete(azurite: Azurite, store: ObjectStore) -> None:
    assert freed_space(store).state == "freed at once"
    with soft_delete(azurite, 9):
        assert store.space_not_freed().endswith("keeps deleted blobs for 9 days (soft delete)")
        finding = _space_after_deletes(store, Settings())
        assert (finding.verdict, freed_space(store).state) == ("warn", "not freed")
        assert "9 days (soft delete)" in finding.detail
        refused = _space_after_deletes(store, Settings(sweep=SweepSettings(delete_versions=True)))
        assert refused.verdict == "fail"
        assert "set sweep.delete_versions to false" in refused.remedy
    assert freed_space(store).state == "freed at once"


def test_versions(account: AzureAccount, store: ObjectStore) -> None:
    account.keeps_versions = True
    assert "keeps versions of blobs" in store.space_not_freed()
    with pytest.raises(ConfigurationError, match="does not delete versions"):
        store.find_versions([VersionedTarget("a", ObjectInfo(1, store.now(), ""), store.now())])


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"x-ms-has-legal-hold": "true"}, "a legal hold: locked"),
        ({"x-ms-has-immutability-policy": "true"}, "an immutability policy: locked"),
        ({"x-ms-immutable-storage-with-versioning-enabled": "true"}, "immutability of versions: locked"),
        (
            {"x-ms-has-legal-hold": "true", "x-ms-has-immutability-policy": "true"},
            "a legal hold and an immutability policy: locked blobs cannot be deleted",
        ),
        ({"x-ms-has-legal-hold": "false", "x-ms-immutable-storage-with-versioning-enabled": "false"}, ""),
    ],
)
def test_immutability(account: AzureAccount, store: ObjectStore, headers: dict[str, str], says: str) -> None:
    account.container_headers = headers
    assert says in store.space_not_freed()
    assert freed_space(store).state == ("not freed" if says else "freed at once")


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (("service", "properties"), _FORBIDDEN),
        (("service", "properties"), _REDIRECT),
        (("service", "properties"), StoreAnswer(200, b"<html>Sign in</html")),
        (("container",), _FORBIDDEN),
        (("container",), _REDIRECT),
    ],
)
def test_settings_that_cannot_be_read_are_unknown(
    account: AzureAccount, store: ObjectStore, asked: tuple[str, ...], answer: StoreAnswer
) -> None:
    def refuse(request: StoreRequest) -> StoreAnswer | None:
        method, *of = request.operation
        is_asked = set(asked) <= set(of) and "list" not in of and (method == "HEAD" or "properties" in of)
        return answer if is_asked else None

    account.faults.append(refuse)
    assert freed_space(store).state == "unknown"
    finding = _space_after_deletes(store, Settings())
    assert (finding.verdict, finding.detail.startswith("unknown")) == ("warn", True)


# -- holds


@pytest.mark.parametrize("code", [POLICY, HOLD])
@pytest.mark.parametrize("names", [["data/s/a"], ["data/s/a", "data/s/b", "data/s/c"]])
def test_what_a_hold_protects_is_locked(account: AzureAccount, store: ObjectStore, code: str, names: list[str]) -> None:
    account.held = {"data/s/a": code}
    seen = store.stat_many(names)
    targets = [VersionedTarget(key, seen[key], seen[key].last_modified) for key in names]
    for answers in (store.delete_many(names), store.delete_unchanged(targets)):
        assert [answer.outcome for answer in answers] == [LOCKED, *[DELETED] * (len(names) - 1)]
        assert answers[0].error.startswith(code)
    assert "data/s/a" in keys(store)
    account.held.clear()
    assert [answer.outcome for answer in store.delete_many(["data/s/a"])] == [DELETED]


def test_other_conflicts_are_failures(account: AzureAccount, store: ObjectStore) -> None:
    account.held = {"data/s/a": "PendingCopyOperation", "data/s/b": "BlobOperationNotSupported"}
    answers = store.delete_many(["data/s/a", "data/s/b", "data/s/c"])
    assert [answer.outcome for answer in answers] == [DeletionOutcome.FAILED, DeletionOutcome.FAILED, DELETED]


# -- accounts with a hierarchical namespace


@pytest.mark.parametrize("is_known", [True, False])
def test_a_hierarchical_namespace_is_refused_before_anything_is_deleted(
    account: AzureAccount, store: ObjectStore, azure_namespace: StoreLocation, is_known: bool
) -> None:
    """Who may not ask for the kind of the account sees it in each page of a listing."""
    if is_known:
        account.account_headers = {"x-ms-is-hns-enabled": "true"}
    else:
        account.shows_types = True
        account.faults.append(
            lambda asked: azure_error(403, "AuthorizationFailure") if "account" in asked.operation else None
        )
    fresh = open_store(azure_namespace)
    calls: list[Callable[[], object]] = [
        lambda: list(fresh.list()),
        lambda: fresh.list_level("data/s/"),
        lambda: list(fresh.pages("data/")),
    ]
    if is_known:
        calls.append(lambda: fresh.delete_many(["data/s/a"]))
    for call in calls:
        with pytest.raises(ConfigurationError, match="hierarchical namespace"):
            call()
    account.account_headers, account.shows_types = {}, False
    assert len(keys(open_store(azure_namespace))) == 3


def test_the_kind_of_the_account_is_asked_for_once_and_a_failure_is_no_answer(
    account: AzureAccount, store: ObjectStore, azure_namespace: StoreLocation
) -> None:
    fresh = open_store(azure_namespace)
    account.faults.append(lambda asked: StoreAnswer(404) if "account" in asked.operation else None)
    with pytest.raises(StorageError):
        list(fresh.list())
    account.faults.pop()
    account.account_headers = {"x-ms-is-hns-enabled": "false"}
    account.requests.clear()
    assert len(keys(fresh)) == len(keys(fresh)) == 3
    assert sum("account" in request.operation for request in account.requests) == 1
