"""An HTTP proxy in front of an S3 server that records the IAM action and the resource of each request."""

from __future__ import annotations

import http.client
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree

_OF_BUCKET = {
    "versioning": "s3:GetBucketVersioning",
    "object-lock": "s3:GetBucketObjectLockConfiguration",
    "lifecycle": "s3:GetLifecycleConfiguration",
    "versions": "s3:ListBucketVersions",
    "uploads": "s3:ListBucketMultipartUploads",
}
_OF_OBJECT = {
    "retention": "s3:GetObjectRetention",
    "legal-hold": "s3:GetObjectLegalHold",
    "attributes": "s3:GetObjectAttributes",
    "tagging": "s3:GetObjectTagging",
    "acl": "s3:GetObjectAcl",
}


@dataclass(frozen=True)
class Needed:
    """The permission that a request needs: the action, the resource's ARN, and the prefix of a listing."""

    action: str
    resource: str
    prefix: str = ""


def needs(method: str, path: str, headers: dict[str, str], body: bytes) -> list[Needed]:
    """Return the required permissions of a request in path style, according to the S3 API reference."""
    url = urlsplit(path)
    query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
    bucket, _, key = unquote(url.path).removeprefix("/").partition("/")
    arn = f"arn:aws:s3:::{bucket}"
    if not key:
        if method == "POST" and "delete" in query:
            keys = [
                element.text or "" for element in ElementTree.fromstring(body).iter() if element.tag.endswith("Key")
            ]
            return [Needed("s3:DeleteObject", f"{arn}/{name}") for name in keys]
        named = [action for name, action in _OF_BUCKET.items() if name in query]
        if named:
            return [Needed(named[0], arn, query.get("prefix", ""))]
        if method in ("GET", "HEAD"):
            return [Needed("s3:ListBucket", arn, query.get("prefix", ""))]
        return [Needed(f"s3:Unknown {method} {path}", arn)]
    named = [action for name, action in _OF_OBJECT.items() if name in query]
    if named:
        return [Needed(named[0], f"{arn}/{key}")]
    if method in ("GET", "HEAD"):
        return [Needed("s3:GetObjectVersion" if "versionId" in query else "s3:GetObject", f"{arn}/{key}")]
    if method == "DELETE":
        action = {"uploadId": "AbortMultipartUpload", "versionId": "DeleteObjectVersion"}
        return [Needed("s3:" + next((a for n, a in action.items() if n in query), "DeleteObject"), f"{arn}/{key}")]
    source = unquote(headers.get("x-amz-copy-source", "")).lstrip("/")
    read = [Needed("s3:GetObject", f"arn:aws:s3:::{source}")] if source else []
    return [*read, Needed("s3:PutObject", f"{arn}/{key}")]


class S3Recorder:
    """``with S3Recorder(endpoint) as recorder``: forwards all requests unchanged, including signatures."""

    def __init__(self, endpoint: str) -> None:
        self.needed: set[Needed] = set()
        self._upstream = urlsplit(endpoint).netloc
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> S3Recorder:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                recorder.needed.update(needs(self.command, self.path, headers, body))
                # The host header is signed, so it is not changed.
                headers.pop("expect", None)
                connection = http.client.HTTPConnection(recorder._upstream, timeout=60)
                connection.request(self.command, self.path, body or None, headers)
                answer = connection.getresponse()
                content = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
                if length is not None and answer.status != 204:
                    self.send_header("Content-Length", length)
                self.end_headers()
                self.wfile.write(content)
                connection.close()

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the names that http.server looks for

            def log_message(self, format: str, *args: object) -> None:
                """Do not write to the output of the test."""

        return Handler
