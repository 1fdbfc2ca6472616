"""Which bucket a URL of Google names, where requests go, and what credentials they have."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from lakefs_gc.errors import AccessDeniedError, ConfigurationError
from lakefs_gc.storage.gcs.access import BucketFolder, bucket_folder, emulator_endpoint, find_access
from lakefs_gc.storage.gcs.client import GCSClient
from lakefs_gc.storage.gcs.store import GCSStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc_tests.support.gcs_stand_in import GCSStandIn, Reply

PAGE = b'{"kind": "storage#objects", "items": [{"name": "a", "size": "1", "updated": "2025-06-01T12:00:00.5Z"}]}'


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("gs://bucket", BucketFolder("bucket", "")),
        ("GS://my.bucket_1//a/b//", BucketFolder("my.bucket_1", "a/b/")),
        ("gs://bucket/my%20repo", BucketFolder("bucket", "my repo/")),
        ("gs://bucket/my repo", BucketFolder("bucket", "my repo/")),
        # Go keeps a path that is not in its usual encoding.
        ("gs://bucket/a%2Fb", BucketFolder("bucket", "a%2Fb/")),
        ("gs://bucket/a%2fb%20c", BucketFolder("bucket", "a%2fb%20c/")),
        ("gs://bucket/a+b#c", BucketFolder("bucket", "a+b#c/")),
        ("gs://bucket/%C3%A9", BucketFolder("bucket", "é/")),
    ],
)
def test_what_a_url_names(url: str, folder: BucketFolder) -> None:
    assert bucket_folder(url) == folder


@pytest.mark.parametrize(
    "url",
    [
        "gs://",
        "gs:///path",
        "gs://B/x",
        "gs://bucket/../x",
        "gs://bucket/a//b",
        "gs://bucket/x?y",
        "gs://me:pw@bucket/x",
        "gs://bucket/%ff",
        "gs://bucket:80/x",
    ],
)
def test_what_names_no_folder(url: str) -> None:
    with pytest.raises(ConfigurationError):
        bucket_folder(url)


@pytest.mark.parametrize(
    ("value", "endpoint"),
    [
        ("", ""),
        ("127.0.0.1:4443", "http://127.0.0.1:4443"),
        ("http://localhost:4443/", "http://localhost:4443"),
        ("https://gcs.test", "https://gcs.test"),
    ],
)
def test_the_emulator_in_both_spellings(value: str, endpoint: str) -> None:
    assert emulator_endpoint({"STORAGE_EMULATOR_HOST": value}) == endpoint


@pytest.mark.parametrize("value", ["ftp://x", "http://me:pw@x", "http://", "http://x?y"])
def test_an_invalid_emulator(value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        emulator_endpoint({"STORAGE_EMULATOR_HOST": value})
    assert "pw" not in str(caught.value)


class TokenServer:
    """Answers requests for a token with ``answer``: a status and a document."""

    def __init__(self) -> None:
        self.answer: tuple[int, dict[str, object]] = (200, {"access_token": "the-token", "expires_in": 3600})
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                status, document = outer.answer
                content = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/token"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[TokenServer]:
    """A token server, and the key file of a service account that names it in the environment."""
    server = TokenServer()
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    file = tmp_path / "key.json"
    account = {"type": "service_account", "client_email": "gc@project.test", "private_key": pem, "project_id": "p"}
    file.write_text(json.dumps({**account, "token_uri": server.url}))
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    yield server
    server.server.shutdown()
    server.server.server_close()


def test_requests_have_the_token_of_the_service_account(
    tokens: TokenServer, gcs: GCSStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    store = GCSStore(StoreLocation("gs://bucket"), RetryPolicy(tries=1))
    client = store._client()
    assert client.endpoint == "https://storage.googleapis.com"
    client.endpoint = gcs.endpoint
    gcs.replies["list"] = lambda *_: Reply(200, PAGE)
    (objects,) = store.list()
    assert objects["address"].to_pylist() == ["a"]
    assert gcs.authorizations == {"Bearer the-token"}


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_client"])
def test_a_refused_service_account_is_no_empty_store(tokens: TokenServer, error: str) -> None:
    tokens.answer = (400, {"error": error, "error_description": "Invalid JWT Signature."})
    store = GCSStore(StoreLocation("gs://bucket"), RetryPolicy(tries=1))
    for call in (lambda: list(store.list()), lambda: store.stat_many(["a"]), lambda: store.delete_many(["a", "b"])):
        with pytest.raises(AccessDeniedError, match="no access token") as caught:
            call()
        assert "GOOGLE_APPLICATION_CREDENTIALS" in str(caught.value.remedy)


@pytest.mark.parametrize("content", ["{}", "no json", '{"type": "service_account", "private_key": "secret"}'])
def test_a_key_file_that_cannot_be_read(content: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text(content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    with pytest.raises(AccessDeniedError) as caught:
        find_access({})
    assert "secret" not in str(caught.value)


def test_an_emulator_gets_no_credentials(tokens: TokenServer) -> None:
    access = find_access({"STORAGE_EMULATOR_HOST": "127.0.0.1:1"})
    assert (access.endpoint, access.credentials) == ("http://127.0.0.1:1", None)


def test_proxy_and_certificates_are_those_of_the_environment_and_netrc_is_not_read(
    gcs: GCSStandIn, store: GCSStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "certificates"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    store.stat_many(["data/a"])
    assert gcs.authorizations == {None}
    monkeypatch.delenv("NO_PROXY")
    session = GCSClient(store.folder, store.retry)._session
    assert session.proxies["http"] == "http://proxy.example:3128"
    assert session.verify == str(tmp_path / "certificates")
