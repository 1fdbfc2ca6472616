"""Bulk delete on S3, with an outcome for each key that the store itself gave."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from botocore.exceptions import ClientError

from lakefs_gc.errors import StorageError
from lakefs_gc.storage.s3_client import RetryingClient
from lakefs_gc.storage.s3_errors import (
    NOT_ABOUT_KEYS,
    RETRYABLE_CODES,
    describe,
    error_code,
    http_status,
    is_retryable,
)

log = logging.getLogger(__name__)

MAX_KEYS = 1000
"""Most keys of one DeleteObjects request (AWS S3 API reference)."""

_NOT_FOR_XML = re.compile("[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_GONE_CODES = frozenset({"NoSuchKey", "NoSuchVersion", "404"})
_NO_ANSWER = "the store's answer does not mention the key"


def delete_keys(s3: RetryingClient, names: Sequence[str]) -> dict[str, str]:
    """Delete, and say for each name the store's error, or '' when it is gone.

    - A name with a control character, which XML does not carry, gets a request of its own.
    - When the store refuses a whole request as malformed, it is halved until the name that spoils it is
      alone.
    - Names that the store failed for the moment (SlowDown, InternalError) are tried again after a pause.
    - A name that the answer does not mention is a failure.

    Raises ``AccessDeniedError``, ``ObjectNotFoundError`` (the bucket) or ``StoreUnavailableError`` when a
    whole request fails for a reason that no choice of names would change.
    """
    errors: dict[str, str] = {}
    plain = []
    for name in dict.fromkeys(names):
        if _NOT_FOR_XML.search(name):
            errors[name] = _delete_one(s3, name)
        else:
            plain.append(name)
    for start in range(0, len(plain), MAX_KEYS):
        errors.update(_delete_batch(s3, plain[start : start + MAX_KEYS]))
    return errors


def _delete_batch(s3: RetryingClient, names: list[str]) -> dict[str, str]:
    errors: dict[str, str] = {}
    failures = 0
    while True:
        answer = _request(s3, names)
        if answer is None:  # refused as a whole
            return errors | _delete_halves(s3, names)
        errors.update({name: error for name, (_, error) in answer.items()})
        names = [name for name, (code, _) in answer.items() if code in RETRYABLE_CODES]
        failures += 1
        if not names or failures >= s3.retry.tries:
            return errors
        s3.pause(failures, f"s3:DeleteObject of {len(names)} keys: {errors[names[0]]}")


def _request(s3: RetryingClient, names: list[str]) -> dict[str, tuple[str, str]] | None:
    """Code and message for each name ('' and '' when it is gone); None if the store refuses these names
    together.
    """
    request = {"Objects": [{"Key": name} for name in names], "Quiet": False}

    def delete() -> dict[str, Any] | None:
        try:
            answer: dict[str, Any] = s3.client.delete_objects(Bucket=s3.bucket, Delete=request)
        except ClientError as error:
            if 400 <= http_status(error) < 500 and not _is_about_request(error):
                log.warning("bulk delete refused: keys=%d answer=%s", len(names), describe(error))
                return None
            raise
        return answer

    answer = s3.call(delete, action="DeleteObject", key=names[0])
    if answer is None:
        return None
    failed = {entry.get("Key", ""): entry for entry in answer.get("Errors", [])}
    deleted = {entry.get("Key", "") for entry in answer.get("Deleted", [])}
    outcomes = {}
    for name in names:
        if name in failed:  # wins over a mention as deleted
            code, message = str(failed[name].get("Code", "")), str(failed[name].get("Message", ""))
            text = ": ".join(part for part in (code, message) if part) or "the store names no reason"
            outcomes[name] = ("", "") if code in _GONE_CODES else (code, text)
        else:
            outcomes[name] = ("", "" if name in deleted else _NO_ANSWER)
    return outcomes


def _is_about_request(error: ClientError) -> bool:
    """True when smaller requests would fail in the same way: credentials, rights, bucket, region, clock."""
    return error_code(error) in NOT_ABOUT_KEYS or http_status(error) in (401, 403, 404, 405) or is_retryable(error)


def _delete_halves(s3: RetryingClient, names: list[str]) -> dict[str, str]:
    if len(names) == 1:
        return {names[0]: _delete_one(s3, names[0])}
    middle = len(names) // 2
    return _delete_batch(s3, names[:middle]) | _delete_batch(s3, names[middle:])


def _delete_one(s3: RetryingClient, name: str) -> str:
    """DeleteObject, which carries the name in its URL; the error for this name, or ''."""
    try:
        s3.call(lambda: s3.client.delete_object(Bucket=s3.bucket, Key=name), action="DeleteObject", key=name)
    except StorageError as error:
        code = str(error.facts.get("code", ""))
        if code in NOT_ABOUT_KEYS:
            raise
        return "" if code in _GONE_CODES else error.message
    return ""
