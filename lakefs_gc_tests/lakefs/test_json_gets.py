"""GETs of the lakeFS API by libcurl: the answers, errors and numbers of requests are those of the SDK."""

from __future__ import annotations

import gzip
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakefs_gc.config import LakeFSSettings, ServerCredentials
from lakefs_gc.errors import LakeFSGCError, ServerUnavailableError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.json_gets import JsonGets
from lakefs_gc.lakefs.sdk import ApiException
from lakefs_gc_tests.support.certificate import certificate_of_loopback
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lakefs_proxy import Answered, LakeFSProxy, refusal
from lakefs_gc_tests.support.tls_server import serving_with_tls

PATHS = ["a b", "a+b", "a%20b", "a/../b", "a/./b", "..", "é/ü", "a?b=c&d", "a#b", "x" * 300, "a//b", "\x7f"]
URL = "http://127.0.0.1:1/api/v1"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeRepository]:
    with Lake(tmp_path_factory.mktemp("lake")) as lake:
        repository = lake.repository()
        for path in PATHS:
            repository.put(path)
        repository.commit()
        for path in PATHS:
            repository.put(f"staged {path}")
        yield repository


@pytest.fixture
def proxy(repository: LakeRepository) -> Iterator[LakeFSProxy]:
    with LakeFSProxy(repository.lake.credentials.endpoint_url) as proxy:
        yield proxy


Ask = Callable[[LakeFSClient], Any]


def asking(repository: LakeRepository) -> dict[str, Ask]:
    """Each kind of call, by the end of its path."""
    name = repository.name
    head = repository.lake.client.branches_api.get_branch(name, "main").commit_id
    return {
        "/objects/ls": lambda server: [
            server.shown_page(name, "main", 2, prefix=path[:1], after=path[:-1]) for path in PATHS
        ],
        "/diff": lambda server: (
            list(server.changes(name, "main")),
            [server.is_change(name, "main", path) for each in PATHS for path in (each, f"staged {each}")],
        ),
        "/commits": lambda server: (
            server.log_page(name, head, after="", amount=1),
            server.log_page(name, head, after=head, amount=10),
        ),
    }


def client(proxy: LakeFSProxy, credentials: ServerCredentials, *, by_sdk: bool = False, **changes: str) -> LakeFSClient:
    credentials = credentials.model_copy(update={"endpoint_url": proxy.url, **changes})
    server = LakeFSClient(credentials, LakeFSSettings(read_timeout_seconds=20), sleep=lambda _: None)
    if by_sdk:
        server._gets._connections = None
    return server


def outcome(ask: Ask, server: LakeFSClient) -> object:
    try:
        return ask(server)
    except LakeFSGCError as error:
        return type(error), error.message, error.remedy, error.facts


@pytest.mark.parametrize("ending", ["/objects/ls", "/diff", "/commits"])
def test_the_answers_are_those_of_the_sdk(repository: LakeRepository, proxy: LakeFSProxy, ending: str) -> None:
    ask, credentials = asking(repository)[ending], repository.lake.credentials
    by_curl = outcome(ask, client(proxy, credentials))
    agents, requests = {"lakefs-python-sdk" in str(asked) for asked in proxy.asked}, len(proxy.asked)
    assert by_curl == outcome(ask, client(proxy, credentials, by_sdk=True))
    assert len(proxy.asked) == 2 * requests
    assert agents == {False}
    assert by_curl


