"""Recorded exchanges with a real lakeFS server, repeated with a sandbox and compared.

Ids, addresses and times differ between two servers. If both answers have one in the same field, the pair is recorded,
and later requests and answers are translated. Everything else must be equal.
"""

from __future__ import annotations

import base64
import json
import re
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from unittest import mock
from urllib.parse import quote, unquote

import boto3
import httpx

from lakefs_gc.sandbox.differences import MISSING
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc_tests.golden import golden_file, golden_files

_ID = re.compile(r"[0-9a-f]{64}|[0-9a-v]{20}|GCPC[\w-]{20}")
_ADDRESS = re.compile(r"(local://[a-z/-]+/)?data/[0-9a-v]{20}/[0-9a-v]{20}(,[\w-]{43})?")
_TIMES = ("creation_date", "mtime")
_TASK_TIMEOUT_SECONDS = 20
_NOT_COMPARED = {"update_time"}.union(*(missing.fields for missing in MISSING))


@dataclass
class Replay:
    """One repeated scenario. ``compared``: the number of compared exchanges. ``differences``: their differences."""

    scenario: str
    server: SandboxServer
    clock: Any
    known: dict[str, str] = field(default_factory=dict)
    compared: int = 0
    differences: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def run(self) -> Replay:
        """Send all requests in the recorded order."""
        with httpx.Client(base_url=self.server.endpoint_url) as client:
            self._prepare(client)
            for exchange in recorded_exchanges(self.scenario):
                self.clock.now = datetime.fromisoformat(exchange["time"])
                self._ask(client, exchange)
        return self

    def translate(self, text: str) -> str:
        """Return a text of the recording with the ids and addresses of the sandbox."""
        pattern = "|".join(re.escape(theirs) for theirs in sorted(self.known, key=len, reverse=True))
        return re.sub(pattern, lambda match: self.known[match[0]], text) if pattern else text

    # -- asking

    def _prepare(self, client: httpx.Client) -> None:
        """Prepare the state that the recording begins with."""
        body = {"name": "golden-bare", "storage_namespace": "local://golden/golden-bare"}
        response = client.post("/api/v1/repositories", params={"bare": "true"}, json=body, auth=self._auth())
        assert response.status_code == 201, response.text
        outside = self.server.sandbox.namespaces.store("local://golden-other/slices")
        for key in ("import/one", "import/two", "import/sub/three", "staged/four"):
            outside.put(key, key.encode())
        # Commits of the old layout name trees that were written to the store manually.
        store = self.server.sandbox.namespaces.store(f"local://golden/golden-{self.scenario}")
        for file, data in golden_files(self.scenario).items():
            if self.scenario == "old-layout" and re.fullmatch(r"namespace/_lakefs/[0-9a-f]{64}", file):
                store.put(file.removeprefix("namespace/"), data)

    def _ask(self, client: httpx.Client, exchange: dict[str, Any]) -> None:
        method = exchange["method"]
        if method == "S3 PutObject (direct)":
            _, _, key = exchange["path"].removeprefix("/").partition("/")
            namespace = f"local://golden/{exchange['path'].split('/')[0]}"
            store = self.server.sandbox.namespaces.store(namespace)
            store.put(self.translate(key), (exchange["request_body"] or "").encode())
        elif method.startswith("S3 gateway"):
            self._ask_gateway(exchange)
        elif reason := _unsupported(exchange):
            self.skipped.append(f"{exchange['note']}: {reason}")
        else:
            self._ask_api(client, exchange)

    def _ask_gateway(self, exchange: dict[str, Any]) -> None:
        """Send a request with boto3, signed with the time of the recording, which is also the time of the sandbox."""
        call, params = exchange["method"].removeprefix("S3 gateway "), dict(exchange["params"])
        if "UploadId" in params:
            params["UploadId"] = self.known[params["UploadId"]]
        with mock.patch("botocore.auth.get_current_datetime", return_value=self.clock.now.replace(tzinfo=None)):
            answer = getattr(self._s3(), call)(**params)
        status = answer.pop("ResponseMetadata")["HTTPStatusCode"]
        expected = exchange["response"]
        if "UploadId" in expected:
            self.known[expected["UploadId"]] = answer["UploadId"]
        for name in ("ETag", "Bucket", "Key"):
            if expected.get(name) != answer.get(name):
                self.differences.append(f"{call} {params['Key']}: {name}: {expected.get(name)} / {answer.get(name)}")
        copied = answer.get("CopyObjectResult", {}).get("ETag", "")
        is_copied = bool(copied) == ("CopyObjectResult" in expected) and copied in expected.get("CopyObjectResult", "")
        if status != exchange["status"] or not is_copied:
            self.differences.append(
                f"{call} {params['Key']}: {status} {answer} instead of {exchange['status']} {expected}"
            )
        self.compared += 1

    def _s3(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.server.endpoint_url,
            aws_access_key_id=self.server.access_key_id,
            aws_secret_access_key=self.server.secret_access_key,
            region_name="us-east-1",
        )

    def _ask_api(self, client: httpx.Client, exchange: dict[str, Any]) -> None:
        expected_status, expected = exchange["status"], _parsed(exchange["response_body"])
        response = self._request(client, exchange)
        if isinstance(expected, dict) and "completed" in expected:
            if not expected["completed"]:
                return
            deadline = time.monotonic() + _TASK_TIMEOUT_SECONDS
            while not response.json().get("completed", True) and time.monotonic() < deadline:
                time.sleep(0.02)
                response = self._request(client, exchange)
        where = f"{exchange['note']} ({exchange['method']} {exchange['path']})"
        if response.status_code != expected_status:
            answer = f"{response.status_code} {response.text.strip()}"
            self.differences.append(f"{where}: {answer} instead of {expected_status} {exchange['response_body']}")
        elif "<" not in str(expected)[:1]:  # no placeholder for bytes
            self._compare(where, expected, _parsed(response.text))
        self.compared += 1
        if "address used, never linked" in (exchange["note"] or ""):
            # The recording of the server does not contain the client's direct upload.
            namespace, _, key = response.json()["physical_address"].partition("/data/")
            self.server.sandbox.namespaces.store(namespace).put(f"data/{key}", b"never linked")

    def _request(self, client: httpx.Client, exchange: dict[str, Any]) -> httpx.Response:
        body = exchange["request_body"]
        headers = {
            name: value
            for name, value in exchange["request_headers"].items()
            if name.lower() in ("content-type", "if-none-match")
        }
        auth = self._auth() if exchange["authenticated"] else None
        if exchange["note"] and "wrong secret" in exchange["note"]:
            auth = (self.server.access_key_id, "wrong")
        if exchange["note"] and "unknown access key" in exchange["note"]:
            auth = ("unknown", self.server.secret_access_key)
        path, _, query = self.translate(exchange["path"]).partition("?")
        params = {name: self.translate(str(value)) for name, value in (exchange["query"] or {}).items()}
        if query:
            params |= dict([query.split("=")])
        return client.request(
            exchange["method"],
            quote(unquote(path)),
            params=params,
            content=None if body is None else self._translate_body(body).encode(),
            headers=headers,
            auth=auth,
        )

    def _translate_body(self, body: str) -> str:
        translated = self.translate(body)
        try:
            token = json.loads(translated)["continuation_token"]
            mark = self.translate(base64.b64decode(token, validate=True).decode())
        except (ValueError, KeyError, TypeError):
            return translated
        return json.dumps({"continuation_token": base64.b64encode(mark.encode()).decode()})

    def _auth(self) -> tuple[str, str]:
        return (self.server.access_key_id, self.server.secret_access_key)

    # -- comparing

    def _compare(self, where: str, expected: Any, actual: Any) -> None:
        if isinstance(expected, dict) and isinstance(actual, dict):
            for name in sorted((expected.keys() | actual.keys()) - _NOT_COMPARED):
                if name not in expected or name not in actual:
                    self.differences.append(f"{where}: {name}: {expected.get(name)} / {actual.get(name)}")
                elif name in _TIMES:
                    if abs(expected[name] - actual[name]) > 2:
                        self.differences.append(f"{where}: {name}: {expected[name]} / {actual[name]}")
                else:
                    self._compare(f"{where}: {name}", expected[name], actual[name])
        elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
            for pair in zip(_ordered(expected), _ordered(actual), strict=True):
                self._compare(where, *pair)
        elif isinstance(expected, str) and isinstance(actual, str):
            if not self._same_text(expected, actual):
                self.differences.append(f"{where}: {self.translate(expected)!r} / {actual!r}")
        elif expected != actual:
            self.differences.append(f"{where}: {expected!r} / {actual!r}")

    def _same_text(self, expected: str, actual: str) -> bool:
        if self.translate(expected) == actual:
            return True
        if _is_go_text(expected) and _cut(expected) == _cut(actual):
            return True
        for pattern in (_ADDRESS, _ID):
            theirs = [match[0] for match in pattern.finditer(expected)]
            ours = [match[0] for match in pattern.finditer(actual)]
            if theirs and pattern.sub("*", expected) == pattern.sub("*", actual):
                for their, our in zip(theirs, ours, strict=True):
                    if self.known.get(their, our) != our:
                        return False
                    self._learn(their, our)
                return True
        return False

    def _learn(self, theirs: str, ours: str) -> None:
        self.known[theirs] = ours
        if "data/" in theirs:
            # Also the address below the namespace, and without the signature of a link.
            theirs, ours = (text[text.index("data/") :] for text in (theirs, ours))
            self.known[theirs] = ours
            self.known[theirs.partition(",")[0]] = ours.partition(",")[0]


