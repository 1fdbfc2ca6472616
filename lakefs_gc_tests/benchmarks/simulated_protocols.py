"""The protocols of Azure's and Google's stores for the simulated store: listings, reads, writes, deletes and batches.

They do not check signatures, and conditions neither. Unlike the emulators, a page has the keys from a name on, as the
real stores have it. Written names must not need an escape in JSON or XML. Sources: Azure's REST reference ("List
Blobs", "Blob Batch"), and Google's JSON API ("Objects", "Batch").
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from lakefs_gc_tests.benchmarks.simulated_bucket import ACCOUNT, BUCKET, Answer, Bucket, Walked, end_of
from lakefs_gc_tests.benchmarks.simulated_keys import Row, SimulatedKeys

_CREATED = b"Sun, 01 Jun 2025 12:00:00 GMT"
_JSON = b"Content-Type: application/json; charset=UTF-8\r\n"
_UPDATED = "2025-06-01T12:00:00.000Z"
_FACTS = b'ETag: "0x1"\r\nLast-Modified: ' + _CREATED + b"\r\nx-ms-blob-type: BlockBlob\r\n"
_PART = re.compile(rb"Content-ID: ([^\r\n]*)\r\n(?:[^\r\n]+\r\n)*\r\n(GET|DELETE) (\S+) HTTP/1\.1")
_BLOB: Row = (
    b"<Blob><Name>",
    b"</Name><Properties><Creation-Time>" + _CREATED + b"</Creation-Time><Last-Modified>" + _CREATED + b""
    b"</Last-Modified><Etag>0x8DDA0F5C1B1D8E0</Etag><Content-Length>",
    b"</Content-Length><Content-Type>application/octet-stream</Content-Type><Content-Encoding /><Content-Language />"
    b"<Content-CRC64 /><Content-MD5>1B2M2Y8AsgTpgAmY7PhCfg==</Content-MD5><Cache-Control /><Content-Disposition />"
    b"<BlobType>BlockBlob</BlobType><AccessTier>Hot</AccessTier><AccessTierInferred>true</AccessTierInferred>"
    b"<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState><ServerEncrypted>true</ServerEncrypted>"
    b"</Properties><OrMetadata /></Blob>",
)


class _VendorBucket(Bucket):
    """What both protocols need."""

    def page(self, query: dict[str, str], start: str, token: str, most: int, until: bytes = b"") -> Walked:
        """Return a page from the name ``start`` on (inclusive), or after the last entry of another page."""
        self.requests["List"] += 1
        prefix, first, after = query.get("prefix", "").encode(), start.encode(), unquote_to_bytes(token)
        below = end_of(after) if after.endswith(b"/") else b""
        return self.walk(
            prefix,
            lambda key: (key >= below if below else key > after) if after else key >= first,
            most,
            delimited=bool(query.get("delimiter")),
            until=until,
        )

    def rows(self, walked: Walked, row: Row) -> bytes:
        """Return the entries of a page."""
        texts = []
        for run in walked.runs:
            if isinstance(run, bytes):
                texts.append(b"%b%b%b%d%b" % (row[0], run, row[1], self.put_bytes(run), row[2]))
            else:
                texts += cast(SimulatedKeys, self.keys).rows(run, row)
        return b"".join(texts)

    def content_of(self, key: bytes) -> bytes | None:
        if key in self.put:
            put = self.put[key]
            return put.read_bytes() if isinstance(put, Path) else put
        number = self.live(key)
        return None if number is None else key.ljust(self.keys.size_bytes(number), b".")

    def exists(self, key: bytes) -> bool:
        return key in self.put or self.live(key) is not None


class AzureBucket(_VendorBucket):
    """A container of an account."""

    def slow_down(self) -> Answer:
        return _azure_error(b"503 Server Busy", b"ServerBusy")

    def respond(self, method: bytes, path: bytes, query: dict[str, str], body: bytes) -> Answer:
        blob = _below(path, f"/{ACCOUNT}/{BUCKET}/")
        comp = query.get("comp", "")
        if comp == "list":
            return Answer(body=self._listing(query), headers=b"Content-Type: application/xml\r\n")
        if comp == "batch":
            self.requests["Batch"] += 1
            return self._batch(body)
        if comp == "properties":
            return Answer(headers=b"x-ms-is-hns-enabled: false\r\n")
        if method == b"PUT":
            self.requests["Put"] += 1
            self.write(blob, body)
            return Answer(b"201 Created", headers=b'ETag: "0x1"\r\n')
        if method == b"DELETE":
            self.requests["Delete"] += 1
            return self._deleted(blob)
        self.requests["Head" if method == b"HEAD" else "Get"] += 1
        content = self.content_of(blob)
        if content is None:
            return _azure_error(b"404 The specified blob does not exist.", b"BlobNotFound")
        return Answer(body=content, headers=_FACTS)

    def _deleted(self, blob: bytes) -> Answer:
        if not self.exists(blob):
            return _azure_error(b"404 The specified blob does not exist.", b"BlobNotFound")
        self.delete(blob)
        return Answer(b"202 Accepted")

    def _listing(self, query: dict[str, str]) -> bytes:
        most = min(5000, int(query.get("maxresults", 5000)))
        walked = self.page(query, query.get("startFrom", ""), query.get("marker", ""), most)
        levels = b"".join(b"<BlobPrefix><Name>%b</Name></BlobPrefix>" % level for level in walked.levels)
        marker = b"<NextMarker>%b</NextMarker>" % quote(walked.last).encode() if walked.more else b"<NextMarker />"
        return (
            b'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="https://x/" ContainerName="x">'
            b"<Blobs>%b%b</Blobs>%b</EnumerationResults>" % (self.rows(walked, _BLOB), levels, marker)
        )

    def _batch(self, body: bytes) -> Answer:
        lines = []
        for number, _, path in _PART.findall(body):
            answer = self._deleted(_below(path.partition(b"?")[0], f"/{ACCOUNT}/{BUCKET}/"))
            lines += [b"--answer", b"Content-Type: application/http", b"Content-ID: " + number, b""]
            lines += [b"HTTP/1.1 " + answer.status, answer.headers.rstrip(b"\r\n"), b"", b""]
        content = b"\r\n".join([*lines, b"--answer--", b""])
        return Answer(b"202 Accepted", content, b"Content-Type: multipart/mixed; boundary=answer\r\n")


class GCSBucket(_VendorBucket):
    """A bucket of Google's."""

    def slow_down(self) -> Answer:
        return _gcs_error(429, "rateLimitExceeded")

    def respond(self, method: bytes, path: bytes, query: dict[str, str], body: bytes) -> Answer:
        if path.startswith(b"/batch/"):
            self.requests["Batch"] += 1
            return self._batch(body)
        if path.startswith(b"/upload/"):
            self.requests["Put"] += 1
            return self._uploaded(body)
        if path == f"/storage/v1/b/{BUCKET}/o".encode():
            return Answer(body=self._listing(query), headers=_JSON)
        if path == f"/storage/v1/b/{BUCKET}".encode():
            return Answer(body=b'{"kind": "storage#bucket"}', headers=_JSON)
        self.requests[{b"DELETE": "Delete", b"HEAD": "Head"}.get(method, "Get")] += 1
        return self._object(method, _below(path, f"/storage/v1/b/{BUCKET}/o/"), query)

    def _object(self, method: bytes, key: bytes, query: dict[str, str]) -> Answer:
        if not self.exists(key):
            return _gcs_error(404, "notFound")
        if method == b"DELETE":
            self.delete(key)
            return Answer(b"204 No Content")
        content = self.content_of(key) or b""
        if query.get("alt") == "media":
            return Answer(body=content)
        return Answer(body=json.dumps(_resource(key.decode(), len(content), content)).encode(), headers=_JSON)

    def _listing(self, query: dict[str, str]) -> bytes:
        most = min(1000, int(query.get("maxResults", 1000)))
        until = query.get("endOffset", "").encode()
        walked = self.page(query, query.get("startOffset", ""), query.get("pageToken", ""), most, until)
        row = _SHORT if "items(name,size,updated)" in query.get("fields", "") else _LONG
        items = self.rows(walked, row).removesuffix(b",")
        rest: dict[str, Any] = {"prefixes": [level.decode() for level in walked.levels]} if walked.levels else {}
        if walked.more:
            rest["nextPageToken"] = quote(walked.last)
        return b'{"items": [' + items + b"], " + json.dumps({"kind": "storage#objects", **rest}).encode()[1:]

    def _uploaded(self, body: bytes) -> Answer:
        boundary = body[: body.index(b"\r\n")]
        _, metadata, content, _ = body.split(boundary)
        name = json.loads(metadata.partition(b"\r\n\r\n")[2])["name"]
        content = content.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
        self.write(name.encode(), content)
        return Answer(body=json.dumps(_resource(name, len(content), content)).encode(), headers=_JSON)

    def _batch(self, body: bytes) -> Answer:
        lines = []
        for number, method, path in _PART.findall(body):
            plain, _, query = path.partition(b"?")
            answer = self._object(method, _below(plain, f"/storage/v1/b/{BUCKET}/o/"), dict(parse_qsl(query.decode())))
            number = b"<response-" + number.strip(b"<>") + b">"
            lines += [b"--answer", b"Content-Type: application/http", b"Content-ID: " + number, b""]
            lines += [b"HTTP/1.1 " + answer.status, b"Content-Type: application/json", b"", answer.body]
        content = b"\r\n".join([*lines, b"--answer--", b""])
        return Answer(body=content, headers=b"Content-Type: multipart/mixed; boundary=answer\r\n")


