"""Bodies of requests to the gateway: AWS's framings, signatures of chunks, and checksums."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from lakefs_gc.sandbox.gateway.body import spooled_body
from lakefs_gc.sandbox.gateway.problems import S3Error
from lakefs_gc.sandbox.gateway.signature import Verified
from lakefs_gc_tests.support.gateway_client import refusal
from lakefs_gc_tests.support.sandbox_place import REPOSITORY, Place

UNSIGNED = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_AND_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"


async def _in_pieces(data: bytes) -> AsyncIterator[bytes]:
    for i in range(0, len(data), 7000):
        yield data[i : i + 7000]


def read_body(data: bytes, signed: Verified | str, **headers: str) -> bytes:
    if isinstance(signed, str):
        signed = Verified(signed, "", "", "", b"")

    async def read() -> bytes:
        sent_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        async with spooled_body(_in_pieces(data), signed, sent_headers) as content:
            return content.read()

    return asyncio.run(read())


def refused(status: int, code: str, data: bytes, signed: Verified | str, **headers: str) -> None:
    with pytest.raises(S3Error) as caught:
        read_body(data, signed, **headers)
    assert (caught.value.status, caught.value.code) == (status, code)


def test_a_body_in_chunks_loses_its_framing() -> None:
    """Newer SDKs send streams that they cannot read twice in this form."""
    crc = base64.b64encode(zlib.crc32(b"hello\r\n, world").to_bytes(4)).decode()
    framed = f"5\r\nhello\r\n9;x=y\r\n\r\n, world\r\n0\r\nx-amz-checksum-crc32:{crc}\r\n\r\n".encode()
    length = {"x_amz_decoded_content_length": "14"}
    assert read_body(framed, UNSIGNED, **length) == b"hello\r\n, world"
    for malformed in (framed[:9], framed.replace(b"5", b"z", 1), framed.replace(b"5", b"4", 1), b""):
        refused(400, "InvalidArgument", malformed, UNSIGNED)
    refused(400, "BadDigest", framed.replace(b"hello", b"hallo"), UNSIGNED)
    refused(400, "IncompleteBody", framed, UNSIGNED, x_amz_decoded_content_length="15")
    refused(501, "NotImplemented", framed, "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD")


# The credentials, the request's signature and those of its chunks in AWS's documentation.
_DATE, _SCOPE = "20130524T000000Z", "20130524/us-east-1/s3/aws4_request"


def documented(payload_hash: str, signature: str) -> Verified:
    key = b"AWS4wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    for part in _SCOPE.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return Verified(payload_hash, signature, _DATE, _SCOPE, key)


def in_chunks(signatures: list[str], trailers: bytes = b"") -> bytes:
    framed = b""
    for data, signature in zip((b"a" * 65536, b"a" * 1024, b""), signatures, strict=True):
        framed += f"{len(data):x};chunk-signature={signature}\r\n".encode() + data + (b"\r\n" if data else b"")
    return framed + trailers + b"\r\n"


SIGNED_BODY = in_chunks(
    [
        "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
        "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
        "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
    ]
)
SIGNED_BODY_AND_TRAILER = in_chunks(
    [
        "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
        "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
        "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
    ],
    b"x-amz-checksum-crc32c:sOO8/Q==\r\n"
    b"x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n",
)
SEED = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
SEED_WITH_TRAILER = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"


@pytest.mark.parametrize(
    ("signed", "body"),
    [
        (documented(SIGNED, SEED), SIGNED_BODY),
        (documented(SIGNED_AND_TRAILER, SEED_WITH_TRAILER), SIGNED_BODY_AND_TRAILER),
    ],
)
def test_the_signed_chunks_of_the_aws_documentation_are_accepted(signed: Verified, body: bytes) -> None:
    assert read_body(body, signed) == b"a" * 66560
    for old, new in (
        (b"\r\naaa", b"\r\naba"),
        (b"400;chunk", b"3ff;chunk"),
        (b"signature=", b"signature=0"),
        (b"/Q", b"/q"),
    ):
        if old in body and old != new:
            with pytest.raises(S3Error) as caught:
                read_body(body.replace(old, new), signed)
            assert caught.value.code in ("SignatureDoesNotMatch", "InvalidArgument")
    refused(403, "SignatureDoesNotMatch", body, documented(signed.payload_hash, "0" * 64))


@pytest.mark.parametrize(
    ("header", "digest"),
    [
        ("content_md5", lambda data: hashlib.md5(data).digest()),
        ("x_amz_checksum_sha1", lambda data: hashlib.sha1(data).digest()),
        ("x_amz_checksum_sha256", lambda data: hashlib.sha256(data).digest()),
        ("x_amz_checksum_crc32", lambda data: zlib.crc32(data).to_bytes(4)),
    ],
)
def test_checksums_are_checked(header: str, digest: Callable[[bytes], bytes]) -> None:
    sent_headers = {header: base64.b64encode(digest(b"hello")).decode()}
    assert read_body(b"hello", "UNSIGNED-PAYLOAD", **sent_headers) == b"hello"
    refused(400, "BadDigest", b"hallo", "UNSIGNED-PAYLOAD", **sent_headers)


def test_boto3_s_own_checksum_is_checked(place: Place, s3: Any) -> None:
    """boto3 sends a CRC-32. The hash of the payload is correct here."""

    def tamper(request: Any, **_: Any) -> None:
        seen.append(request.headers["x-amz-checksum-crc32"])
        del request.headers["x-amz-checksum-crc32"]
        request.headers["x-amz-checksum-crc32"] = "AAAAAA=="

    seen: list[str] = []
    s3.meta.events.register("before-sign.s3.PutObject", tamper)
    assert refusal(400, s3.put_object, Bucket=REPOSITORY, Key="main/x", Body=b"good") == "BadDigest"
    assert set(seen) == {base64.b64encode(zlib.crc32(b"good").to_bytes(4)).decode()}
    assert place.paths() == []
