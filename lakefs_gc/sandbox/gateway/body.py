"""The body of a request to the gateway: into a spool, checked against what was signed of it."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import BinaryIO, cast

from lakefs_gc.sandbox.gateway.problems import S3Error, invalid_argument, not_implemented
from lakefs_gc.sandbox.gateway.signature import UNSIGNED_PAYLOAD

_SPOOL_BYTES = 1 << 20
_CHUNKED = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
_MAX_LINE_BYTES = 8192


@asynccontextmanager
async def spooled_body(pieces: AsyncIterator[bytes], payload_hash: str) -> AsyncIterator[BinaryIO]:
    """The whole body, rewound.

    Raises ``S3Error``: 400 when the body is not the signed one, 501 for chunks with signatures of their own.
    """
    if payload_hash.startswith("STREAMING-") and payload_hash != _CHUNKED:
        raise not_implemented()
    digest = hashlib.sha256()
    with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spool, tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as plain:
        async for piece in pieces:
            digest.update(piece)
            spool.write(piece)
        spool.seek(0)
        if payload_hash == _CHUNKED:
            _dechunk(cast(BinaryIO, spool), cast(BinaryIO, plain))
            plain.seek(0)
            yield cast(BinaryIO, plain)
            return
        if payload_hash not in (UNSIGNED_PAYLOAD, digest.hexdigest()):
            message = "The provided 'x-amz-content-sha256' header does not match what was computed."
            raise S3Error(400, "XAmzContentSHA256Mismatch", message)
        yield cast(BinaryIO, spool)


def _dechunk(content: BinaryIO, plain: BinaryIO) -> None:
    """The body without AWS's framing: ``size in hex, CRLF, data, CRLF``, and after the chunk of size 0 its trailers."""
    try:
        while size := int(content.readline(_MAX_LINE_BYTES).split(b";")[0], 16):
            data = content.read(size)
            if len(data) != size or content.readline(_MAX_LINE_BYTES) != b"\r\n":
                raise ValueError
            plain.write(data)
    except ValueError:
        raise invalid_argument("The chunks of the body are malformed.") from None
