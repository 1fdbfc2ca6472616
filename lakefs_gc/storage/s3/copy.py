"""Copies within one S3 endpoint, made by the store itself, so that no data passes through this process.

Source: AWS S3 API reference (CopyObject, up to 5 GiB; UploadPartCopy for what is larger, 5 MiB to 5 GiB a part).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from lakefs_gc.errors import StorageError
from lakefs_gc.storage.base import ContentFacts
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.s3.checksums import checksums_of, content_facts
from lakefs_gc.storage.s3.client import RetryingClient
from lakefs_gc.storage.s3.errors import http_status, is_unknown_condition

log = logging.getLogger(__name__)

_GIB = 1024**3
# Headers that CreateMultipartUpload needs; CopyObject copies them itself.
_HEADERS = ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType", "Metadata")


@dataclass(frozen=True)
class CopyLimits:
    """Copies up to ``single_bytes`` are made in one call, larger ones in parts of ``part_bytes``."""

    single_bytes: int = 5 * _GIB
    part_bytes: int = _GIB // 2  # 10,000 parts of it are 5 TB, the largest object
    parts_at_once: int = 4


@dataclass(frozen=True)
class _Copy:
    s3: RetryingClient
    source: dict[str, str]
    bucket: str
    key: str
    head: Mapping[str, Any]
    if_absent: bool

    def call(self, method: str, **parameters: Any) -> Any:
        """Send one request about the copy, with retries."""
        return self.s3.call(
            lambda: getattr(self.s3.client, method)(Bucket=self.bucket, Key=self.key, **parameters),
            action=f"GetObject of s3://{self.source['Bucket']}/{self.source['Key']} and s3:PutObject",
            key=self.key,
        )

    def create(self, method: str, **parameters: Any) -> bool:
        """Send the request that creates the object; return False if another object exists and ``if_absent`` is set.

        After a broken connection the existing object may be the one from an earlier try. It counts as this copy if the
        store reports the same content as the source's.
        """
        if not self.if_absent:
            self.call(method, **parameters)
            return True
        try:
            self.call(method, **parameters, IfNoneMatch="*")
        except StorageError as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and is_unknown_condition(cause):
                self.call(method, **parameters)  # the caller has checked that it does not exist
                return True
            if isinstance(cause, ClientError) and http_status(cause) == 412:
                existing = content_facts(self.s3, self.key)
                if existing is not None:
                    is_same = self.has_content_of_source(existing)
                    if is_same and "UploadId" in parameters:  # another one was first, and 412 leaves the upload open
                        _abort(self, parameters["UploadId"])
                    return is_same
            raise
        return True

    def has_content_of_source(self, existing: ContentFacts) -> bool:
        """Return whether the store reports the same size and the same common checksums as for the source."""
        known = checksums_of(self.head)
        common = known.keys() & existing.checksums.keys()
        same = bool(common) and all(known[algorithm] == existing.checksums[algorithm] for algorithm in common)
        return same and existing.size_bytes == self.head["ContentLength"]


def copy_object(
    s3: RetryingClient,
    source: dict[str, str],
    head: Mapping[str, Any],
    bucket: str,
    key: str,
    *,
    limits: CopyLimits,
    if_absent: bool = False,
) -> bool:
    """Copy ``source`` (``Bucket``, ``Key``); return False if ``if_absent`` is set and the destination existed.

    ``head`` is the HEAD of the source with the store's checksums (``ChecksumMode``). If the answer to the creation is
    lost, they tell an object of this copy from another writer's; without a common checksum it counts as another
    writer's. Raise ``StorageError`` if the source changes meanwhile. A failed copy in parts is aborted.
    """
    copy = _Copy(s3, source, bucket, key, head, if_absent)
    same = {"CopySourceIfMatch": head["ETag"]} if head.get("ETag") else {}
    if head["ContentLength"] <= limits.single_bytes:
        return copy.create("copy_object", CopySource=source, **same)
    headers = {name: head[name] for name in _HEADERS if head.get(name)}
    upload = s3.required(copy.call("create_multipart_upload", **headers), "UploadId", key=key)
    try:
        parts = _copy_parts(copy, upload, head["ContentLength"], same, limits)
        return _complete(copy, upload, parts)
    except BaseException:
        _abort(copy, upload)
        raise


def _copy_parts(
    copy: _Copy, upload: str, size_bytes: int, same: dict[str, str], limits: CopyLimits
) -> list[dict[str, Any]]:
    starts: Iterable[int] = range(0, size_bytes, limits.part_bytes)

    def part(numbered: tuple[int, int]) -> str:
        number, start = numbered
        end = min(start + limits.part_bytes, size_bytes) - 1
        answer = copy.call(
            "upload_part_copy",
            UploadId=upload,
            PartNumber=number,
            CopySource=copy.source,
            CopySourceRange=f"bytes={start}-{end}",
            **same,
        )
        return str(copy.s3.required(answer.get("CopyPartResult", {}), "ETag", key=copy.key))

    done = map_unordered(part, enumerate(starts, start=1), limits.parts_at_once)
    return [{"PartNumber": number, "ETag": e_tag} for (number, _), e_tag in sorted(done)]


def _complete(copy: _Copy, upload: str, parts: list[dict[str, Any]]) -> bool:
    # The parts may take hours, and some stores do not know the condition, or ignore it.
    is_late = copy.if_absent and content_facts(copy.s3, copy.key) is not None
    created = not is_late and copy.create(
        "complete_multipart_upload", UploadId=upload, MultipartUpload={"Parts": parts}
    )
    if not created:
        _abort(copy, upload)
    return created


def _abort(copy: _Copy, upload: str) -> None:
    try:
        copy.call("abort_multipart_upload", UploadId=upload)
    except StorageError as error:  # only logged: the caller raises the error that led here
        log.warning("cannot abort a copy in parts: key=%s error=%s", copy.key, error.message)
