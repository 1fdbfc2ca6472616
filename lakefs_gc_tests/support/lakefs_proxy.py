"""A real HTTP proxy before a lakeFS server, whose answers a test can spoil."""

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
    """One request; ``path`` has its query; ``number`` counts from 1 those of its path without the query."""

    method: str
    path: str
    body: bytes
    number: int

    def is_for(self, ending: str) -> bool:
        """Whether the path, without its query, ends like this."""
        return self.path.partition("?")[0].endswith(ending)


@dataclass(frozen=True)
class Answered:
    """An answer; ``cut_at`` closes the connection after so many bytes of the body."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    cut_at: int | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def with_json(self, **fields: Any) -> Answered:
        """The same answer with some fields changed."""
        return replace(self, body=json.dumps(self.json | fields).encode())


Spoil = Callable[[Asked, Callable[..., Answered]], Answered | None]
"""Gets the request, and what asks the real server (for this path or another); gives the answer to send, or None."""


class LakeFSProxy:
    """``with LakeFSProxy(url) as proxy``: answers as the server does, but for what ``spoil`` gives instead."""

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
        """How many requests there were for paths that end like this."""
        return sum(asked.is_for(ending) for asked in self.asked)

    def instead(self, ending: str, spoil: Callable[[Asked, Answered], Answered | None]) -> None:
        """Spoil the real answers to requests for paths that end like this."""
        self.spoil.append(lambda asked, real: spoil(asked, real()) if asked.is_for(ending) else None)

    def fail(self, ending: str, *answers: Answered) -> None:
        """Give these answers, one after the other, and then the real ones."""
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
                """Not on the test's output."""

        return Handler


def refusal(status: int, message: str = "told by the test") -> Answered:
    """An error as lakeFS words it."""
    return Answered(status, json.dumps({"message": message}).encode())
