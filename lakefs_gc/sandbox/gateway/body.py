"""Read the body of a request to the gateway into a spool, and verify it against its signature.

Source: AWS documentation, "Signature Calculations for the Authorization Header: Transferring Payload in Multiple
Chunks", and "Checking object integrity in Amazon S3".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import BinaryIO, Protocol, cast

from starlette.concurrency import run_in_threadpool

from lakefs_gc.sandbox.data.streams import pieces_of
from lakefs_gc.sandbox.gateway.problems import S3Error, bad_digest, invalid_argument, not_implemented
from lakefs_gc.sandbox.gateway.signature import UNSIGNED_PAYLOAD, Verified

_SPOOL_BYTES = 1 << 20
_UNSIGNED_CHUNKS = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
_SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
_SIGNED_CHUNKS_AND_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
_CHUNKED = {_UNSIGNED_CHUNKS, _SIGNED_CHUNKS, _SIGNED_CHUNKS_AND_TRAILER}
_MAX_LINE_BYTES = 8192
_MAX_TRAILERS = 32
_CHECKSUM = "x-amz-checksum-"
_NOTHING = hashlib.sha256().hexdigest()


@asynccontextmanager
async def spooled_body(
    sent: AsyncIterator[bytes], signed: Verified, headers: Mapping[str, str]
) -> AsyncIterator[BinaryIO]:
    """Yield the whole body without AWS's framing, rewound. ``headers`` have names in lower case.

    Raise ``S3Error`` 403 for a chunk with a wrong signature, 400 if the body does not match its hash or a checksum, and
    501 for another kind of signature.
    """
    if signed.payload_hash.startswith("STREAMING-") and signed.payload_hash not in _CHUNKED:
        raise not_implemented()
    with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spool, tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as plain:
        async for piece in sent:
            spool.write(piece)
        spool.seek(0)
        body, trailers = cast(BinaryIO, spool), {}
        if signed.payload_hash in _CHUNKED:
            body = cast(BinaryIO, plain)
            trailers = await run_in_threadpool(_Chunks(cast(BinaryIO, spool), body, signed).unpack)
            _check_length(headers, body)
        await run_in_threadpool(_check_body, body, signed.payload_hash, {**headers, **trailers})
        yield body


class _Chunks:
    """A body in chunks: ``size in hex[;chunk-signature=...], CRLF, data, CRLF``.

    The trailers, lines of ``name:value``, follow the chunk of size 0.
    """

    def __init__(self, content: BinaryIO, plain: BinaryIO, signed: Verified) -> None:
        self._content = content
        self._plain = plain
        self._signed = signed
        self._previous = signed.signature

    def unpack(self) -> dict[str, str]:
        """Write the data to ``plain``. Return the trailers, with names in lower case."""
        try:
            while True:
                size, _, extension = self._content.readline(_MAX_LINE_BYTES).rstrip(b"\r\n").partition(b";")
                data = self._content.read(int(size, 16))
                if len(data) != int(size, 16):
                    raise ValueError
                self._check_chunk(data, extension.decode())
                if not data:
                    return self._trailers()
                if self._content.readline(_MAX_LINE_BYTES) != b"\r\n":
                    raise ValueError
                self._plain.write(data)
        except ValueError:
            raise invalid_argument("The chunks of the body are malformed.") from None

    def _check_chunk(self, data: bytes, extension: str) -> None:
        if self._signed.payload_hash == _UNSIGNED_CHUNKS:
            return
        digest = hashlib.sha256(data).hexdigest()
        self._follow("PAYLOAD", extension.removeprefix("chunk-signature="), _NOTHING, digest)

    def _trailers(self) -> dict[str, str]:
        trailers: dict[str, str] = {}
        text = ""
        for _ in range(_MAX_TRAILERS):
            line = self._content.readline(_MAX_LINE_BYTES).rstrip(b"\r\n").decode("ascii")
            if not line:
                break
            name, _, value = line.partition(":")
            if name.lower() != "x-amz-trailer-signature":
                text += f"{name.lower()}:{value.strip()}\n"
            trailers[name.lower()] = value.strip()
        if self._signed.payload_hash == _SIGNED_CHUNKS_AND_TRAILER:
            digest = hashlib.sha256(text.encode()).hexdigest()
            self._follow("TRAILER", trailers.get("x-amz-trailer-signature", ""), digest)
        return trailers

    def _follow(self, kind: str, signature: str, *hashes: str) -> None:
        expected = self._signed.chunk_signature(self._previous, kind, *hashes)
        if not hmac.compare_digest(expected.encode(), signature.encode()):
            message = "The request signature we calculated does not match the signature you provided."
            raise S3Error(403, "SignatureDoesNotMatch", message)
        self._previous = expected


def _check_length(headers: Mapping[str, str], body: BinaryIO) -> None:
    expected = headers.get("x-amz-decoded-content-length")
    if expected is not None and expected != str(body.tell()):
        raise S3Error(400, "IncompleteBody", "The request body is not of the length that was specified.")


def _check_body(body: BinaryIO, payload_hash: str, checksums: Mapping[str, str]) -> None:
    """Compare the body with its hash and with the client's checksums, and rewind it."""
    digests: dict[str, _Digest] = {}
    if payload_hash != UNSIGNED_PAYLOAD and payload_hash not in _CHUNKED:
        digests["payload"] = hashlib.sha256()
    for name, new_digest in _CHECKSUMS.items():
        if name in checksums:
            digests[name] = new_digest()
    body.seek(0)
    for piece in pieces_of(body):
        for digest in digests.values():
            digest.update(piece)
    body.seek(0)
    for name, digest in digests.items():
        if name == "payload":
            if digest.digest().hex() != payload_hash:
                message = "The provided 'x-amz-content-sha256' header does not match what was computed."
                raise S3Error(400, "XAmzContentSHA256Mismatch", message)
        elif base64.b64encode(digest.digest()).decode() != checksums[name]:
            raise bad_digest()


class _Digest(Protocol):
    """The interface of hashlib's objects."""

    def update(self, data: bytes, /) -> None: ...

    def digest(self) -> bytes: ...


class _Crc32:
    """CRC-32 with the same interface."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        """Return four bytes, the most significant first."""
        return self._value.to_bytes(4)


def _md5() -> _Digest:
    return hashlib.md5(usedforsecurity=False)


def _sha1() -> _Digest:
    return hashlib.sha1(usedforsecurity=False)


_CHECKSUMS: dict[str, Callable[[], _Digest]] = {
    "content-md5": _md5,
    _CHECKSUM + "crc32": _Crc32,
    _CHECKSUM + "sha1": _sha1,
    _CHECKSUM + "sha256": hashlib.sha256,
}
"""By header or trailer. The other checksums of AWS (CRC-32C, CRC-64/NVME) are not checked."""
