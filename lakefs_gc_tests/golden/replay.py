"""Recorded answers of a lakeFS server, given again over HTTP, to the unmodified SDK."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_API = "/api/v1"
# The exchanges of a collection are the last in a recording, and begin with this one.
_FIRST_NOTE = "get GC rules"

Question = tuple[str, str, tuple[tuple[str, str], ...], str]
Answer = tuple[int, str]


class ReplayServer:
    """Answers as recorded: the same question in the same order gets the same answers, the last one for ever.

    What a recording has as files (branches, commits, the repository) is answered from those.  ``unanswered`` has the
    questions that the recording knows nothing of, which got a 500.
    """

    def __init__(self, scenario: Path) -> None:
        self.unanswered: list[str] = []
        self.asked: list[str] = []
        self._lock = threading.Lock()
        self._answers: dict[Question, list[Answer]] = defaultdict(list)
        self._repository = _json(scenario / "api" / "repository.json")
        self._branches = _json(scenario / "api" / "branches.json")
        self._commits = {commit["id"]: commit for commit in _json(scenario / "api" / "all_commits.json")}
        lines = (scenario / "api" / "exchanges.jsonl").read_text("utf-8").splitlines()
        exchanges = [json.loads(line) for line in lines]
        first = max(i for i, exchange in enumerate(exchanges) if exchange["note"] == _FIRST_NOTE)
        for exchange in exchanges[first:]:
            query = tuple(sorted((k, str(v)) for k, v in exchange["query"].items()))
            question = (exchange["method"], exchange["path"], query, _canonical(exchange["request_body"] or ""))
            self._answers[question].append((exchange["status"], exchange["response_body"]))

    def answer(self, method: str, url: str, body: str) -> Answer:
        """The answer to one request."""
        parts = urlsplit(url)
        question = (method, parts.path, tuple(sorted(parse_qsl(parts.query))), _canonical(body))
        with self._lock:
            self.asked.append(f"{method} {url}")
            recorded = self._answers.get(question)
            if recorded:
                return recorded.pop(0) if len(recorded) > 1 else recorded[0]
            found = self._from_files(method, parts.path)
            if found is None:
                self.unanswered.append(f"{method} {url} {body}")
                return 500, json.dumps({"message": "not in the recording"})
            return 200, json.dumps(found)

    def _from_files(self, method: str, path: str) -> Any:
        own = f"{_API}/repositories/{self._repository['id']}"
        if method != "GET":
            return None
        if path == f"{_API}/repositories":
            return _page([self._repository])
        if path == f"{own}/branches":
            return _page(self._branches)
        if path.startswith(f"{own}/commits/"):
            return self._commits.get(path.rpartition("/")[2])
        return self._repository if path == own else None

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve on a free loopback port; the server's URL."""
        replay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                status, text = replay.answer(self.command, self.path, self.rfile.read(length).decode())
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST = _serve  # noqa: N815 - the names that http.server looks for

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _json(file: Path) -> Any:
    return json.loads(file.read_text("utf-8"))


def _canonical(body: str) -> str:
    return json.dumps(json.loads(body), sort_keys=True) if body else ""


def _page(results: list[Any]) -> dict[str, Any]:
    return {
        "pagination": {"has_more": False, "max_per_page": 1000, "next_offset": "", "results": len(results)},
        "results": results,
    }