ANSWERS = {
    "404 of lakeFS": refusal(404),
    "404 of a gateway": Answered(404, b"<html>not found</html>"),
    "401": refusal(401),
    "403": refusal(403),
    "S3's": Answered(403, b"<Error><Code>AccessDenied</Code></Error>"),
    "429": refusal(429),
    "500": refusal(500),
    "503 without JSON": Answered(503, b"busy"),
    "no JSON": Answered(200, b"<html>"),
    "no page": Answered(200, b"{}"),
    "nothing": Answered(200, b""),
    "204": Answered(204, b""),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("ending", ["/objects/ls", "/diff", "/commits"])
def test_the_errors_are_those_of_the_sdk(
    repository: LakeRepository, proxy: LakeFSProxy, ending: str, answer: Answered
) -> None:
    ask = asking(repository)[ending]
    proxy.fail(ending, *[answer] * 1000)
    outcomes, counts = [], []
    for by_sdk in (False, True):
        proxy.asked.clear()
        outcomes.append(outcome(ask, client(proxy, repository.lake.credentials, by_sdk=by_sdk)))
        counts.append(proxy.count(ending))
    assert outcomes[0] == outcomes[1]
    assert counts[0] == counts[1]


def test_a_temporary_failure_is_tried_again(repository: LakeRepository, proxy: LakeFSProxy) -> None:
    proxy.fail("/diff", refusal(503), refusal(429))
    changes = list(client(proxy, repository.lake.credentials).changes(repository.name, "main"))
    assert len(changes) == len(PATHS)
    assert proxy.count("/diff") == 3


def test_a_redirect_is_the_sdks(repository: LakeRepository, proxy: LakeFSProxy) -> None:
    """It may lead to a server that should not get the credentials."""
    ask, credentials = asking(repository)["/diff"], repository.lake.credentials
    with LakeFSProxy(credentials.endpoint_url) as other:
        proxy.fail("/diff", *[Answered(307, b"", {"Location": f"{other.url}/diff"})] * 1000)
        by_curl = outcome(ask, client(proxy, credentials))
        assert "redirects to another URL" in str(by_curl)
        requests = proxy.count("/diff")
        assert by_curl == outcome(ask, client(proxy, credentials, by_sdk=True))
        assert other.asked == []
    assert (requests, proxy.count("/diff")) == (2, 3), "no other attempt can succeed"


def test_a_part_of_an_answer_is_asked_for_again(repository: LakeRepository, proxy: LakeFSProxy) -> None:
    cut = [False]

    def cut_once(asked: object, real: Answered) -> Answered:
        first, cut[0] = not cut[0], True
        return replace(real, cut_at=len(real.body) // 2) if first else real

    proxy.instead("/diff", cut_once)
    changes = list(client(proxy, repository.lake.credentials).changes(repository.name, "main"))
    assert len(changes) == len(PATHS)
    assert proxy.count("/diff") == 2


def test_without_a_server_the_error_is_that_of_the_sdk() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    server = LakeFSClient(
        ServerCredentials(endpoint_url=url, access_key_id="key", secret_access_key="secret"), sleep=lambda _: None
    )
    with pytest.raises(ServerUnavailableError, match=f"cannot reach lakeFS at {url}"):
        list(server.changes("lake", "main"))


def test_the_credentials_are_sent(repository: LakeRepository, proxy: LakeFSProxy) -> None:
    """Each client sends its own, although they share connections."""
    right = client(proxy, repository.lake.credentials)
    wrong = client(proxy, repository.lake.credentials, secret_access_key="wrong")
    for _ in range(2):
        assert list(right.changes(repository.name, "main"))
        with pytest.raises(LakeFSGCError, match="401"):
            list(wrong.changes(repository.name, "main"))


@pytest.mark.parametrize("secret", ["sécret", "sec:ret"])
def test_any_secret_can_be_sent(secret: str) -> None:
    """By the SDK if it is not ASCII."""
    gets = JsonGets(URL, "key", secret, "a test", (5, 5))
    assert (gets._connections is None) == (not secret.isascii())


@pytest.mark.parametrize("is_trusted", [False, True])
def test_only_trusted_servers_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_trusted: bool) -> None:
    certificate, key = certificate_of_loopback(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    another, _ = certificate_of_loopback(other)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate if is_trusted else another))
    with serving_with_tls(certificate, key, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as url:
        gets = JsonGets(f"{url}/api/v1", "key", "secret", "a test", (5, 5))
        assert gets.get(("repositories",), {}) == (b"{}" if is_trusted else None)


def test_without_a_file_of_trusted_certificates_the_sdk_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows and macOS they may be in a store of the system."""
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: SimpleNamespace(cafile=None))
    assert JsonGets(URL.replace("http:", "https:"), "key", "secret", "a test", (5, 5))._connections is None
    assert JsonGets(URL, "key", "secret", "a test", (5, 5))._connections is not None


def test_an_error_has_a_text(repository: LakeRepository, proxy: LakeFSProxy) -> None:
    """The SDK cannot read one that is not UTF-8, and such a failure was not tried again."""
    proxy.fail("/diff", Answered(503, b"\xff busy"))
    gets = client(proxy, repository.lake.credentials)._gets
    with pytest.raises(ApiException) as caught:
        gets.get(("repositories", repository.name, "branches", "main", "diff"), {})
    assert (caught.value.status, caught.value.reason, caught.value.body) == (503, "Service Unavailable", "\ufffd busy")


def test_a_page_that_a_proxy_compresses_is_read(repository: LakeRepository, proxy: LakeFSProxy) -> None:
    """Although nobody asked for it, as the SDK does."""

    def compressed(asked: object, real: Answered) -> Answered:
        return Answered(real.status, gzip.compress(real.body), {**real.headers, "Content-Encoding": "gzip"})

    proxy.instead("/diff", compressed)
    ask, credentials = asking(repository)["/diff"], repository.lake.credentials
    by_curl = outcome(ask, client(proxy, credentials))
    assert by_curl == outcome(ask, client(proxy, credentials, by_sdk=True))
    assert not isinstance(by_curl, LakeFSGCError)
    assert isinstance(by_curl, tuple)
    assert len(by_curl[0]) == len(PATHS)
