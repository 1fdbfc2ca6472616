"""A proxy before the S3 server or an emulator of Azure's or Google's store, whose answers a test can replace."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, urlsplit

import urllib3

from lakefs_gc.sandbox.azurite import ACCOUNT, Azurite
from lakefs_gc.sandbox.fake_gcs import FakeGCS
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc_tests.support.gcs_stand_in import GCSStandIn

_OF_A_CONNECTION = ("connection", "content-length", "transfer-encoding")
_NAMES = ("prefix", "comp", "restype", "name", "pageToken", "marker", "include")


@dataclass(frozen=True)
class StoreRequest:
    """One request. ``operation`` is the same when it is repeated: the method, the path, and what is asked for."""

    operation: tuple[str, ...]
    body: bytes


@dataclass(frozen=True)
class StoreAnswer:
    """An answer; with status 0 there is none. ``cut_at``: close the connection after so many bytes of the body."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_at: int | None = None


class StoreProxy:
    """``with StoreProxy(endpoint, seconds) as proxy``: answers as the store does, unless one of ``faults`` answers.

    Each answer takes ``seconds`` more. ``requests`` has all requests. Each of ``changes`` changes an answer of the
    store, which has carried out the request by then. ``damages`` change the body of a request on its way to the store.
    ``answered`` is called with a request that the store has answered, before the client gets the answer.
    """

    def __init__(self, upstream: str, seconds: float = 0) -> None:
        self.requests: list[StoreRequest] = []
        self.faults: list[Callable[[StoreRequest], StoreAnswer | None]] = []
        self.changes: list[Callable[[StoreRequest, StoreAnswer], StoreAnswer]] = []
        self.damages: list[Callable[[StoreRequest], bytes]] = []
        self.answered: list[Callable[[StoreRequest], None]] = []
        self._upstream, self._seconds = upstream, seconds
        self._lock = threading.Lock()
        self._pool = urllib3.PoolManager(retries=False, maxsize=64)
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> StoreAnswer:
        parts = urlsplit(path)
        query = parse_qs(parts.query, keep_blank_values=True)
        request = StoreRequest((method, parts.path, *(value for name in _NAMES for value in query.get(name, []))), body)
        with self._lock:
            self.requests.append(request)
        time.sleep(self._seconds)
        for fault in self.faults:
            if (answer := fault(request)) is not None:
                return answer
        for damage in self.damages:
            body = damage(request)
        answer = self.forward(method, path, headers, body)
        for watch in self.answered:
            watch(request)
        for change in self.changes:
            answer = change(request, answer)
        return answer

    def heal(self) -> None:
        """Answer as the store does from now on."""
        for spoilt in (self.faults, self.changes, self.damages):
            spoilt.clear()

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> StoreAnswer:
        """Return the store's answer."""
        real = self._pool.request(
            method, self._upstream + path, body=body or None, headers=headers, decode_content=False, redirect=False
        )
        kept = {name: value for name, value in real.headers.items() if name.lower() not in _OF_A_CONNECTION}
        if method == "HEAD" and (length := real.headers.get("Content-Length")):
            kept["Content-Length"] = length
        return StoreAnswer(real.status, real.data, kept)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _serve(self) -> None:
                announced = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(announced)
                if len(body) < announced:
                    self.close_connection = True
                    return
                # With its host, which is signed in S3.
                headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
                answer = proxy.answer(self.command, self.path, headers, body)
                if not answer.status:
                    self.close_connection = True
                    return
                self.send_response_only(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if self.command != "HEAD" and answer.status != 204:
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body[: answer.cut_at])
                self.close_connection = answer.cut_at is not None

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - names of http.server

            def log_message(self, format: str, *args: object) -> None:
                """Do not write to the output of the test."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def before_seaweedfs(server: SeaweedFS) -> Iterator[tuple[StoreProxy, dict[str, str]]]:
    """Yield a proxy before the S3 server, and the variables that lead to it."""
    with StoreProxy(server.endpoint) as proxy:
        yield proxy, {**server.environment, "AWS_ENDPOINT_URL_S3": proxy.endpoint}


@contextmanager
def before_azurite(azurite: Azurite, seconds: float = 0) -> Iterator[tuple[StoreProxy, dict[str, str]]]:
    """Yield a proxy before Azurite, and the variables that lead to it."""
    with StoreProxy(azurite.endpoint.removesuffix(f"/{ACCOUNT}"), seconds) as proxy:
        yield proxy, {**azurite.environment, "AZURE_STORAGE_SERVICE_ENDPOINT": f"{proxy.endpoint}/{ACCOUNT}"}


@contextmanager
def before_fake_gcs(fake_gcs: FakeGCS, seconds: float = 0) -> Iterator[tuple[StoreProxy, dict[str, str]]]:
    """Yield a proxy before fake-gcs-server and the stand-in for what it ignores, and the variable that leads to it."""
    stand_in = GCSStandIn(fake_gcs.endpoint)
    try:
        with StoreProxy(stand_in.endpoint, seconds) as proxy:
            yield proxy, {"STORAGE_EMULATOR_HOST": proxy.endpoint}
    finally:
        stand_in.close()


def s3_error(status: int, code: str) -> StoreAnswer:
    """Return an error as S3 writes it."""
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>injected</Message></Error>'
    return StoreAnswer(status, body.encode(), {"Content-Type": "application/xml"})


def azure_error(status: int, code: str) -> StoreAnswer:
    """Return an error as Azure writes it."""
    body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>injected</Message></Error>'
    return StoreAnswer(status, body.encode(), {"Content-Type": "application/xml", "x-ms-error-code": code})


def gcs_error(status: int, reason: str) -> StoreAnswer:
    """Return an error of Google's JSON API."""
    details = {"code": status, "message": "injected", "errors": [{"domain": "global", "reason": reason}]}
    return StoreAnswer(status, json.dumps({"error": details}).encode(), {"Content-Type": "application/json"})