BUCKETS: dict[str, type[Bucket]] = {"azure": AzureBucket, "gcs": GCSBucket}


def _below(path: bytes, root: str) -> bytes:
    """Return the decoded rest of a path, which may be a whole URL."""
    return unquote_to_bytes(path.partition(root.encode())[2])


def _resource(name: str, size_bytes: int, content: bytes = b"") -> dict[str, Any]:
    """Return the facts of an object as Google writes them."""
    return {
        "kind": "storage#object",
        "id": f"{BUCKET}/{name}/1",
        "selfLink": f"https://www.googleapis.com/storage/v1/b/{BUCKET}/o/{quote(name, safe='')}",
        "mediaLink": f"https://storage.googleapis.com/download/storage/v1/b/{BUCKET}/o/{quote(name, safe='')}",
        "name": name,
        "bucket": BUCKET,
        "generation": "1",
        "metageneration": "1",
        "contentType": "application/octet-stream",
        "storageClass": "STANDARD",
        "size": str(size_bytes),
        "md5Hash": base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode(),
        "crc32c": "AAAAAA==",
        "etag": "CAE=",
        "timeCreated": _UPDATED,
        "updated": _UPDATED,
        "timeStorageClassUpdated": _UPDATED,
    }


def _row(item: dict[str, Any]) -> Row:
    before, _, rest = json.dumps(item).encode().partition(b"NAME")
    middle, _, after = rest.partition(b"SIZE")
    return before, middle, after + b","


_SHORT = _row({"name": "NAME", "size": "SIZE", "updated": _UPDATED})
_LONG = _row(
    {"name": "NAME", "size": "SIZE", **{k: v for k, v in _resource("x", 0).items() if k not in ("name", "size")}}
)


def _azure_error(status: bytes, code: bytes) -> Answer:
    content = b"<Error><Code>%b</Code><Message>simulated</Message></Error>" % code
    return Answer(status, content, b"x-ms-error-code: %b\r\nContent-Type: application/xml\r\n" % code)


def _gcs_error(status: int, reason: str) -> Answer:
    details = {"code": status, "message": "simulated", "errors": [{"domain": "global", "reason": reason}]}
    return Answer(b"%d %b" % (status, reason.encode()), json.dumps({"error": details}).encode(), _JSON)
