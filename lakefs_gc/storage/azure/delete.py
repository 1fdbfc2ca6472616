"""Deletes on Azure: in batches, with the account's own answer for each blob.

Source: Microsoft Learn, "Blob Batch" and "Delete Blob". A batch has at most 256 deletes. Its answer has a part for
each, which is matched by its id: Azure may answer in any order.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus

from azure.core.pipeline.transport import HttpRequest

from lakefs_gc.errors import StoreUnavailableError
from lakefs_gc.storage.azure.client import Answer, AzureClient, TooLateError
from lakefs_gc.storage.azure.errors import (
    NOT_ABOUT_KEYS,
    SLOW_DOWN_CODES,
    IncompleteAnswerError,
    RefusedError,
    describe,
    is_retryable,
    refused,
)
from lakefs_gc.storage.base import Deletion, DeletionOutcome
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.delete_window import NOT_TRIED, DeleteWindow

log = logging.getLogger(__name__)

MAX_KEYS = 256
"""Maximum number of deletes in one batch."""

_SINGLE_DELETES_AT_ONCE = 16
_NO_ANSWER = "the store's answer does not mention the key"
_WRITTEN_AGAIN = "written again since the mark"
_LOCKED = re.compile("BlobImmutableDueTo")
"""Codes of a legal hold and of an immutability policy."""
_CHANGED_CODES = frozenset({"ConditionNotMet", "TargetConditionNotMet"})
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})")


@dataclass(frozen=True)
class Target:
    """A blob to delete. ``e_tag`` or ``unmodified_since``: only if it is still the same, or was not written later."""

    name: str
    e_tag: str = ""
    unmodified_since: datetime | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Return the condition of the delete."""
        if self.e_tag:
            return {"If-Match": f'"{self.e_tag}"'}
        if self.unmodified_since:
            return {"If-Unmodified-Since": format_datetime(self.unmodified_since.astimezone(UTC), usegmt=True)}
        return {}


def delete_targets(
    azure: AzureClient, targets: Sequence[Target], window: DeleteWindow | None = None
) -> dict[str, Deletion]:
    """Delete blobs; return one outcome for each name.

    - ``DELETED``: the account answered that it deleted the blob, or that it does not exist.
    - ``NEWER``: the blob does not fulfil its condition. ``LOCKED``: a legal hold or an immutability policy protects it.
    - ``FAILED``: any other answer, or a target that the answer to a batch does not mention.
    - Targets that failed temporarily (ServerBusy, InternalError) are tried again after a pause.
    - If the account refuses a whole batch, each of its targets is deleted in its own request.
    - Once ``window`` is over, no try is sent; the remaining targets are failures.

    A blob with snapshots is a failure: they are kept. Raise ``AccessDeniedError``, ``ObjectNotFoundError`` (the
    container) or ``StoreUnavailableError`` for a reason that is the same for any choice of names.
    """
    outcomes: dict[str, Deletion] = {}
    distinct = list({target.name: target for target in targets}.values())
    for start in range(0, len(distinct), MAX_KEYS):
        outcomes.update(_delete_batch(azure, distinct[start : start + MAX_KEYS], window))
    return outcomes


def _delete_batch(azure: AzureClient, targets: list[Target], window: DeleteWindow | None) -> dict[str, Deletion]:
    outcomes: dict[str, Deletion] = {}
    failures = 0
    while True:
        if len(targets) == 1 or azure.refuses_batches:
            return outcomes | _delete_singly(azure, targets, window)
        try:
            answers = _request(azure, targets, window)
        except TooLateError as late:
            return outcomes | {target.name: _not_tried(outcomes, target, late.error) for target in targets}
        if answers is None:  # refused as a whole
            return outcomes | _delete_singly(azure, targets, window)
        again = []
        for target in targets:
            answer = answers.get(target.name)
            if answer is None and window:
                window.unanswered = True
            if answer is not None and answer.status >= 500 and answer.code not in SLOW_DOWN_CODES and window:
                window.unanswered = True  # it may still execute the delete
            if answer is not None and is_retryable(answer):
                again.append(target)
                azure.slow_downs += answer.code in SLOW_DOWN_CODES
            outcomes[target.name] = _outcome(azure, target, answer)
        targets, failures = again, failures + 1
        if not targets or failures >= azure.retry.tries:
            return outcomes
        azure.pause(failures, f"azure: delete of {len(targets)} blobs: {outcomes[targets[0].name].error}")


def _not_tried(outcomes: dict[str, Deletion], target: Target, error: str) -> Deletion:
    earlier = outcomes.get(target.name)
    error = (earlier.error if earlier else "") or error
    return Deletion.of(target.name, f"{NOT_TRIED}. The previous try ended with {error}" if error else NOT_TRIED)


def _outcome(azure: AzureClient, target: Target, answer: RefusedError | None) -> Deletion:
    """Return the outcome of one delete; ``answer`` has status 202 or an error, and is None if there is none."""
    if answer is None:
        return Deletion.of(target.name, _NO_ANSWER)
    if answer.status == HTTPStatus.ACCEPTED or (answer.status, answer.code) == (404, "BlobNotFound"):
        return Deletion.of(target.name, "")
    if answer.code in NOT_ABOUT_KEYS:
        raise azure.explain(answer, action="delete", key=target.name)
    error = describe(answer)
    if _LOCKED.match(answer.code):
        return Deletion(target.name, DeletionOutcome.LOCKED, error)
    if answer.status == 412 and answer.code in _CHANGED_CODES and target.headers:
        if azure.head_or_none(target.name) is None:  # a condition on a blob that does not exist is not fulfilled
            return Deletion.of(target.name, "")
        return Deletion(target.name, DeletionOutcome.NEWER, _WRITTEN_AGAIN)
    if answer.code == "SnapshotsPresent":
        error += ". Delete its snapshots manually, then sweep again"
    return Deletion.of(target.name, error)


