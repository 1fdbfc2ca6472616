"""A real HTTP proxy in front of a lakeFS server, whose answers a test can change."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

_NOT_FORWARDED = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding"}


@dataclass(frozen=True)
class Asked:
    """One request. ``path`` includes the query. ``number`` counts the requests for its path, from 1."""

    method: str
    path: str
    body: bytes
    number: int

    def is_for(self, ending: str) -> bool:
        """Return whether the path without its query ends with this text."""
        return self.path.partition("?")[0].endswith(ending)


@dataclass(frozen=True)
class Answered:
    """An answer. ``cut_at``: close the connection after this number of bytes of the body."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    cut_at: int | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def with_json(self, **fields: Any) -> Answered:
        """Return the same answer with some fields changed."""
        return replace(self, body=json.dumps(self.json | fields).encode())


Spoil = Callable[[Asked, Callable[..., Answered]], Answered | None]
"""A function of the request and of a call to the real server. It returns the answer to send, or None."""


class LakeFSProxy:
    """``with LakeFSProxy(url) as proxy``: answers as the server does, unless ``spoil`` returns another answer."""

    def __init__(self, upstream: str) -> None:
        self.spoil: list[Spoil] = []
        self.asked: list[Asked] = []
        self._upstream = upstream
        self._lock = threading.Lock()
        self._client = httpx.Client(timeout=60)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> LakeFSProxy:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._client.close()

    def count(self, ending: str) -> int:
        """Return the number of requests for paths that end with this text."""
        return sum(asked.is_for(ending) for asked in self.asked)

    def instead(self, ending: str, spoil: Callable[[Asked, Answered], Answered | None]) -> None:
        """Change the real answers to requests for paths that end with this text."""
        self.spoil.append(lambda asked, real: spoil(asked, real()) if asked.is_for(ending) else None)

    def fail(self, ending: str, *answers: Answered) -> None:
        """Return these answers, one after the other, and then the real ones."""
        left = list(answers)
        self.spoil.append(lambda asked, real: left.pop(0) if left and asked.is_for(ending) else None)

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answered:
        with self._lock:
            number = 1 + sum(a.path.partition("?")[0] == path.partition("?")[0] for a in self.asked)
            asked = Asked(method, path, body, number)
            self.asked.append(asked)

        def real(path: str = path) -> Answered:
            answer = self._client.request(method, self._upstream + path, headers=headers, content=body)
            return Answered(answer.status_code, answer.content, {"Content-Type": answer.headers["Content-Type"]})

        for spoil in self.spoil:
            if (spoiled := spoil(asked, real)) is not None:
                return spoiled
        return real()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {n: v for n, v in self.headers.items() if n.lower() not in _NOT_FORWARDED}
                answer = proxy.answer(self.command, self.path, headers, body)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body[: answer.cut_at])
                if answer.cut_at is not None:
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _serve  # noqa: N815 - the names that http.server looks for

            def log_message(self, format: str, *args: object) -> None:
                """Do not write to the output of the test."""

        return Handler


def refusal(status: int, message: str = "injected by the test") -> Answered:
    """Return an error in lakeFS's format."""
    return Answered(status, json.dumps({"message": message}).encode())
