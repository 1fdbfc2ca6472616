"""GETs by libcurl: where botocore would send one in another way, or gets no answer, there is none here either."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from botocore.credentials import ReadOnlyCredentials

from lakefs_gc.storage.curl import Answer, CurlConnections
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc.storage.s3.curl_gets import CurlGets
from lakefs_gc.storage.s3.store import S3Store
from lakefs_gc_tests.support.certificate import certificate_of_loopback
from lakefs_gc_tests.support.faulty_s3 import FaultyS3
from lakefs_gc_tests.support.tls_server import serving_with_tls

CREDENTIALS = ReadOnlyCredentials("key", "sec:ret", None)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole"
TABLES = [f"_lakefs/{n:064x}" for n in range(4)]


@pytest.fixture
def store(faulty_s3: FaultyS3) -> S3Store:
    """In which all tables have the same content. Each test may change where it is."""
    faulty_s3.objects.update({f"ns/{table}": b"content" for table in TABLES})
    store = open_store(StoreLocation("s3://bucket/ns"), retry=RetryPolicy(tries=1))
    assert isinstance(store, S3Store)
    return store


def curl_of(store: S3Store) -> CurlGets | None:
    return store._s3().sstables._curl


def get(curl: CurlGets, url: str) -> Answer | None:
    return curl.get(url, CREDENTIALS, "us-east-1", "a test")


@contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that accepts connections one after the other. Yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection = server.accept()[0]
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    serve(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_many_threads_share_connections(faulty_s3: FaultyS3, store: S3Store) -> None:
    contents = {f"_lakefs/{n:064x}": f"{n}".encode() * 20_000 for n in range(300)}
    faulty_s3.objects.update({f"ns/{key}": content for key, content in contents.items()})
    curl = curl_of(store)
    assert curl is not None
    curl.connections.idle.clear()  # those of other tests
    for _ in range(2):
        assert dict(store.read_many(contents, concurrency=8)) == contents
    assert 1 <= len(curl.connections.idle) <= 8


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy"])
def test_a_proxy_is_botocores(store: S3Store, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "elsewhere")
    assert curl_of(store) is None


def test_what_botocore_does_not_send_through_a_proxy(
    faulty_s3: FaultyS3, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")  # which botocore does not know
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert dict(store.read_many(TABLES, concurrency=1)) == dict.fromkeys(TABLES, b"content")
    assert curl_of(store) is not None
    assert faulty_s3.count("GetObject") == len(TABLES)


def test_a_certificate_of_the_client_is_botocores(tmp_path: Path) -> None:
    class Config:
        connect_timeout = read_timeout = 5

    class Connections:
        _verify = True
        _cert_file: str | None = None

        class _proxy_config:  # noqa: N801
            @staticmethod
            def proxy_url_for(url: str) -> None:
                return None

    url = "https://127.0.0.1/"
    assert CurlGets.instead_of(Connections, url, Config) is not None
    Connections._cert_file = "client.pem"
    assert CurlGets.instead_of(Connections, url, Config) is None
    assert CurlGets.instead_of(object(), url, Config) is None, "of another botocore"


def test_only_certificates_of_the_bundle_are_trusted(tmp_path: Path) -> None:
    certificate, key = certificate_of_loopback(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    another_certificate, _ = certificate_of_loopback(other)
    with serving_with_tls(certificate, key, OK) as url:
        for bundle, answer in (
            (certificate, Answer(200, b"whole", is_whole=True)),
            (another_certificate, None),
            ("", Answer(200, b"whole", is_whole=True)),
        ):
            curl = CurlGets(ca_bundle=str(bundle), connect_seconds=5, read_seconds=5)
            assert get(curl, f"{url}/bucket/key") == answer, bundle


@pytest.mark.parametrize("sent", [b"", OK[:10], OK[:-2]], ids=["nothing", "a part of the headers", "a part of it"])
def test_nothing_more_arrives(sent: bytes) -> None:
    """The connection stays open."""
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.sendall(sent)
        ended.wait(20)

    with serving(serve) as address:
        curl = CurlGets(ca_bundle="", connect_seconds=5, read_seconds=1)
        assert get(curl, f"http://{address}/bucket/key") is None
        ended.set()


@pytest.mark.parametrize(
    ("headers", "body", "is_whole"),
    [
        ("Transfer-Encoding: chunked", b"3\r\nwho\r\n2\r\nle\r\n0\r\n\r\n", True),
        ("TRANSFER-ENCODING:chunked ", b"5\r\nwhole\r\n0\r\n\r\n", True),
        ("Transfer-Encoding: chunked", b"3\r\nwho\r\n2\r\nle\r\n0\r\n", None),
        ("Transfer-Encoding: chunked", b"5\r\nwhole\r\n", None),
        ("Transfer-Encoding: chunked", b"5\r\nwho", None),
        ("X-Note: transfer-encoding: chunked", b"whole", False),
        ("X-Note: none", b"whole", False),
        ("Content-Length: 5\r\nContent-Encoding: identity", b"whole", True),
        ("Content-Length: 5\r\nContent-Encoding: gzip", b"whole", False),
    ],
    ids=[
        "chunks",
        "one chunk",
        "no end",
        "no last chunk",
        "a part of a chunk",
        "another header",
        "no length",
        "plain",
        "compressed",
    ],
)
def test_where_a_body_ends(headers: str, body: bytes, is_whole: bool | None) -> None:
    answer = f"HTTP/1.1 200 OK\r\n{headers}\r\n\r\n".encode() + body
    for before in (b"", b"HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n"):
        with serving(lambda connection, sent=before + answer: connection.sendall(sent)) as address:  # type: ignore[misc]
            curl = CurlGets(ca_bundle="", connect_seconds=5, read_seconds=5)
            expected = None if is_whole is None else Answer(200, b"whole", is_whole)
            assert get(curl, f"http://{address}/bucket/?list-type=2") == expected


@pytest.mark.parametrize("key", ["a/../b", "a/./b", "..", "a/.."])
def test_a_key_with_dots_is_read_by_boto3(faulty_s3: FaultyS3, key: str) -> None:
    """libcurl would ask for another one."""
    curl = CurlGets(ca_bundle="", connect_seconds=5, read_seconds=5)
    faulty_s3.objects["b"] = b"another one"
    assert get(curl, f"{faulty_s3.endpoint}/bucket/{key}") is None
    assert faulty_s3.requests == []
    assert get(curl, f"{faulty_s3.endpoint}/bucket/b") == Answer(200, b"another one", is_whole=True)


@pytest.mark.parametrize("is_url", [False, True])
def test_what_is_not_ascii_is_sent_by_boto3(faulty_s3: FaultyS3, is_url: bool) -> None:
    curl = CurlGets(ca_bundle="", connect_seconds=5, read_seconds=5)
    key, secret = ("é", "secret") if is_url else ("a", "sé")
    url = f"{faulty_s3.endpoint}/bucket/{key}"
    assert curl.get(url, ReadOnlyCredentials("key", secret, None), "us-east-1", "a test") is None
    assert faulty_s3.requests == []


def test_an_answer_that_nobody_asked_for_is_not_that_of_the_next_request() -> None:
    """It arrives after the right one. ``named_files`` notices one that arrives later still."""
    answers = iter([b"first", b"other"])
    arrived = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.sendall(OK.replace(b"whole", next(answers)))
        time.sleep(0.05)  # what comes with the right answer is seen at once
        connection.sendall(OK.replace(b"whole", b"again"))
        arrived.set()
        if connection.recv(65536):
            connection.sendall(OK)

    with serving(serve) as address:
        curl = CurlGets(ca_bundle="", connect_seconds=5, read_seconds=4)
        url = f"http://{address}/bucket/"
        assert get(curl, f"{url}1") == Answer(200, b"first", is_whole=True)
        assert arrived.wait(5)
        assert get(curl, f"{url}2") == Answer(200, b"other", is_whole=True)


def test_a_surplus_answer_over_tls_is_known_by_its_request_id(tmp_path: Path) -> None:
    """Both arrive at once, and libcurl has read the second one with the first one."""
    certificate, key = certificate_of_loopback(tmp_path)
    answer = OK.replace(b"\r\n\r\n", b"\r\nX-Amz-Request-Id: 1\r\n\r\n")
    with serving_with_tls(certificate, key, answer * 2) as url:
        curl = CurlGets(ca_bundle=str(certificate), connect_seconds=5, read_seconds=5)
        assert get(curl, f"{url}/bucket/1") == Answer(200, b"whole", is_whole=True)
        assert get(curl, f"{url}/bucket/2") is None
        assert not curl.connections.idle


@pytest.mark.parametrize("header", ["", "x-amz-request-id: {}\r\n", "X-Request-ID: {}\r\n"])
def test_a_connection_with_other_request_ids_is_used_again(header: str) -> None:
    def serve(connection: socket.socket) -> None:
        for number in range(3):
            connection.sendall(OK.replace(b"\r\n\r\n", f"\r\n{header.format(number)}\r\n".encode()))
            if not connection.recv(65536):
                return

    with serving(serve) as address:
        curl = CurlGets(ca_bundle="", connect_seconds=5, read_seconds=3)
        for _ in range(3):
            assert get(curl, f"http://{address}/bucket/key") == Answer(200, b"whole", is_whole=True)
        assert len(curl.connections.idle) == 1


def test_stores_of_a_process_share_connections(faulty_s3: FaultyS3) -> None:
    """Each has three file descriptors, and a server may have many repositories."""
    options = {"ca_bundle": "", "connect_seconds": 7.0, "read_seconds": 7.0}
    faulty_s3.objects["a"] = b"content"
    for number in range(20):
        store_of_repository = CurlGets(**options)  # type: ignore[arg-type]
        assert get(store_of_repository, f"{faulty_s3.endpoint}/bucket-{number}/a") is not None
    assert len(store_of_repository.connections.idle) == 1
    other = CurlGets(ca_bundle="bundle", connect_seconds=7, read_seconds=7)
    of_another_kind = CurlConnections("lakefs", **options)  # type: ignore[arg-type]
    for unlike in (other.connections, of_another_kind):
        assert unlike.idle is not store_of_repository.connections.idle


def test_a_connection_that_waits_holds_no_content(faulty_s3: FaultyS3) -> None:
    faulty_s3.objects["a"] = b"content" * 100
    curl = CurlGets(ca_bundle="", connect_seconds=8, read_seconds=8)
    answer = get(curl, f"{faulty_s3.endpoint}/bucket/a")
    assert answer is not None
    assert not any(isinstance(holder, list) for holder in gc.get_referrers(answer.body))


def test_a_token_is_not_sent_with_other_credentials(faulty_s3: FaultyS3) -> None:
    """A connection keeps its options, and pycurl ignores an empty list of headers."""
    faulty_s3.objects["a"] = b"content"
    curl, url = CurlGets(ca_bundle="", connect_seconds=9, read_seconds=9), f"{faulty_s3.endpoint}/bucket/a"
    for token in ("token", None, "another"):
        assert curl.get(url, ReadOnlyCredentials("key", "secret", token), "us-east-1", "a test") is not None
    assert len(curl.connections.idle) == 1
    sent = [request.headers.get("x-amz-security-token") for request in faulty_s3.requests]
    assert sent == ["token", None, "another"]
