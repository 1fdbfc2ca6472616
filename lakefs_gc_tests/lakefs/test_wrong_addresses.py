"""Mistakes of new users in the address of the server or the store: each has an error with words of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from lakefs_gc.config import ServerCredentials
from lakefs_gc.errors import AccessDeniedError, ObjectNotFoundError, ServerError, ServerUnavailableError, StorageError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.s3.errors import storage_error
from lakefs_gc_tests.support.lakefs_proxy import Answered, LakeFSProxy, refusal

ATTEMPTS = 5


def client(url: str) -> LakeFSClient:
    """Return a client that must not need a second attempt."""

    def no_pause(seconds: float) -> None:
        raise AssertionError(f"the call is repeated after {seconds} s")

    credentials = ServerCredentials(endpoint_url=url, access_key_id="key", secret_access_key="secret")
    return LakeFSClient(credentials, sleep=no_pause)


def test_the_store_instead_of_lakefs(s3_server: SeaweedFS) -> None:
    with pytest.raises(ServerError, match=r"answers as an S3 store \(403\), not as lakeFS") as caught:
        client(s3_server.endpoint).repository("lake")
    assert "belongs in AWS_ENDPOINT_URL_S3" in caught.value.remedy


def test_https_on_a_port_without_tls(tmp_path: Path) -> None:
    with SandboxServer(tmp_path / "state", StoreLocation((tmp_path / "objects").as_uri())) as server:
        url = server.endpoint_url.replace("http://", "https://")
        with pytest.raises(ServerError, match="begins with https, but the server answers without TLS") as caught:
            client(url).version()
        assert f"to {server.endpoint_url}," in caught.value.remedy


@pytest.mark.parametrize(
    "answer",
    [
        "Client sent an HTTP request to an HTTPS server.\n",
        "<center>The plain HTTP request was sent to HTTPS port</center>",
    ],
)
def test_http_on_a_port_with_tls(answer: str) -> None:
    with LakeFSProxy("http://127.0.0.1:9") as proxy:
        proxy.fail("/config", Answered(400, answer.encode(), {"Content-Type": "text/plain"}))
        with pytest.raises(ServerError, match="begins with http, but the server expects TLS") as caught:
            client(proxy.url).version()
    assert proxy.url.replace("http://", "https://") in caught.value.remedy


def test_a_bucket_that_the_server_does_not_find() -> None:
    """The message of lakeFS 1.84 with an S3 store."""
    message = "put object: operation error S3: PutObject, https response error StatusCode: 404, NoSuchBucket: none"
    credentials = ServerCredentials(endpoint_url="", access_key_id="key", secret_access_key="secret")
    with LakeFSProxy("http://127.0.0.1:9") as proxy:
        proxy.fail("/repositories/lake", *[refusal(500, message)] * ATTEMPTS)
        server = LakeFSClient(credentials.model_copy(update={"endpoint_url": proxy.url}), sleep=lambda _: None)
        with pytest.raises(ServerError, match="NoSuchBucket") as caught:
            server.repository("lake")
        assert not isinstance(caught.value, ServerUnavailableError)
        assert "cannot find the bucket of the repository" in caught.value.remedy
        proxy.fail("/repositories/lake", *[refusal(500, "another failure")] * ATTEMPTS)
        with pytest.raises(ServerUnavailableError):
            server.repository("lake")


def test_a_wrong_session_token(s3_namespace: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "wrong")
    with pytest.raises(AccessDeniedError, match="does not accept the credentials") as caught:
        open_store(s3_namespace).list_level("")
    assert caught.value.remedy.startswith("AWS_SESSION_TOKEN is set: renew the token, or unset it")


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("InvalidAccessKeyId", 403, AccessDeniedError),
        ("AccessDenied", 403, AccessDeniedError),
        ("NoSuchBucket", 404, ObjectNotFoundError),
        ("InternalError", 500, StorageError),
    ],
)
def test_a_forgotten_endpoint(code: str, status: int, kind: type[StorageError]) -> None:
    """The keys of another store, and its bucket, mean nothing to AWS."""
    for endpoint, named in (("https://s3.eu-west-1.amazonaws.com", True), ("http://minio:9000", False)):
        answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
        error = storage_error(
            ClientError(answer, "ListObjectsV2"),  # type: ignore[arg-type]
            action="ListBucket",
            bucket="bkt",
            key="x/",
            endpoint=endpoint,
        )
        assert type(error).mro().index(kind) >= 0
        assert ("The requests went to AWS: for another store, set AWS_ENDPOINT_URL_S3" in error.remedy) is named