# -- one request for each blob ---------------------------------------------------------------------------------


def _delete_singly(azure: AzureClient, targets: list[Target], window: DeleteWindow | None) -> dict[str, Deletion]:
    """Delete each target in its own request. Waits for all of them, also if one raises: none runs on unrecorded."""
    deleted = map_unordered(
        lambda target: _delete_one(azure, target, window), targets, _SINGLE_DELETES_AT_ONCE, wait_for_all=True
    )
    return {target.name: deletion for target, deletion in deleted}


def _delete_one(azure: AzureClient, target: Target, window: DeleteWindow | None) -> Deletion:
    def delete() -> RefusedError:
        try:
            answer = azure.send("DELETE", target.name, headers=target.headers)
        except RefusedError as error:
            if is_retryable(error) or azure.may_refuse_version(error):
                raise
            return error
        return RefusedError(answer.status, "", "")

    try:
        answer = azure.call(delete, action="delete", key=target.name, window=window)
    except TooLateError as late:
        return _not_tried({}, target, late.error)
    except StoreUnavailableError as error:
        return Deletion.of(target.name, error.message)
    return _outcome(azure, target, answer)


# -- batches ---------------------------------------------------------------------------------------------------


def _request(azure: AzureClient, targets: list[Target], window: DeleteWindow | None) -> dict[str, RefusedError] | None:
    """Return the account's answer for each name that it mentions; None if it refuses the whole batch."""

    def send() -> dict[str, RefusedError] | None:
        boundary = f"batch_{uuid.uuid4()}"
        try:
            answer = azure.send(
                "POST",
                query={"restype": "container", "comp": "batch"},
                headers={"Content-Type": f"multipart/mixed; boundary={boundary}"},
                data=_body(azure, targets, boundary),
            )
            return _answers(answer, targets)
        except RefusedError as error:
            if is_retryable(error) or azure.may_refuse_version(error):
                raise
            # Single deletes show whether the account refuses the batch, or the credentials, or the container.
            log.warning("batch of deletes refused: keys=%d answer=%s", len(targets), describe(error))
            azure.refuses_batches = True
            return None

    return azure.call(send, action="delete", key=targets[0].name, window=window)


def _body(azure: AzureClient, targets: list[Target], boundary: str) -> bytes:
    """Return the body of a batch, in which each delete has its own signature, and its number as its id."""
    lines = []
    for number, target in enumerate(targets):
        date = format_datetime(datetime.now(UTC), usegmt=True)
        request = azure.signed(
            HttpRequest("DELETE", azure.path(target.name), headers={**target.headers, "x-ms-date": date})
        )
        lines += [
            f"--{boundary}",
            "Content-Type: application/http",
            "Content-Transfer-Encoding: binary",
            f"Content-ID: {number}",
            "",
            f"DELETE {request.url} HTTP/1.1",
            *(f"{name}: {value}" for name, value in request.headers.items()),
            "Content-Length: 0",
            "",
            "",
        ]
    return "\r\n".join([*lines, f"--{boundary}--", ""]).encode()


def _answers(answer: Answer, targets: list[Target]) -> dict[str, RefusedError]:
    """Match the parts of an answer with the names, by the id of each part.

    Raise ``RefusedError`` for an answer with a single part and without an id: that is the refusal of the whole batch.
    """
    separator, _, rest = answer.body.lstrip(b"\r\n").partition(b"\r\n")
    parts = re.split(rb"\r\n" + re.escape(separator) + rb"(?=--|\r\n)", rest)
    if not separator.startswith(b"--") or not parts[-1].startswith(b"--"):
        raise IncompleteAnswerError("the answer to a batch of deletes is cut, or not multipart")
    answers: dict[str, RefusedError] = {}
    for part in parts[:-1]:
        number, error = _part(part)
        if number is None and len(parts) == 2 and error.status >= 400:
            raise error
        if number is None or number >= len(targets) or targets[number].name in answers:
            raise IncompleteAnswerError("a part of the answer to a batch of deletes has no valid Content-ID")
        answers[targets[number].name] = error
    return answers


def _part(part: bytes) -> tuple[int | None, RefusedError]:
    """Return the id of a part, or None, and its answer."""
    envelope, _, content = part.strip(b"\r\n").replace(b"\r\n", b"\n").partition(b"\n\n")
    head, _, body = content.partition(b"\n\n")
    status = _STATUS_LINE.match(head)
    if status is None:
        raise IncompleteAnswerError("a part of the answer to a batch of deletes has no status")
    number = _headers(envelope).get("content-id", "")
    code = _headers(head).get("x-ms-error-code", "")
    return int(number) if number.isdecimal() else None, refused(int(status[1]), code, body.strip())


def _headers(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode("latin-1").split("\n"))
    return {name.strip().lower(): value.strip() for name, _, value in lines}
