"""Recorded answers of a lakeFS server, given again over HTTP, to the unmodified SDK."""

from __future__ import annotations

import json
import threading
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow.parquet as pq

from lakefs_gc.formats.entry import AddressType
from lakefs_gc.formats.ranges import read_metarange, read_range
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

_API = "/api/v1"
_METADATA_FILE = "/metadata/object/range/"
# The exchanges of a collection are the last in a recording, and begin with this one.
_FIRST_NOTE = "get GC rules"

Question = tuple[str, str, tuple[tuple[str, str], ...], str]
Answer = tuple[int, str]


class ReplayServer:
    """Answers as recorded: the same question in the same order gets the same answers, the last one for ever.

    What a recording has as files (branches, commits, the repository) is answered from those, and files of the
    namespace from its restored ``store``.  ``unanswered`` has the questions that the recording knows nothing of, which
    got a 500.
    """

    def __init__(self, scenario: Path, store: StoreLocation) -> None:
        self.unanswered: list[str] = []
        self.asked: list[str] = []
        self._lock = threading.Lock()
        self._answers: dict[Question, list[Answer]] = defaultdict(list)
        self._scenario, self._store = scenario, store
        self._shown: dict[str, dict[str, Any]] = {}
        self._paths: dict[str, list[str]] = {}
        self._changes: dict[str, list[dict[str, Any]]] = {}
        self._repository = _json(scenario / "api" / "repository.json")
        self._tags = _json(scenario / "api" / "tags.json")
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
            if method == "GET" and parts.path.endswith("/objects/stat"):
                return self._stat(parts.path.split("/")[-3], dict(parse_qsl(parts.query))["path"])
            if method == "GET" and parts.path.endswith("/objects/ls"):
                return 200, json.dumps(self._list(parts.path.split("/")[-3], dict(parse_qsl(parts.query))))
            if method == "GET" and parts.path.endswith("/diff"):
                query = dict(parse_qsl(parts.query))
                return 200, json.dumps(self._diff(parts.path.split("/")[-2], query))
            if method == "GET" and _METADATA_FILE in parts.path:
                name = unquote(parts.path.partition(_METADATA_FILE)[2])
                return 200, open_store(self._store).read(f"_lakefs/{name}").decode()
            found = self._from_files(method, parts.path, dict(parse_qsl(parts.query)))
            if found is None:
                self.unanswered.append(f"{method} {url} {body}")
                return 500, json.dumps({"message": "not in the recording"})
            return 200, json.dumps(found)

    def _log(self, commit_id: str, after: str, amount: int) -> dict[str, Any]:
        history: dict[str, Any] = {}
        left = [commit_id]
        while left:
            commit = self._commits[left.pop()]
            if commit["id"] not in history:
                history[commit["id"]] = commit
                left += commit["parents"] or []
        ids = list(history)
        begin = ids.index(after) + 1 if after else 0
        page = [history[id_] for id_ in ids[begin : begin + amount]]
        more = begin + amount < len(ids)
        return _page(page, page[-1]["id"] if more else "")

    def _stat(self, branch: str, path: str) -> Answer:
        """What the branch showed at a path when it was recorded."""
        entry = self._shown_by(branch).get(path)
        return (200, json.dumps(entry)) if entry else (404, json.dumps({"message": "not found"}))

    def _list(self, branch: str, query: dict[str, str]) -> dict[str, Any]:
        """The first page of what the branch showed below a prefix when it was recorded."""
        shown, prefix = self._shown_by(branch), query.get("prefix", "")
        if branch not in self._paths:
            self._paths[branch] = sorted(shown)
        begin = bisect_left(self._paths[branch], prefix)
        following = self._paths[branch][begin : begin + int(query["amount"])]
        return _page([shown[path] for path in following if path.startswith(prefix)])

    def _diff(self, branch: str, query: dict[str, str]) -> dict[str, Any]:
        """A page of the uncommitted changes of a branch."""
        if branch not in self._changes:
            self._changes[branch] = sorted(self._recorded_changes(branch), key=lambda change: str(change["path"]))
        changes, amount = self._changes[branch], int(query.get("amount", "100"))
        begin = bisect_right(changes, query.get("after", ""), key=lambda change: str(change["path"]))
        page = changes[begin : begin + amount]
        more = begin + amount < len(changes)
        return _page(page, page[-1]["path"] if more else "")

    def _recorded_changes(self, branch: str) -> list[dict[str, Any]]:
        folder = self._scenario / "api" / "uncommitted_diff"
        if (lines := folder / f"{branch}.jsonl").exists():
            return [_change(*json.loads(line)) for line in lines.read_text("utf-8").splitlines()]
        if folder.exists():
            recorded: list[dict[str, Any]] = _json(folder / f"{branch}.json")
            return recorded
        # ugc-size has no diffs. Its first branch stands in for all, with as many changes as the server prepared rows.
        prepared = self._scenario / "prepared" / "uncommitted"
        rows = sum(pq.read_metadata(file).num_rows for file in prepared.rglob("*") if file.is_file())
        return [_change(f"row/{row:09}", "added") for row in range(rows)] if branch == self._branches[0]["id"] else []

    def _shown_by(self, branch: str) -> dict[str, Any]:
        if branch not in self._shown:
            self._shown[branch] = {entry["path"]: entry for entry in self._objects(branch)}
        return self._shown[branch]

    def _objects(self, branch: str) -> list[dict[str, Any]]:
        recorded = self._scenario / "api" / "objects" / f"branch-{branch}.jsonl"
        if recorded.exists():
            return [json.loads(line) for line in recorded.read_text("utf-8").splitlines()]
        # A big recording has no listing of its branches.  What is committed stands in: no hazard was recorded there.
        return list(self._committed_at(branch))

    def _committed_at(self, branch: str) -> Iterator[dict[str, Any]]:
        (head,) = (b["commit_id"] for b in self._branches if b["id"] == branch)
        folder = self._scenario / "namespace" / "_lakefs"
        metarange_id = self._commits[head]["meta_range_id"]
        ranges = read_metarange((folder / metarange_id).read_bytes(), metarange_id) if metarange_id else None
        for range_id in ranges.column("range_id").to_pylist() if ranges else ():
            rows = read_range((folder / range_id).read_bytes(), range_id, keys=True, details=True)
            for row in rows.to_pylist():
                full = row["address_type"] == AddressType.FULL
                namespace = "" if full else self._repository["storage_namespace"].rstrip("/") + "/"
                yield {
                    "path": row["key"].decode(),
                    "path_type": "object",
                    "physical_address": namespace + row["address"],
                    "checksum": row["e_tag"],
                    "size_bytes": row["size"],
                    "mtime": 0,
                }

    def _from_files(self, method: str, path: str, query: dict[str, str]) -> Any:
        own = f"{_API}/repositories/{self._repository['id']}"
        if method != "GET":
            return None
        if path == f"{_API}/repositories":
            return _page([self._repository])
        if path == f"{own}/branches":
            return _page(self._branches)
        if path == f"{own}/tags":
            return _page(self._tags)
        if path.startswith(f"{own}/refs/") and path.endswith("/commits"):
            return self._log(path.split("/")[-2], query.get("after", ""), int(query.get("amount", "100")))
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


def _change(path: str, kind: str) -> dict[str, Any]:
    """A change of a big recording, which has no sizes: only how many changes there are counts."""
    return {"path": path, "path_type": "object", "size_bytes": 0, "type": kind}


def _canonical(body: str) -> str:
    return json.dumps(json.loads(body), sort_keys=True) if body else ""


def _page(results: list[Any], next_offset: str = "") -> dict[str, Any]:
    """A page; ``next_offset`` is set where more pages follow."""
    offset = {"has_more": bool(next_offset), "max_per_page": 1000, "next_offset": next_offset}
    return {"pagination": {**offset, "results": len(results)}, "results": results}
