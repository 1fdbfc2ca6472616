"""Uploads in parts: how large their parts are, how one creates an object only if it is new, and those that did not end.

Source: AWS S3 API reference (CompleteMultipartUpload, ListMultipartUploads, AbortMultipartUpload). The parts of an
upload that was neither completed nor aborted stay until a lifecycle rule of the bucket, or somebody, aborts it.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from typing import Any, BinaryIO

from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from lakefs_gc.errors import NamespaceError, ObjectNotFoundError, StorageError
from lakefs_gc.storage.base import UnfinishedWrite, UnfinishedWrites
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.keys import check_key
from lakefs_gc.storage.s3.client import RetryingClient
from lakefs_gc.storage.s3.errors import http_status, is_unknown_condition

logger = logging.getLogger(__name__)

_PART_BYTES = 8 * 1024**2
_MOST_PARTS = 9_000  # S3 takes 10,000
_LISTINGS_AT_ONCE = 16
_PARTS_AT_ONCE = 2
_ACTION = "ListBucketMultipartUploads"


def stream_config(size_bytes: int) -> TransferConfig:
    """Return the size of the parts for a stream of about this size; four parts are in memory at the same time."""
    config = TransferConfig(max_concurrency=_PARTS_AT_ONCE, multipart_chunksize=_part_bytes(size_bytes))
    config.max_in_memory_upload_chunks = 2  # ten are s3transfer's own default
    return config


def parts_of(source: BinaryIO, size_bytes: int) -> tuple[bytes | None, Iterator[bytes]]:
    """Return the whole content of a stream that is smaller than one part, or None and its parts."""
    part_bytes = _part_bytes(size_bytes)
    first = _read(source, part_bytes)
    if len(first) < part_bytes:
        return first, iter(())
    return None, chain([first], iter(lambda: _read(source, part_bytes), b""))


def upload_new(s3: RetryingClient, key: str, parts: Iterable[bytes], exists: Callable[[], bool]) -> bool:
    """Create an object from its parts, and return False if another writer has created it by the time they are uploaded.

    boto3's own uploads of streams cannot send this condition. A store that does not know it (501) gets none, and others
    ignore it: so ``exists`` looks whether the object exists after the parts, which may take hours. A failed upload is
    aborted.
    """

    def call(method: str, **parameters: Any) -> Any:
        return s3.call(
            lambda: getattr(s3.client, method)(Bucket=s3.bucket, Key=key, **parameters), action="PutObject", key=key
        )

    def upload_part(numbered: tuple[int, bytes]) -> dict[str, Any]:
        number, data = numbered
        answer = call("upload_part", UploadId=upload_id, PartNumber=number, Body=data)
        return {"PartNumber": number, "ETag": s3.required(answer, "ETag", key=key)}

    upload_id = s3.required(call("create_multipart_upload"), "UploadId", key=key)
    is_new = False
    try:
        done = map_unordered(upload_part, enumerate(parts, start=1), _PARTS_AT_ONCE, wait_for_all=True)
        uploaded = sorted((part for _, part in done), key=lambda part: int(part["PartNumber"]))
        if exists():
            return False
        completion = {"UploadId": upload_id, "MultipartUpload": {"Parts": uploaded}}
        try:
            call("complete_multipart_upload", **completion, IfNoneMatch="*")
            is_new = True
        except StorageError as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and is_unknown_condition(cause):
                call("complete_multipart_upload", **completion)
                is_new = True
            elif not (isinstance(cause, ClientError) and http_status(cause) == 412):
                raise
    finally:
        if not is_new:
            try:
                _abort(s3, key, upload_id)
            except StorageError as error:  # only logged: what led here matters more
                logger.warning("cannot abort an upload in parts: key=%s error=%s", key, error.message)
    return is_new


def _part_bytes(size_bytes: int) -> int:
    return max(_PART_BYTES, -(-size_bytes // _MOST_PARTS))


def _read(source: BinaryIO, size_bytes: int) -> bytes:
    """Return so many bytes, or all that remain: one read of a stream may return fewer."""
    pieces: list[bytes] = []
    while size_bytes > 0 and (piece := source.read(size_bytes)):
        pieces.append(piece)
        size_bytes -= len(piece)
    return b"".join(pieces)


def uploads_of(s3: RetryingClient, root: str, keys: Sequence[str]) -> dict[str, UnfinishedWrites]:
    """Return the uploads of each key that has any; ``root`` is the prefix of all keys. One request per key.

    MinIO answers with an empty list for a prefix that is not the whole key of an object.
    """

    def of_key(key: str) -> UnfinishedWrites:
        try:
            prefix = check_key(key)
        except NamespaceError:  # no store can have it
            return []
        return [each for each in uploads_below(s3, root, prefix) if each.key == key]

    return {key: found for key, found in map_unordered(of_key, keys, _LISTINGS_AT_ONCE) if found}


def uploads_below(s3: RetryingClient, root: str, prefix: str) -> Iterator[UnfinishedWrite]:
    """Yield the uploads below a prefix. Raise ``StorageError`` if the answer is not a list of them, or never ends."""
    marker: dict[str, str] = {}
    while True:
        page = _page(s3, root + prefix, marker)
        for upload in page.get("Uploads", []):
            name = str(s3.required(upload, "Key", key=root + prefix))
            if name.startswith(root + prefix):  # a store may ignore the prefix
                yield _described(s3, root, name, upload)
        if not page["IsTruncated"]:
            return
        names = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        following = {parameter: page[field] for parameter, field in names.items() if page.get(field)}
        if not following or following == marker:
            raise s3.incomplete_answer(root + prefix, "repeats its marker, so the list of uploads never ends")
        marker = following


def abort_uploads(s3: RetryingClient, root: str, writes: Iterable[UnfinishedWrite]) -> None:
    """Abort uploads, which removes their parts. An upload that has ended meanwhile is skipped."""
    for write in writes:
        with suppress(ObjectNotFoundError):
            _abort(s3, root + write.key, write.upload_id)


def _abort(s3: RetryingClient, name: str, upload_id: str) -> None:
    s3.call(
        lambda: s3.client.abort_multipart_upload(Bucket=s3.bucket, Key=name, UploadId=upload_id),
        action="AbortMultipartUpload",
        key=name,
    )


def _page(s3: RetryingClient, prefix: str, marker: dict[str, str]) -> dict[str, Any]:
    answer: dict[str, Any] = s3.call(
        lambda: s3.client.list_multipart_uploads(Bucket=s3.bucket, Prefix=prefix, **marker), action=_ACTION, key=prefix
    )
    if "Bucket" not in answer or "IsTruncated" not in answer:  # its value may differ: Ceph adds the tenant
        raise s3.incomplete_answer(prefix, "lists no uploads: a proxy, or a store without this call, sent it")
    if answer.get("Prefix", prefix) != prefix:
        raise s3.incomplete_answer(prefix, "is the list of uploads of another prefix")
    return answer


def _described(s3: RetryingClient, root: str, name: str, upload: dict[str, Any]) -> UnfinishedWrite:
    upload_id, began_at = (s3.required(upload, fact, key=name) for fact in ("UploadId", "Initiated"))
    if not isinstance(began_at, datetime):
        raise s3.incomplete_answer(name, "has no time at which an upload began")
    command = shlex.join(["--bucket", s3.bucket, "--key", name, "--upload-id", upload_id])
    return UnfinishedWrite(
        name.removeprefix(root), began_at.astimezone(UTC), f"aws s3api abort-multipart-upload {command}", upload_id
    )
