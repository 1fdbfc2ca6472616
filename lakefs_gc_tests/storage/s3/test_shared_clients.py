"""Stores of one bucket that are opened one after another share a client."""

from __future__ import annotations

import os
import threading
import time

import pytest

from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc.storage.s3 import shared_clients
from lakefs_gc.storage.s3.client import RetryingClient
from lakefs_gc.storage.s3.store import S3Store


@pytest.fixture(autouse=True)
def _of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_clients, "_recent", {})


def client_of(url: str = "s3://bucket/repository/", retry: RetryPolicy | None = None) -> RetryingClient:
    return S3Store(StoreLocation(url), retry)._s3()


def test_the_stores_of_all_repositories_in_a_bucket_share_a_client() -> None:
    assert client_of("s3://bucket/one/") is client_of("s3://bucket/two/")


def test_another_bucket_and_another_policy_have_their_own_client() -> None:
    clients = [client_of(), client_of("s3://other/repository/"), client_of(retry=RetryPolicy(tries=2))]
    assert len({id(client) for client in clients}) == 3


def test_other_credentials_have_their_own_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret of the first")
    first = client_of()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "second")
    second = client_of()
    used = [client.sstables._session.get_credentials().access_key for client in (first, second)]
    assert used == ["first", "second"]


def test_credentials_in_a_file_are_read_again_for_stores_that_are_opened_later(monkeypatch: pytest.MonkeyPatch) -> None:
    first = client_of()
    began_at = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began_at + 31)
    assert client_of() is not first
    assert len(shared_clients._recent) == 1


def test_a_process_does_not_use_the_client_of_its_parent() -> None:
    first = client_of()
    child = os.fork()
    if not child:
        os._exit(1 if client_of() is first else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_that_open_stores_at_once_share_a_client() -> None:
    clients: list[RetryingClient] = []
    threads = [threading.Thread(target=lambda: clients.append(client_of())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(clients) == 8
    assert len(set(map(id, clients))) == 1


def test_a_limit_of_requests_is_one_of_its_store_only() -> None:
    other = client_of()
    limited, unlimited = (S3Store(StoreLocation("s3://bucket/repository/")) for _ in range(2))
    assert limited._s3() is other
    limited.limit_requests(5)
    unlimited.limit_requests(0)
    of_limit = limited._s3().limit
    assert of_limit is not None
    assert of_limit.per_second == 5
    assert unlimited._s3().limit is client_of().limit is None
    limited.limit_requests(5)
    assert limited._s3().limit is of_limit, "the requests of before count"


def test_an_error_does_not_show_the_environment() -> None:
    assert "environment" not in repr(shared_clients._Setup("bucket", RetryPolicy()))
