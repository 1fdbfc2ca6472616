"""The checksums that S3 itself reports of an object's content.

Source: AWS S3 API reference, HeadObject (``x-amz-checksum-mode``, ``x-amz-checksum-type``) and "ETag". The ETag is the
MD5 of an object that was not uploaded in parts and is stored plain or with SSE-S3; with SSE-C and SSE-KMS it is not.
In a directory bucket (S3 Express One Zone) it never is (PutObject, "ETag").
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from lakefs_gc.errors import ObjectNotFoundError
from lakefs_gc.storage.base import ContentFacts
from lakefs_gc.storage.s3.client import RetryingClient

_MD5 = re.compile(r"[0-9a-f]{32}")
_CHECKSUMS = ("ChecksumSHA256", "ChecksumCRC64NVME", "ChecksumSHA1", "ChecksumCRC32C", "ChecksumCRC32")
_DIRECTORY_BUCKETS = "EXPRESS_ONEZONE"
"""The storage class of every object in a directory bucket, and of no other."""


def content_facts(s3: RetryingClient, name: str) -> ContentFacts | None:
    """Return the size and checksums of an object; None if it does not exist."""
    try:
        head = s3.head(name, ChecksumMode="ENABLED")
    except ObjectNotFoundError:
        return None
    return ContentFacts(int(head["ContentLength"]), checksums_of(head))


def checksums_of(head: Mapping[str, Any]) -> dict[str, str]:
    """Return the checksums of the whole content, by algorithm; omit checksums of the checksums of parts."""
    checksums: dict[str, str] = {}
    e_tag = str(head.get("ETag", "")).strip('"').lower()
    encrypted = head.get("ServerSideEncryption", "AES256") != "AES256" or "SSECustomerAlgorithm" in head
    in_directory_bucket = head.get("StorageClass") == _DIRECTORY_BUCKETS
    if _MD5.fullmatch(e_tag) and not encrypted and not in_directory_bucket:
        checksums["md5"] = e_tag
    for field in _CHECKSUMS:
        value = str(head.get(field, ""))
        if not value or "-" in value or head.get("ChecksumType") == "COMPOSITE":
            continue
        algorithm = field.removeprefix("Checksum").lower()
        checksums[algorithm] = _hex(value) if algorithm == "sha256" else value
    return checksums


def _hex(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).hex()
    except binascii.Error:
        return text
