"""What Google reports of an object's content, uploads, and copies that the store makes itself.

Source: Google's documents, "Objects" (the resource), "Multipart uploads", "Resumable uploads" and "Objects: rewrite".
Each object has a CRC32C; composite objects have no MD5.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, BinaryIO
from urllib.parse import parse_qs, quote, urlsplit

from lakefs_gc.errors import ObjectNotFoundError, StorageError, StoreUnavailableError
from lakefs_gc.storage.base import ContentFacts
from lakefs_gc.storage.gcs.client import RESUME, UPLOAD_API, Answer, GCSClient
from lakefs_gc.storage.gcs.errors import IncompleteAnswerError, RefusedError

Resource = dict[str, Any]
"""The facts of an object, as the JSON API has them: ``checked_facts`` has made sure of those that are used."""

_FIELDS = "size,updated,generation,md5Hash,crc32c"
PART_BYTES = 8 * 1024**2
"""The size of the parts of an upload; Google requires a multiple of 256 KiB."""
_MD5_BYTES = 16
_TAKEN = 412
_GONE = 410
_RECEIVED = re.compile(r"bytes=0-([0-9]+)")


def checked_facts(document: Any) -> Resource:
    """Return a resource that has a size, a time and a generation. Raise ``IncompleteAnswerError`` for any other."""
    try:
        int(document["size"])
        int(document["generation"])
        updated_at(document)
    except (KeyError, TypeError, ValueError) as error:
        raise IncompleteAnswerError(
            "the answer is a success, but does not have the size, time and generation of the object"
        ) from error
    return dict(document)


def updated_at(facts: Mapping[str, Any]) -> datetime:
    """Return the time of the last change: lakeFS uses it, too, and it is never earlier than the upload."""
    return datetime.fromisoformat(facts["updated"]).astimezone(UTC)


def facts_path(client: GCSClient, name: str) -> str:
    """Return the path, with its query, of the facts of an object."""
    return f"{client.path(name)}?fields={quote(_FIELDS, safe='')}"


def find_object(client: GCSClient, name: str) -> Resource | None:
    """Return the facts of an object; None if it does not exist. Raise an error if its bucket does not exist."""
    try:
        return client.call(
            lambda: checked_facts(client.send("GET", facts_path(client, name)).document()), action="read", key=name
        )
    except ObjectNotFoundError as error:
        if error.facts.get("status") != 404:  # that of the bucket
            raise
        return None


def checksums_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the checksums of an object: ``crc32c`` in base64, and ``md5`` in hex unless it is composite."""
    checksums = {}
    if facts.get("crc32c"):
        checksums["crc32c"] = str(facts["crc32c"])
    try:
        digest = base64.b64decode(facts.get("md5Hash") or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        digest = b""
    if len(digest) == _MD5_BYTES:
        checksums["md5"] = digest.hex()
    return checksums


def facts_of(facts: Mapping[str, Any]) -> ContentFacts:
    """Return the size and the checksums of an object."""
    return ContentFacts(int(facts["size"]), checksums_of(facts))


def is_same(one: ContentFacts, other: ContentFacts) -> bool:
    """Return whether the store reports the same size, and the same checksum of a common algorithm, of both."""
    common = one.checksums.keys() & other.checksums.keys()
    return (
        bool(common)
        and one.size_bytes == other.size_bytes
        and all(one.checksums[algorithm] == other.checksums[algorithm] for algorithm in common)
    )


# -- uploads ---------------------------------------------------------------------------------------------------


def upload(client: GCSClient, name: str, data: bytes, *, if_absent: bool) -> bool:
    """Write an object in one request, with its MD5; return False if ``if_absent`` and another exists."""
    boundary = f"upload_{uuid.uuid4().hex}"
    md5 = hashlib.md5(data, usedforsecurity=False)
    metadata = {"name": name, "md5Hash": base64.b64encode(md5.digest()).decode()}
    body = b"".join(
        (
            f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n".encode(),
            json.dumps(metadata).encode(),
            f"\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n".encode(),
            data,
            f"\r\n--{boundary}--\r\n".encode(),
        )
    )
    headers = {"Content-Type": f"multipart/related; boundary={boundary}"}
    query = {"uploadType": "multipart", **_condition(if_absent)}
    facts = ContentFacts(len(data), {"md5": md5.hexdigest()})
    return _create(
        client,
        name,
        lambda: client.send("POST", _upload_path(client), query=query, headers=headers, data=body),
        facts,
        if_absent,
    )


def upload_stream(client: GCSClient, name: str, first: bytes, source: BinaryIO, *, if_absent: bool) -> bool:
    """Write an object in parts, which become an object with the last one; return False as ``upload`` does.

    ``first`` is the first part. Raise ``StoreUnavailableError`` if the store lost what it had received, and
    ``StorageError`` if it has other content than was sent; that object is deleted.
    """
    metadata = json.dumps({"name": name}).encode()
    headers = {"Content-Type": "application/json; charset=UTF-8", "X-Upload-Content-Type": "application/octet-stream"}
    query = {"uploadType": "resumable", **_condition(if_absent)}
    upload_id = ""

    def begin() -> Answer:
        nonlocal upload_id
        answer = client.send("POST", _upload_path(client), query=query, headers=headers, data=metadata)
        # Of the URL only the id is used, so that no other host gets a token or content.
        upload_id = "".join(parse_qs(urlsplit(answer.headers.get("Location", "")).query).get("upload_id", []))
        if not upload_id:
            raise IncompleteAnswerError("the store's answer does not name the upload that it began")
        return answer

    if not _create(client, name, begin, None, if_absent):
        return False
    md5, sent = hashlib.md5(usedforsecurity=False), 0
    done: Answer | None = None
    for part, is_last in _parts(first, source):
        md5.update(part)
        try:
            done = _Part(client, name, upload_id, part, sent, is_last=is_last).send()
        except _TakenError:
            return False
        sent += len(part)
    facts = ContentFacts(sent, {"md5": md5.hexdigest()})
    with _explained(client, name):
        written = checked_facts(done.document()) if done else {}
    if not written or not is_same(facts_of(written), facts):
        if written:
            condition = {"ifGenerationMatch": written["generation"]}
            client.call(lambda: client.send("DELETE", client.path(name), query=condition), action="delete", key=name)
        raise StorageError(
            f"{client.where(name)}: the store does not have the content that was sent",
            remedy="Check whether a proxy in front of the store changes requests, then run again",
        )
    return True


@contextmanager
def _explained(client: GCSClient, name: str) -> Iterator[None]:
    """Raise the error of a call for an answer that is incomplete although the call has ended."""
    try:
        yield
    except IncompleteAnswerError as error:
        raise client.explain(error, action="write", key=name) from error


def _parts(first: bytes, source: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Yield the parts of a stream, and whether each is the last: a part is sent after the next one has been read."""
    part = first
    while following := read_part(source):
        yield part, False
        part = following
    yield part, True


def read_part(source: BinaryIO) -> bytes:
    """Read a whole part: a stream may return less than requested before its end."""
    pieces, missing = [], PART_BYTES
    while missing and (piece := source.read(missing)):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


class _TakenError(Exception):
    """Another object exists at the end of an upload that must not replace it."""


class _Part:
    """One part of an upload, from the byte ``start`` on; a part that the store has received partly is continued."""

    def __init__(self, client: GCSClient, name: str, upload_id: str, data: bytes, start: int, *, is_last: bool) -> None:
        self._client, self._name, self._data, self._start = client, name, data, start
        self._query = {"uploadType": "resumable", "upload_id": upload_id}
        self._total = str(start + len(data)) if is_last else "*"
        self._is_last = is_last
        self._is_unknown = False
        self._received = start

    def send(self) -> Answer | None:
        """Send the part; return the answer with the resource after the last one. Raise ``_TakenError``."""
        answer = self._client.call(self._send, action="write", key=self._name)
        if answer.status == RESUME:
            return None
        if not self._is_last:
            raise StorageError(f"{self._client.where(self._name)}: the store ended an upload before its last part")
        return answer

    def _send(self) -> Answer:
        try:
            if self._is_unknown:
                state = self._put(b"", f"bytes */{self._total}")
                if state.status != RESUME:
                    return state
                self._take(state)
            self._is_unknown = True
            answer: Answer | None = None
            while answer is None or (answer.status == RESUME and self._received < self._end):
                before = self._received
                rest = self._data[before - self._start :]
                answer = self._put(rest, f"bytes {before}-{self._end - 1}/{self._total}")
                if answer.status == RESUME:
                    self._take(answer)
                    if self._received == before:  # a try like any other: there is a limit, and a pause
                        raise IncompleteAnswerError("the store received nothing of a part of an upload")
            if answer.status == RESUME and self._is_last:
                raise IncompleteAnswerError("the store asks for more of an upload that is complete")
        except RefusedError as error:
            if error.status == _TAKEN:
                raise _TakenError from None
            if error.status in (404, _GONE):
                raise StoreUnavailableError(
                    f"{self._client.where(self._name)}: the store lost an upload", remedy="Run again"
                ) from error
            raise
        return answer

    @property
    def _end(self) -> int:
        return self._start + len(self._data)

    def _put(self, data: bytes, content_range: str) -> Answer:
        path = _upload_path(self._client)
        headers = {"Content-Range": content_range}
        return self._client.send("PUT", path, query=self._query, headers=headers, data=data, is_part=True)

    def _take(self, answer: Answer) -> None:
        match = _RECEIVED.fullmatch(answer.headers.get("Range", ""))
        received = int(match[1]) + 1 if match else 0
        if not self._start <= received <= self._end:
            raise StoreUnavailableError(
                f"{self._client.where(self._name)}: the store lost a part of an upload", remedy="Run again"
            )
        self._received = received


def _upload_path(client: GCSClient) -> str:
    return f"{UPLOAD_API}/b/{client.folder.bucket}/o"


def _condition(if_absent: bool) -> dict[str, str]:
    return {"ifGenerationMatch": "0"} if if_absent else {}


def _create(client: GCSClient, name: str, send: Any, facts: ContentFacts | None, if_absent: bool) -> bool:
    """Send the request that creates an object; return False if another exists and ``if_absent`` is set."""
    tries = 0

    def create() -> bool:
        nonlocal tries
        tries += 1
        try:
            answer = send()
        except RefusedError as error:
            if not (if_absent and error.status == _TAKEN):
                raise
            return False
        if facts is not None and not is_same(facts_of(checked_facts(answer.document())), facts):
            raise IncompleteAnswerError("the answer is a success, but does not have the content that was sent")
        return True

    if client.call(create, action="write", key=name):
        return True
    if tries == 1 or facts is None:
        return False
    # After a broken connection the existing object may be from an earlier try.
    written = find_object(client, name)
    return written is not None and is_same(facts_of(written), facts)


# -- copies ----------------------------------------------------------------------------------------------------


def copy_object(source: GCSClient, name: str, target: GCSClient, target_name: str, *, if_absent: bool) -> bool:
    """Copy an object by the store; return False if ``if_absent`` is set and another object exists.

    Raise ``ObjectNotFoundError`` for a source that does not exist, and ``StorageError`` if the copy differs from it.
    """
    facts = source.call(
        lambda: checked_facts(source.send("GET", facts_path(source, name)).document()), action="read", key=name
    )
    # A repeated backup finds most of its copies.
    if if_absent and find_object(target, target_name) is not None:
        return False
    path = f"{source.path(name)}/rewriteTo/b/{target.folder.bucket}/o/{quote(target_name, safe='')}"
    query = {"sourceGeneration": facts["generation"], **_condition(if_absent)}
    tries = 0

    def rewrite() -> Resource | None:
        nonlocal tries
        tries += 1
        try:
            return source.send("POST", path, query=query).document()
        except RefusedError as error:
            if if_absent and error.status == _TAKEN:
                return None
            raise

    while True:  # a large object is copied in steps
        answer = source.call(rewrite, action="write", key=target_name)
        if answer is None:
            written = find_object(target, target_name) if tries > 1 else None
            return written is not None and is_same(facts_of(written), facts_of(facts))
        if answer.get("done"):
            break
        token = answer.get("rewriteToken")
        if not token:
            raise StorageError(f"{target.where(target_name)}: the store's answer to a copy is incomplete")
        query["rewriteToken"] = str(token)
    with _explained(target, target_name):
        copied = facts_of(checked_facts(answer.get("resource")))
    if not is_same(copied, facts_of(facts)):
        raise StorageError(f"{target.where(target_name)}: the copy differs from the object {source.where(name)}")
    return True
