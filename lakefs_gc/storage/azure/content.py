"""What Azure reports of a blob's content, and copies that the account makes itself.

Source: Microsoft Learn, "Get Blob Properties", "Put Block List" and "Copy Blob". The service computes the MD5 of a blob
that is written in one request. For one that is written in blocks it keeps what the writer declares: lakefs-gc and the
vendor's tools declare the MD5 of what they sent. Appending does not change it, so it counts for block blobs only.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping

from lakefs_gc.errors import StorageError
from lakefs_gc.storage.azure.client import AzureClient
from lakefs_gc.storage.azure.errors import RefusedError
from lakefs_gc.storage.base import ContentFacts

_MD5_BYTES = 16
_PENDING_SECONDS = 60.0
_POLL_SECONDS = 0.5


def checksums_of(head: Mapping[str, str]) -> dict[str, str]:
    """Return the MD5 in the headers of a blob, if it is certain to cover the whole content."""
    text = head.get("Content-MD5", "")
    if not text or head.get("x-ms-blob-type") != "BlockBlob" or head.get("x-ms-copy-status", "success") != "success":
        return {}
    try:
        digest = base64.b64decode(text, validate=True)
    except binascii.Error:
        return {}
    return {"md5": digest.hex()} if len(digest) == _MD5_BYTES else {}


def facts_of(head: Mapping[str, str]) -> ContentFacts:
    """Return the size and the checksums in the headers of a blob."""
    return ContentFacts(int(head["Content-Length"]), checksums_of(head))


def is_same(one: ContentFacts, other: ContentFacts) -> bool:
    """Return whether the account reports the same size and MD5 of both; False if the MD5 of one is unknown."""
    return bool(one.checksums) and one == other


def copy_blob(
    source: AzureClient, name: str, head: Mapping[str, str], target: AzureClient, target_name: str, *, if_absent: bool
) -> bool | None:
    """Copy a blob within one account; return False if ``if_absent`` is set and another blob exists.

    ``head`` are the headers of the source. Return None, with nothing written, if the account cannot read the source
    (because of its firewall, or a signature for other addresses), or does not complete the copy in a minute. Raise
    ``StorageError`` if the source changes meanwhile.
    """
    url = source.url(name)
    headers = {
        "x-ms-copy-source": f"{url}?{source.sas}" if source.sas else url,
        "x-ms-source-if-match": head["ETag"],
        **({"If-None-Match": "*"} if if_absent else {}),
    }

    tries, is_unreadable = 0, False

    def start() -> Mapping[str, str] | None:
        nonlocal tries, is_unreadable
        tries += 1
        try:
            return target.send("PUT", target_name, headers=headers).headers
        except RefusedError as error:
            is_unreadable = error.code == "CannotVerifyCopySource"
            if is_unreadable or (if_absent and is_taken(error)):
                return None
            raise

    started = target.call(start, action="write", key=target_name)
    if is_unreadable:
        return None
    if started is None:
        # After a broken connection the existing blob may be from an earlier try.
        return tries > 1 and is_same(facts_of(target.head(target_name)), facts_of(head))
    copy, status = started.get("x-ms-copy-id", ""), started.get("x-ms-copy-status", "")
    deadline = time.monotonic() + _PENDING_SECONDS
    while status == "pending" and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        now = target.head(target_name)
        if now.get("x-ms-copy-id") != copy:
            raise StorageError(f"{target.where(target_name)} was written by another program during a copy to it")
        status = now.get("x-ms-copy-status", "")
    if status == "success":
        return True
    _undo(target, target_name, copy, started["ETag"])
    return None


def is_taken(error: RefusedError) -> bool:
    """Return whether a blob exists that must not be replaced (``If-None-Match: *``)."""
    return error.status in (409, 412) and error.code in (
        "BlobAlreadyExists",
        "ConditionNotMet",
        "TargetConditionNotMet",
    )


def _undo(azure: AzureClient, name: str, copy: str, e_tag: str) -> None:
    """Abort a copy, and delete the incomplete blob that it made."""

    def abort() -> None:
        try:
            azure.send("PUT", name, query={"comp": "copy", "copyid": copy}, headers={"x-ms-copy-action": "abort"})
        except RefusedError as error:
            if error.code != "NoPendingCopyOperation":
                raise

    azure.call(abort, action="write", key=name)
    head = azure.head_or_none(name)
    if head is None or head.get("x-ms-copy-id") != copy or head.get("x-ms-copy-status") == "success":
        return
    azure.call(lambda: azure.send("DELETE", name, headers={"If-Match": head["ETag"]}), action="delete", key=name)
