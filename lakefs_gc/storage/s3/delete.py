"""Bulk deletes on S3, with the store's own answer for each key."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from lakefs_gc.errors import StorageError
from lakefs_gc.storage.delete_window import NOT_TRIED, DeleteWindow
from lakefs_gc.storage.s3.client import RetryingClient, TooLateError
from lakefs_gc.storage.s3.errors import (
    NOT_ABOUT_KEYS,
    RETRYABLE_CODES,
    describe,
    error_code,
    http_status,
    is_retryable,
)

log = logging.getLogger(__name__)

MAX_KEYS = 1000
"""Maximum number of keys in one DeleteObjects request (AWS S3 API reference)."""

_NOT_FOR_XML = re.compile("[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_MISSING_KEY_CODES = frozenset({"NoSuchKey", "NoSuchVersion"})
_GONE_CODES = _MISSING_KEY_CODES | {"404"}  # for a key of a bulk delete
_NO_ANSWER = "the store's answer does not mention the key"


class Target(NamedTuple):
    """The object of one delete: a key, or with ``version`` one of its versions or delete markers, permanently."""

    name: str
    version: str = ""


def delete_keys(s3: RetryingClient, names: Sequence[str], window: DeleteWindow | None = None) -> dict[str, str]:
    """Delete keys as ``delete_targets`` does; return the error for each name, or ''."""
    errors = delete_targets(s3, map(Target, names), window)
    return {target.name: error for target, error in errors.items()}


def delete_targets(
    s3: RetryingClient, targets: Iterable[Target], window: DeleteWindow | None = None
) -> dict[Target, str]:
    """Delete targets; return the store's error for each target, or '' if it is deleted.

    - A name with a control character, which XML cannot contain, is deleted in its own request.
    - If the store refuses a whole request as malformed, it is halved until the target that causes it is alone.
    - Targets that failed temporarily (SlowDown, InternalError) are tried again after a pause.
    - A target that the answer does not mention is a failure.
    - Once ``window`` is over, no try of the whole request or of a half is sent; the remaining targets are failures.

    Raise ``AccessDeniedError``, ``ObjectNotFoundError`` (the bucket) or ``StoreUnavailableError`` if a whole request
    fails for a reason that is the same for any choice of names.
    """
    errors: dict[Target, str] = {}
    plain = []
    for target in dict.fromkeys(targets):
        if _NOT_FOR_XML.search(target.name):
            errors[target] = _delete_one(s3, target, window)
        else:
            plain.append(target)
    for start in range(0, len(plain), MAX_KEYS):
        errors.update(_delete_batch(s3, plain[start : start + MAX_KEYS], window))
    return errors


def _delete_batch(s3: RetryingClient, targets: list[Target], window: DeleteWindow | None) -> dict[Target, str]:
    errors: dict[Target, str] = {}
    failures = 0
    while True:
        try:
            answer = _request(s3, targets, window)
        except TooLateError as late:
            return errors | {target: _not_tried(errors.get(target, "") or late.error) for target in targets}
        if answer is None:  # refused as a whole
            return errors | _delete_halves(s3, targets, window)
        errors.update({target: error for target, (_, error) in answer.items()})
        targets = [target for target, (code, _) in answer.items() if code in RETRYABLE_CODES]
        failures += 1
        if not targets or failures >= s3.retry.tries:
            return errors
        s3.pause(failures, f"s3:DeleteObject of {len(targets)} keys: {errors[targets[0]]}")


def _not_tried(error: str) -> str:
    return f"{NOT_TRIED}. The previous try ended with {error}" if error else NOT_TRIED


def _request(
    s3: RetryingClient, targets: list[Target], window: DeleteWindow | None
) -> dict[Target, tuple[str, str]] | None:
    """Return the code and message for each target ('' and '' if it is deleted); None if the store refuses the batch."""
    request = {"Objects": [_parameters(target) for target in targets], "Quiet": False}

    def delete() -> dict[str, Any] | None:
        try:
            answer: dict[str, Any] = s3.client.delete_objects(Bucket=s3.bucket, Delete=request)
        except ClientError as error:
            if 400 <= http_status(error) < 500 and not _is_about_request(error):
                log.warning("bulk delete refused: keys=%d answer=%s", len(targets), describe(error))
                return None
            raise
        return answer

    answer = s3.call(delete, action=_action(targets[0]), key=targets[0].name, window=window)
    if answer is None:
        return None
    of_versions = bool(targets[0].version)
    failed = {_mentioned(entry, of_versions): entry for entry in answer.get("Errors", [])}
    deleted = {_mentioned(entry, of_versions) for entry in answer.get("Deleted", [])}
    outcomes = {}
    for target in targets:
        if target in failed:  # takes precedence over a mention as deleted
            code, message = str(failed[target].get("Code", "")), str(failed[target].get("Message", ""))
            text = ": ".join(part for part in (code, message) if part) or "the store gave no reason"
            outcomes[target] = ("", "") if code in _GONE_CODES else (code, text)
        else:
            outcomes[target] = ("", "" if target in deleted else _NO_ANSWER)
    if window and ("", _NO_ANSWER) in outcomes.values():
        window.unanswered = True
    return outcomes


def _parameters(target: Target) -> dict[str, str]:
    return {"Key": target.name, "VersionId": target.version} if target.version else {"Key": target.name}


def _mentioned(entry: dict[str, Any], of_versions: bool) -> Target:
    """Return the target of an entry of the answer.

    After a plain delete a store may name the version that remains; for a deleted delete marker some stores name only
    ``DeleteMarkerVersionId``.
    """
    version = entry.get("VersionId") or entry.get("DeleteMarkerVersionId", "")
    return Target(entry.get("Key", ""), version if of_versions else "")


def _action(target: Target) -> str:
    return "DeleteObjectVersion" if target.version else "DeleteObject"


def _is_about_request(error: ClientError) -> bool:
    """Return whether smaller requests would fail in the same way: credentials, permissions, bucket, region, clock."""
    return error_code(error) in NOT_ABOUT_KEYS or http_status(error) in (401, 403, 404, 405) or is_retryable(error)


def _delete_halves(s3: RetryingClient, targets: list[Target], window: DeleteWindow | None) -> dict[Target, str]:
    if len(targets) == 1:
        return {targets[0]: _delete_one(s3, targets[0], window)}
    middle = len(targets) // 2
    return _delete_batch(s3, targets[:middle], window) | _delete_batch(s3, targets[middle:], window)


def _delete_one(s3: RetryingClient, target: Target, window: DeleteWindow | None) -> str:
    """Delete one target with DeleteObject, which has the name in its URL; return its error, or ''."""
    try:
        answer = s3.call(
            lambda: s3.client.delete_object(Bucket=s3.bucket, **_parameters(target)),
            action=_action(target),
            key=target.name,
            window=window,
        )
    except TooLateError as late:
        return _not_tried(late.error)
    except StorageError as error:
        code = str(error.facts.get("code", ""))
        if code in NOT_ABOUT_KEYS:
            raise
        if code in _MISSING_KEY_CODES:
            return ""
        if window and error.facts.get("status") == 404:  # without the store's words it may be that of a proxy
            window.unanswered = True
        return error.message
    if answer["ResponseMetadata"].get("HTTPStatusCode") != HTTPStatus.NO_CONTENT:
        if window:
            window.unanswered = True
        return "the answer to the delete is not the store's, which answers with 204"  # but a proxy's
    return ""
