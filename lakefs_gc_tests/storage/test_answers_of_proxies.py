"""Redirects and pages of a proxy before a store are no answers of the store."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO

import pytest

from lakefs_gc.errors import LakeFSGCError, StorageError
from lakefs_gc.storage.azure.store import AzureStore
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc.storage.s3.store import S3Store

QUICK = RetryPolicy(tries=2, base_seconds=0.001)
ANSWERS = {
    "a redirect": (302, b"", {"Location": "https://login.test/"}),
    "another redirect": (308, b"", {"Location": "https://login.test/"}),
    "a page": (200, b"<html>Sign in</html>", {"Content-Type": "text/html"}),
    "a missing page": (404, b"<html>Not Found</html>", {"Content-Type": "text/html"}),
}


@pytest.fixture(params=ANSWERS)
def proxy(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server that answers every request in the same way."""
    status, body, headers = ANSWERS[request.param]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Be quiet."""

    for method in ("GET", "PUT", "POST", "DELETE", "HEAD"):
        setattr(Handler, f"do_{method}", Handler.answer)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def azure(proxy: str, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A container behind the proxy."""
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "acct")
    monkeypatch.setenv("AZURE_STORAGE_KEY", base64.b64encode(b"k" * 32).decode())
    monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", f"{proxy}/acct")
    return AzureStore(StoreLocation("https://acct.blob.core.windows.net/lake/ns"), QUICK)


@pytest.fixture
def s3(proxy: str, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A bucket behind the proxy."""
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy)
    return S3Store(StoreLocation("s3://lake/ns"), QUICK)


CALLS: dict[str, Callable[[ObjectStore], object]] = {
    "put": lambda store: store.put("x", b"intent"),
    "put if absent": lambda store: store.put("x", b"intent", if_absent=True),
    "put_stream": lambda store: store.put_stream("x", BytesIO(b"copy")),
    "stat": lambda store: store.stat_many(["x"]),
    "list": lambda store: list(store.list()),
}


@pytest.mark.parametrize("call", CALLS)
def test_azure(azure: ObjectStore, call: str) -> None:
    with pytest.raises(LakeFSGCError):
        CALLS[call](azure)


@pytest.mark.parametrize("keys", [["a"], ["a", "b"]])
def test_deletes_in_azure(azure: ObjectStore, keys: list[str]) -> None:
    """Azure would have answered 202; a call that explains why may fail, too."""
    with suppress(LakeFSGCError):
        assert all(deletion.error for deletion in azure.delete_many(keys))


@pytest.mark.parametrize("call", ["put", "put if absent", "list"])
def test_s3(s3: ObjectStore, call: str) -> None:
    with pytest.raises(LakeFSGCError):
        CALLS[call](s3)


@pytest.mark.parametrize("proxy", ["a redirect"], indirect=True)
@pytest.mark.parametrize("call", ["put", "put_stream", "stat", "list"])
def test_a_chain_of_redirects_ends_early(s3: S3Store, call: str) -> None:
    """After each redirect botocore asks for the region of the bucket, which is redirected, too."""
    sent: list[object] = []
    for client in (s3._s3().client, s3._s3().lister):
        client.meta.events.register("before-send.s3", lambda **facts: sent.append(facts["event_name"]))
    with pytest.raises(StorageError):
        CALLS[call](s3)
    assert len(sent) < 8


def test_deletes_in_s3(s3: ObjectStore) -> None:
    """A name that XML cannot contain is deleted in its own request, which the store would answer without a body."""
    with suppress(LakeFSGCError):
        assert s3.delete_many(["a\x01"])[0].error
