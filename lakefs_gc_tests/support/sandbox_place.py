"""A sandbox with one repository, and short methods to use it through the SDK."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import lakefs_sdk
import pytest
from lakefs_sdk.client import LakeFSClient as SDKClient
from lakefs_sdk.exceptions import ApiException

from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

REPOSITORY = "demo"

StartSandbox = Callable[..., SandboxServer]
"""The fixture ``start_sandbox``: start a sandbox on local files, or at ``store``."""


@dataclass
class Place:
    """A sandbox with one repository."""

    server: SandboxServer
    client: SDKClient
    namespace: str
    store: ObjectStore

    def put(self, path: str, content: str = "", branch: str = "main") -> Any:
        return self.client.objects_api.upload_object(REPOSITORY, branch, path, content=(content or path).encode())

    def commit(self, message: str = "message", branch: str = "main", **fields: Any) -> Any:
        body = lakefs_sdk.CommitCreation(message=message, **fields)
        return self.client.commits_api.commit(REPOSITORY, branch, body)

    def branch(self, name: str, source: str = "main", **fields: Any) -> None:
        body = lakefs_sdk.BranchCreation(name=name, source=source, **fields)
        self.client.branches_api.create_branch(REPOSITORY, body)

    def paths(self, ref: str = "main", **fields: Any) -> list[str]:
        listed = self.client.objects_api.list_objects(REPOSITORY, ref, **fields)
        return [item.path for item in listed.results]

    def read(self, path: str, ref: str = "main") -> bytes:
        return bytes(self.client.objects_api.get_object(REPOSITORY, ref, path))

    def key(self, path: str, ref: str = "main") -> str:
        address = self.client.objects_api.stat_object(REPOSITORY, ref, path).physical_address
        return str(address).removeprefix(self.namespace + "/")

    def get(self, url: str, **options: Any) -> httpx.Response:
        auth = (self.server.access_key_id, self.server.secret_access_key)
        return httpx.get(f"{self.server.endpoint_url}/api/v1{url}", **{"auth": auth, **options})


def refused(status: int, call: Callable[..., Any], *args: Any, **fields: Any) -> str:
    """Return the message of a call that must fail with this status."""
    with pytest.raises(ApiException) as caught:
        call(*args, **fields)
    assert caught.value.status == status
    return str(json.loads(caught.value.body)["message"])


def make_place(server: SandboxServer, root: str, namespace: str) -> Place:
    client = sdk_client(server)
    client.repositories_api.create_repository(
        lakefs_sdk.RepositoryCreation(name=REPOSITORY, storage_namespace=namespace)
    )
    return Place(server, client, namespace, open_store(StoreLocation(root)))


def wait_for(get: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 20
    while not (status := get()).completed:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return status


def sdk_client(server: SandboxServer) -> SDKClient:
    """Return a client of the unmodified SDK with the credentials of the sandbox."""
    return SDKClient(
        lakefs_sdk.Configuration(
            host=f"{server.endpoint_url}/api/v1",
            username=server.access_key_id,
            password=server.secret_access_key,
        )
    )
