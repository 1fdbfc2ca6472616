"""A stand-in for Google Cloud Storage, for what fake-gcs-server does not do.

``replies`` answers a request by its operation: ``batch``, ``list``, ``upload``, or the method (``GET``, ``DELETE``,
``POST``). Other requests go to the emulator ``forward_to``, except for two things: it ignores the condition of a delete
on a generation, and gives composite objects an MD5. Here ``composites`` have none, and neither have their copies.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import urllib3


@dataclass(frozen=True)
class Reply:
    """An answer. ``announced``: the size in its header, if that is not the size of the content; -1: no size."""

    status: int = 200
    content: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    announced: int | None = None


def error(status: int, reason: str = "", message: str = "") -> Reply:
    """Return an error as the JSON API has it."""
    details = {"code": status, "message": message, "errors": [{"domain": "global", "reason": reason}]}
    return Reply(status, json.dumps({"error": details}).encode(), {"Content-Type": "application/json"})


def resource(generation: int = 1, **facts: object) -> Reply:
    """Return the facts of an object."""
    content = {"size": "1", "updated": "2025-06-01T12:00:00Z", "generation": str(generation), **facts}
    return Reply(200, json.dumps(content).encode())


def batch(*parts: tuple[str, Reply]) -> Reply:
    """Return the answer to a batch; each part has an id (see ``ids_in``)."""
    lines = []
    for number, part in parts:
        lines += ["--answer", "Content-Type: application/http", f"Content-ID: <response-{number.strip('<>')}>", ""]
        lines += [f"HTTP/1.1 {part.status} text", "Content-Type: application/json", "", part.content.decode()]
    content = "\r\n".join([*lines, "--answer--", ""]).encode()
    return Reply(200, content, {"Content-Type": "multipart/mixed; boundary=answer"})


def ids_in(body: bytes) -> list[str]:
    """Return the ids of the requests in a batch."""
    return re.findall(r"Content-ID: (\S+)", body.decode())


def requests_in(body: bytes) -> list[tuple[str, str]]:
    """Return the methods and paths in a batch."""
    return re.findall(r"(?m)^(GET|DELETE) (\S+) HTTP/1.1", body.decode())


Answerer = Callable[[int, str, bytes], "Reply | None"]
"""Answers a request: its number among those of its operation, its path, its body. None: a broken connection."""


class GCSStandIn:
    """A running stand-in; ``requests`` has the operation, path and body of each request."""

    def __init__(self, forward_to: str = "") -> None:
        self.requests: list[tuple[str, str, bytes]] = []
        self.authorizations: set[str | None] = set()
        self.replies: dict[str, Answerer] = {}
        self.composites: set[str] = set()
        """Ends of the names of composite objects."""
        self._forward_to = forward_to
        self._pool = urllib3.PoolManager(retries=False, maxsize=64)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.authorizations.add(self.headers.get("Authorization"))
                reply = outer._answer(self.command, self.path, body, dict(self.headers))
                if reply is None:
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                size = len(reply.content) if reply.announced is None else reply.announced
                for name, value in {**reply.headers, **({"Content-Length": str(size)} if size >= 0 else {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.content)
                self.close_connection = size != len(reply.content)

            do_GET = do_DELETE = do_POST = do_PUT = answer  # noqa: N815 - names of http.server

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def count(self, operation: str) -> int:
        return sum(one == operation for one, _, _ in self.requests)

    def _answer(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply | None:
        plain = urlsplit(path).path
        operation = "batch" if plain.startswith("/batch") else "upload" if plain.startswith("/upload") else method
        if method == "GET" and plain.endswith("/o"):
            operation = "list"
        self.requests.append((operation, path, body))
        if answerer := self.replies.get(operation):
            return answerer(self.count(operation), path, body)
        if operation == "batch":
            answers = [self._forward(one, where, b"", {}) for one, where in requests_in(body)]
            return batch(*zip(ids_in(body), answers, strict=True))
        return self._forward(method, path, body, headers)

    def _forward(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        if not self._forward_to:
            return resource()
        parts = urlsplit(path)
        wanted = parse_qs(parts.query).get("ifGenerationMatch", [""])[0]
        if method == "DELETE" and wanted:
            now = self._pool.request("GET", self._forward_to + parts.path)
            if now.status == 200 and now.json()["generation"] != wanted:
                return error(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
        kept = {name: value for name, value in headers.items() if name.lower() not in ("host", "content-length")}
        answer = self._pool.request(method, self._forward_to + path, body=body, headers=kept, decode_content=False)
        hop = ("content-length", "transfer-encoding", "connection")
        received = {name: value for name, value in answer.headers.items() if name.lower() not in hop}
        is_composite = unquote(parts.path.partition("/rewriteTo/")[0]).endswith((*self.composites,))
        if is_composite and answer.status == 200 and "media" not in parse_qs(parts.query).get("alt", []):
            document = answer.json()
            for facts in (document, document.get("resource", {})):
                facts.pop("md5Hash", None)
            return Reply(200, json.dumps(document).encode(), received)
        return Reply(answer.status, answer.data, received)
