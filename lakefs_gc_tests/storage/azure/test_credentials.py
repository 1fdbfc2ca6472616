"""Each kind of credential is used for each kind of request, with Azurite over https as the account.

Azurite checks signatures of keys and SAS, and of tokens everything but the signature. The tokens come from a stand-in
of the endpoint of managed identities, which ``azure-identity`` asks.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from azure.storage.blob import BlobServiceClient, generate_account_sas, generate_container_sas

from lakefs_gc.errors import AccessDeniedError, ConfigurationError, LakeFSGCError
from lakefs_gc.sandbox.azurite import ACCOUNT, Azurite, azurite_program
from lakefs_gc.storage.azure.store import AzureStore
from lakefs_gc.storage.base import DeletionOutcome, VersionedTarget
from lakefs_gc.storage.freed_space import freed_space
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc_tests.support.certificate import certificate_of_loopback, token

CONTAINER = "credentials"
Variables = dict[str, str]


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Azurite over https, with a container."""
    try:
        azurite_program()
    except ConfigurationError as error:
        pytest.skip(error.message)
    folder = tmp_path_factory.mktemp("azurite-tls")
    with Azurite(folder, certificate_of_loopback(folder)) as server:
        assert server.certificate
        service: Any = BlobServiceClient(
            server.endpoint,
            {"account_name": ACCOUNT, "account_key": server.key},
            connection_verify=str(server.certificate[0]),
        )
        for name in (CONTAINER, "other"):
            service.create_container(name)
        yield server


