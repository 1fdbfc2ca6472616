"""A small S3 server over real sockets whose answers a test can replace.

It implements only the requests of the store (ListObjectsV2, GET, HEAD, PUT, DELETE, DeleteObjects, and
ListMultipartUploads, of which it has none), does not check signatures, and records each request. A test adds a function
to ``faults``. The function gets the request and returns another answer, or None.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs, quote_plus, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
_OLD = datetime(2025, 6, 1, 12, tzinfo=UTC)
_NS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


@dataclass(frozen=True)
class Request:
    """A request. ``operation``: S3's name. ``keys``: the keys of a bulk delete, or the key of the path."""

    operation: str
    keys: tuple[str, ...]
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    number: int
    """Counts the requests of this operation, from 1."""
    target: str = ""
    """Path and query, as they were sent."""


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut_at: int | None = None
    """Close the connection after so many bytes of the body, though Content-Length promises all."""
    announce_length: bool = True
    """Without a length the end of the connection is the end of the body, unless it is sent in chunks."""
    in_chunks: bool = False
    """AWS sends the pages of a listing so."""

    def on_the_wire(self) -> bytes:
        """Return the bytes of the body, as many as are sent."""
        if not self.in_chunks:
            return self.body[: self.cut_at]
        halves = (self.body[: len(self.body) // 2], self.body[len(self.body) // 2 :])
        return b"".join(b"%x\r\n%s\r\n" % (len(half), half) for half in (*halves, b""))[: self.cut_at]


def error(status: int, code: str, message: str = "injected by the test") -> Answer:
    body = f"{_XML}<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml"})