def recorded_exchanges(scenario: str) -> list[dict[str, Any]]:
    """Return all exchanges of a scenario in the order of time, with local addresses instead of S3 addresses."""
    exchanges = []
    for file in ("api/build.jsonl", "api/exchanges.jsonl"):
        for line in golden_file(scenario, file).decode().splitlines():
            text = line.replace("s3://", "local://").replace("block adapter: s3", "block adapter: local")
            exchange = json.loads(text)
            if exchange.get("response_body") and '"blockstore_type":"s3"' in exchange["response_body"]:
                exchange["response_body"] = exchange["response_body"].replace('"s3"', '"local"')
            exchanges.append({"note": None, "query": None, **exchange})
    return sorted(exchanges, key=lambda exchange: exchange["time"])


def _unsupported(exchange: dict[str, Any]) -> str:
    note = exchange["note"] or ""
    for missing in MISSING:
        is_asked = missing.query and (missing.query in (exchange["query"] or {}) or f"{missing.query}ed" in note)
        if is_asked or exchange["path"].endswith(missing.paths):
            return missing.name
    if re.search(r"correct signature|token 23 h old", note):
        return "signed with the recorded server's key; test_addresses has such cases"
    return ""


def _parsed(body: str | None) -> Any:
    try:
        return json.loads(body or "null")
    except ValueError:
        return (body or "").strip()


def _ordered(items: list[Any]) -> list[Any]:
    """Return an answer with sorted rules, because their order is not defined."""
    if items and isinstance(items[0], dict) and "branch_id" in items[0]:
        return sorted(items, key=lambda item: str(item["branch_id"]))
    return items


def _is_go_text(text: str) -> bool:
    return "failed to decode request body" in text or "doesn't match schema" in text


def _cut(text: str) -> str:
    """Return a message without the additions of Go's libraries."""
    return re.sub(r"(failed to decode request body:|\nSchema:).*", r"", text, flags=re.S).strip()
