"""Uploads in parts: how large their parts are, and those that have begun and not ended.

Source: AWS S3 API reference (ListMultipartUploads, AbortMultipartUpload). The parts of an upload that was neither
completed nor aborted stay until a lifecycle rule of the bucket, or somebody, aborts it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from boto3.s3.transfer import TransferConfig

from lakefs_gc.errors import NamespaceError, ObjectNotFoundError
from lakefs_gc.storage.base import UnfinishedWrite, UnfinishedWrites
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.keys import check_key
from lakefs_gc.storage.s3.client import RetryingClient

_PART_BYTES = 8 * 1024**2
_MOST_PARTS = 9_000  # S3 takes 10,000
_LISTINGS_AT_ONCE = 16
_ACTION = "ListBucketMultipartUploads"


def stream_config(size_bytes: int) -> TransferConfig:
    """Return the size of the parts for a stream of about this size; four parts are in memory at the same time."""
    config = TransferConfig(max_concurrency=2, multipart_chunksize=max(_PART_BYTES, -(-size_bytes // _MOST_PARTS)))
    config.max_in_memory_upload_chunks = 2  # ten are s3transfer's own default
    return config


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
