"""Batches of requests: up to 100 of them in one, each with its own answer.

Source: Google's documents, "Sending batch requests". Answers are matched with the requests by their ids: Google may
answer in any order.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus

from lakefs_gc.storage.delete_window import DeleteWindow
from lakefs_gc.storage.gcs.client import BATCH_API, Answer, GCSClient, is_success
from lakefs_gc.storage.gcs.errors import IncompleteAnswerError, RefusedError, is_retryable, refused

MAX_REQUESTS = 100
"""Maximum number of requests in one batch."""

_NO_BATCHES = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED})
_STATUS_LINE = re.compile(rb"HTTP/[0-9.]+ ([0-9]{3})")
_NUMBER = re.compile(r"<[^<>]*\+([0-9]{1,3})>")


@dataclass(frozen=True)
class Part:
    """The answer to one request of a batch: its body, or the error."""

    status: int
    body: bytes
    error: RefusedError | None


def send_batch(
    client: GCSClient, requests: Sequence[tuple[str, str]], *, action: str, key: str, window: DeleteWindow | None = None
) -> dict[int, Part] | None:
    """Return the answers to requests (method, path with query) by their number; some may be missing.

    Return None if the store refuses the whole batch. Raise the errors of ``GCSClient.call``.
    """

    def send() -> dict[int, Part] | None:
        boundary = f"batch_{uuid.uuid4().hex}"
        try:
            answer = client.send(
                "POST",
                BATCH_API,
                headers={"Content-Type": f"multipart/mixed; boundary={boundary}"},
                data=_body(requests, boundary),
            )
        except RefusedError as error:
            if is_retryable(error) or error.status == HTTPStatus.UNAUTHORIZED:
                raise
            client.has_no_batches |= error.status in _NO_BATCHES
            return None
        return _parts(answer, len(requests))

    return client.call(send, action=action, key=key, window=window)


def _body(requests: Sequence[tuple[str, str]], boundary: str) -> bytes:
    lines = []
    for number, (method, path) in enumerate(requests):
        lines += [
            f"--{boundary}",
            "Content-Type: application/http",
            "Content-Transfer-Encoding: binary",
            f"Content-ID: <{boundary}+{number}>",
            "",
            f"{method} {path} HTTP/1.1",
            "",
            "",
        ]
    return "\r\n".join([*lines, f"--{boundary}--", ""]).encode()


def _parts(answer: Answer, count: int) -> dict[int, Part]:
    envelope = Message()
    envelope["Content-Type"] = answer.headers.get("Content-Type", "")
    boundary = envelope.get_param("boundary")
    if envelope.get_content_maintype() != "multipart" or not isinstance(boundary, str):
        raise IncompleteAnswerError("the answer to a batch is not multipart")
    sections = re.split(rb"(?:\A|\r\n)--" + re.escape(boundary.encode()) + rb"(?=--|\r\n)", answer.body)
    if len(sections) < 2 or not sections[-1].startswith(b"--"):
        raise IncompleteAnswerError("the answer to a batch is cut")
    parts: dict[int, Part] = {}
    for section in sections[1:-1]:
        number, part = _part(section)
        if number >= count or number in parts:
            raise IncompleteAnswerError("a part of the answer to a batch has no valid Content-ID")
        parts[number] = part
    return parts


def _part(section: bytes) -> tuple[int, Part]:
    """Return the number and the answer of one part."""
    envelope, _, content = section.removeprefix(b"\r\n").partition(b"\r\n\r\n")
    head, _, body = content.partition(b"\r\n\r\n")
    status = _STATUS_LINE.match(head)
    number = _NUMBER.fullmatch(_content_id(envelope))
    if status is None or number is None:
        raise IncompleteAnswerError("a part of the answer to a batch has no status or no Content-ID")
    code = int(status[1])
    return int(number[1]), Part(code, body, None if is_success(code) else refused(code, body))


def _content_id(envelope: bytes) -> str:
    lines = (line.partition(":") for line in envelope.decode("latin-1").split("\r\n"))
    return next((value.strip() for name, _, value in lines if name.strip().lower() == "content-id"), "")