class Identities:
    """A stand-in for the endpoint that gives managed identities their tokens."""

    def __init__(self) -> None:
        self.token: Callable[[], str] = token
        self.resources: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.resources += parse_qs(urlsplit(self.path).query)["resource"]
                answer = {"access_token": outer.token(), "expires_on": int(time.time()) + 3600, "token_type": "Bearer"}
                body = json.dumps({**answer, "resource": outer.resources[-1]}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def identities(monkeypatch: pytest.MonkeyPatch) -> Iterator[Identities]:
    identities = Identities()
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://127.0.0.1:{identities.server.server_address[1]}/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", "secret")
    yield identities
    identities.server.shutdown()
    identities.server.server_close()


@pytest.fixture
def use(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> Callable[[Variables], AzureStore]:
    """Return a function of variables that gives a store. Nothing else leads to a credential."""
    for name in ("CONNECTION_STRING", "KEY", "SAS_TOKEN", "ACCOUNT", "SERVICE_ENDPOINT"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    for name in ("CLIENT_ID", "TENANT_ID", "CLIENT_SECRET", "USERNAME", "FEDERATED_TOKEN_FILE"):
        monkeypatch.delenv(f"AZURE_{name}", raising=False)
    assert azurite.certificate
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(azurite.certificate[0]))

    def store(variables: Variables) -> AzureStore:
        for name, value in variables.items():
            monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
        return AzureStore(StoreLocation(f"{azurite.url(CONTAINER)}/ns"), RetryPolicy(tries=2, base_seconds=0.001))

    return store


def until(hours: float = 1) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {"start": now - timedelta(hours=2), "expiry": now + timedelta(hours=hours)}


def account_sas(azurite: Azurite, permission: str = "rwdlac", **times: Any) -> str:
    kinds: dict[str, Any] = {"resource_types": "sco", "permission": permission, **(times or until())}
    return generate_account_sas(ACCOUNT, azurite.key, **kinds)


def container_sas(azurite: Azurite, container: str = CONTAINER, permission: str = "racwdl", **times: Any) -> str:
    kinds: dict[str, Any] = {"permission": permission, **(times or until())}
    return generate_container_sas(ACCOUNT, container, azurite.key, **kinds)


def named(azurite: Azurite, **more: str) -> Variables:
    return {"ACCOUNT": ACCOUNT, "SERVICE_ENDPOINT": azurite.endpoint, **more}


CREDENTIALS: dict[str, Callable[[Azurite], Variables]] = {
    "key": lambda azurite: named(azurite, KEY=azurite.key),
    "account SAS": lambda azurite: named(azurite, SAS_TOKEN=account_sas(azurite)),
    "container SAS": lambda azurite: named(azurite, SAS_TOKEN="?" + container_sas(azurite)),
    "connection string": lambda azurite: {
        "CONNECTION_STRING": f"AccountName={ACCOUNT};AccountKey={azurite.key};BlobEndpoint={azurite.endpoint}"
    },
    "connection string with a SAS": lambda azurite: {
        "CONNECTION_STRING": f"BlobEndpoint={azurite.endpoint};SharedAccessSignature={account_sas(azurite)}"
    },
    "token": lambda azurite: named(azurite),
}


@pytest.mark.parametrize("kind", CREDENTIALS)
def test_every_request_is_signed(
    kind: str, azurite: Azurite, use: Callable[[Variables], AzureStore], identities: Identities
) -> None:
    store = use(CREDENTIALS[kind](azurite))
    keys = ["data/s/a b+%", "data/s/é", "data/s/c&d=e?f#g"]
    for key in keys:
        assert store.put(key, key.encode())
    assert sorted(key for batch in store.list("data/") for key in batch["address"].to_pylist()) == sorted(keys)
    assert dict(store.read_many(keys)) == {key: key.encode() for key in keys}
    assert store.read_end(keys[0], 2) == b"+%"
    assert store.copy_to(keys[0], store, "backup/copy")
    assert store.read("backup/copy") == keys[0].encode()
    if kind in ("account SAS", "connection string with a SAS"):
        store._azure().refuses_batches = True  # for want of a table's entry Azurite answers 500 to such a batch
    seen = store.stat_many(keys)
    targets = [VersionedTarget(key, seen[key], seen[key].last_modified) for key in keys[:2]]
    assert {answer.outcome for answer in store.delete_unchanged(targets)} == {DeletionOutcome.DELETED}
    assert {answer.outcome for answer in store.delete_many([keys[2]])} == {DeletionOutcome.DELETED}
    assert store.delete_many(["backup/copy", keys[0]])[0].outcome is DeletionOutcome.DELETED
    assert list(store.list()) == []
    # The signature for one container does not show the settings of the account.
    assert freed_space(store).state == ("unknown" if kind == "container SAS" else "freed at once")
    assert set(identities.resources) == ({"https://storage.azure.com"} if kind == "token" else set())


@pytest.mark.parametrize(
    "variables",
    [
        lambda azurite: named(azurite, SAS_TOKEN=account_sas(azurite, **until(-1))),
        lambda azurite: named(azurite, SAS_TOKEN=container_sas(azurite, "other")),
        lambda azurite: named(azurite, SAS_TOKEN=account_sas(azurite).replace("sig=", "sig=AAAA")),
        lambda azurite: named(azurite, KEY=base64.b64encode(b"another key" * 3).decode()),
        lambda azurite: named(azurite),
    ],
    ids=["expired", "of another container", "forged", "wrong key", "expired token"],
)
def test_a_credential_that_does_not_hold_is_no_empty_store(
    variables: Callable[[Azurite], Variables],
    azurite: Azurite,
    use: Callable[[Variables], AzureStore],
    identities: Identities,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as right:
        right.setenv("AZURE_STORAGE_KEY", azurite.key)
        use(named(azurite)).put("live", b"live")
    identities.token = lambda: token(expires_in=timedelta(hours=-1))
    given = variables(azurite)
    store = use(given)
    for call in (lambda: list(store.list()), lambda: store.stat_many(["live"]), lambda: store.read("live")):
        with pytest.raises(AccessDeniedError) as caught:
            call()
        assert not any(secret in str(caught.value) for secret in ("sig=", given.get("KEY", "sig="), azurite.key))
    for keys in (["live"], ["live", "other"]):
        try:
            assert {answer.outcome for answer in store.delete_many(keys)} == {DeletionOutcome.FAILED}
        except LakeFSGCError as error:
            assert isinstance(error, AccessDeniedError)  # noqa: PT017
    monkeypatch.delenv("AZURE_STORAGE_SAS_TOKEN", raising=False)
    assert use(named(azurite, KEY=azurite.key)).read("live") == b"live"


def test_a_signature_that_may_only_read(azurite: Azurite, use: Callable[[Variables], AzureStore]) -> None:
    use(named(azurite, KEY=azurite.key)).put("live", b"live")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AZURE_STORAGE_KEY")
        store = use(named(azurite, SAS_TOKEN=container_sas(azurite, permission="rl")))
        assert store.read("live") == b"live"
        for keys in (["live"], ["live", "other"]):
            assert {answer.outcome for answer in store.delete_many(keys)} == {DeletionOutcome.FAILED}
        with pytest.raises(AccessDeniedError, match="blobs/write"):
            store.put("new", b"")
        assert store.read("live") == b"live"


def test_a_certificate_that_is_not_trusted(
    azurite: Azurite, use: Callable[[Variables], AzureStore], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = use(named(azurite, KEY=azurite.key))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate_of_loopback(tmp_path)[0]))
    with pytest.raises(ConfigurationError, match="certificate"):
        list(store.list())