class FaultyS3:
    """``with FaultyS3() as server``: one bucket of any name, ``objects`` by key."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.written_at: dict[str, datetime] = {}
        self.page_size = 1000
        self.requests: list[Request] = []
        self.faults: list[Callable[[Request], Answer | None]] = []
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FaultyS3:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def count(self, operation: str) -> int:
        return sum(request.operation == operation for request in self.requests)

    def answer(
        self, operation: str, key: str, query: dict[str, str], headers: dict[str, str], body: bytes, target: str
    ) -> Answer:
        if operation == "DeleteObjects":
            quotes = {"&quot;": '"', "&apos;": "'"}
            keys = tuple(unescape(k, quotes) for k in re.findall("<Key>(.*?)</Key>", body.decode(), re.DOTALL))
        else:
            keys = (key,)
        with self.lock:
            request = Request(operation, keys, query, headers, body, self.count(operation) + 1, target)
            self.requests.append(request)
        for fault in self.faults:
            if (answer := fault(request)) is not None:
                return answer
        return self.right_answer(request)

    def right_answer(self, request: Request) -> Answer:
        key = request.keys[0] if request.keys else ""
        if request.operation == "ListObjectsV2":
            return Answer(body=self.page(request.query).encode())
        if request.operation == "ListMultipartUploads":
            page = f"<Bucket>b</Bucket><Prefix>{escape(request.query.get('prefix', ''))}</Prefix>"
            listed = f"{_XML}<ListMultipartUploadsResult {_NS}>{page}<IsTruncated>false</IsTruncated>"
            return Answer(body=f"{listed}</ListMultipartUploadsResult>".encode())
        if request.operation == "ListObjectVersions":
            return Answer(body=self.versions(request.query.get("prefix", "")).encode())
        if request.operation == "DeleteObjects":
            for name in request.keys:
                self.objects.pop(name, None)
            return deleted(request.keys)
        if request.operation == "DeleteObject":
            self.objects.pop(key, None)
            return Answer(204)
        if request.operation == "PutObject":
            self.objects[key] = request.body
            self.written_at[key] = datetime.now(UTC)
            return Answer(headers={"ETag": '"e"'})
        if key not in self.objects:
            return error(404, "NoSuchKey") if request.operation == "GetObject" else Answer(404)
        facts = {"ETag": '"e"', "Last-Modified": format_datetime(self.last_modified(key), usegmt=True)}
        return Answer(body=self.objects[key], headers=facts)

    def last_modified(self, key: str) -> datetime:
        """Return the real time for files of lakeFS and the collector. Data objects are old and may be garbage."""
        is_record = "/_lakefs/" in key or key.endswith("/began.json")
        return self.written_at.get(key, _OLD) if is_record else _OLD

    def page(self, query: dict[str, str]) -> str:
        """Return a page as AWS writes it: with URL-encoded keys, and a token if more pages follow."""
        after = query.get("continuation-token") or query.get("start-after", "")
        prefix = query.get("prefix", "")
        names = sorted(name for name in self.objects if name.startswith(prefix) and name > after)
        names, more = names[: self.page_size], len(names) > self.page_size
        contents = "".join(
            f"<Contents><Key>{quote_plus(name, safe='/')}</Key>"
            f"<LastModified>{self.last_modified(name):%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
            f"<ETag>&quot;e&quot;</ETag><Size>{len(self.objects[name])}</Size></Contents>"
            for name in names
        )
        token = f"<NextContinuationToken>{escape(names[-1])}</NextContinuationToken>" if more else ""
        return (
            f"{_XML}<ListBucketResult {_NS}><IsTruncated>{str(more).lower()}</IsTruncated>{contents}{token}"
            f"<EncodingType>url</EncodingType><KeyCount>{len(names)}</KeyCount></ListBucketResult>"
        )

    def versions(self, prefix: str) -> str:
        """Return the versions of a bucket that never kept any: each object is one of the id ``null``."""
        versions = "".join(
            f"<Version><Key>{escape(name)}</Key><VersionId>null</VersionId><IsLatest>true</IsLatest>"
            f"<LastModified>{self.last_modified(name):%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
            f"<Size>{len(self.objects[name])}</Size></Version>"
            for name in sorted(self.objects)
            if name.startswith(prefix)
        )
        head = f"<Name>b</Name><Prefix>{escape(prefix)}</Prefix><IsTruncated>false</IsTruncated>"
        return f"{_XML}<ListVersionsResult {_NS}>{head}{versions}</ListVersionsResult>"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                url = urlsplit(self.path)
                query = {name: v[0] for name, v in parse_qs(url.query, keep_blank_values=True).items()}
                key = unquote(url.path).split("/", 2)[2] if url.path.count("/") > 1 else ""
                name = {"PUT": "PutObject", "DELETE": "DeleteObject", "POST": "DeleteObjects"}.get(
                    self.command, f"{self.command.title()}Object"
                )
                if "list-type" in query:
                    name = "ListObjectsV2"
                if "uploads" in query and self.command == "GET":
                    name = "ListMultipartUploads"
                if "versions" in query:
                    name = "ListObjectVersions"
                announced = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(announced)
                if len(body) < announced:  # the client has died, and a store discards an incomplete upload
                    self.close_connection = True
                    return
                headers = {header.lower(): value for header, value in self.headers.items()}
                self._send(server.answer(name, key, query, headers, body, self.path))

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

            def _send(self, answer: Answer) -> None:
                self.send_response_only(answer.status)
                for name, value in {"Date": self.date_time_string(), **answer.headers}.items():
                    self.send_header(name, value)
                if answer.in_chunks:
                    self.send_header("Transfer-Encoding", "chunked")
                elif answer.announce_length and answer.status != 204:
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.on_the_wire())
                if answer.cut_at is not None or not (answer.announce_length or answer.in_chunks):
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                """Do not write to the output of the test."""

        return Handler


def deleted(keys: tuple[str, ...], failures: dict[str, tuple[str, str]] | None = None) -> Answer:
    """Return the answer to DeleteObjects: ``keys`` are deleted, except ``failures`` with a code and a message."""
    failures = failures or {}
    gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys if key not in failures)
    errors = "".join(
        f"<Error><Key>{escape(key)}</Key><Code>{code}</Code><Message>{message}</Message></Error>"
        for key, (code, message) in failures.items()
    )
    return Answer(body=f"{_XML}<DeleteResult {_NS}>{gone}{errors}</DeleteResult>".encode())
