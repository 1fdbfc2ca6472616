"""Verify the AWS Signature Version 4 of a request, in the header ``Authorization`` or in the query (presigned).

Source: AWS documentation, "Authenticating Requests (AWS Signature Version 4)".
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote

from lakefs_gc.sandbox.auth import Credentials
from lakefs_gc.sandbox.clock import Clock
from lakefs_gc.sandbox.gateway.problems import S3Error

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
_MAX_SKEW = timedelta(minutes=15)
_MAX_PRESIGNED_SECONDS = 7 * 24 * 3600
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class SignedRequest:
    """The signed parts of a request. ``path`` is encoded, ``query`` is decoded, header names are in lower case."""

    method: str
    path: str
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Verified:
    """A request with a correct signature.

    ``payload_hash`` describes the body: its SHA-256 in hex, ``UNSIGNED_PAYLOAD`` or a similar constant. The other
    fields verify the signatures of the body's chunks, each of which depends on the previous one.
    """

    payload_hash: str
    signature: str
    date: str
    scope: str
    key: bytes

    def chunk_signature(self, previous: str, kind: str, *hashes: str) -> str:
        """Return the signature of a chunk (``PAYLOAD``, with two hashes) or of the trailers (``TRAILER``, with one)."""
        text = "\n".join([f"{ALGORITHM}-{kind}", self.date, self.scope, previous, *hashes])
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class _Claim:
    access_key_id: str
    scope: tuple[str, str, str, str]
    signed_headers: tuple[str, ...]
    signature: str
    payload_hash: str


def is_signed(headers: Mapping[str, str], query: Mapping[str, str]) -> bool:
    """Return whether a request is for the gateway."""
    return headers.get("authorization", "").startswith(ALGORITHM) or query.get("X-Amz-Algorithm") == ALGORITHM


def verify(request: SignedRequest, credentials: Credentials, clock: Clock) -> Verified:
    """Return the values that the body is verified with.

    Raise ``S3Error`` 403 unless the signature is made with the credentials and is not expired.
    """
    query = dict(request.query)
    is_presigned = "X-Amz-Signature" in query
    claim = _presigned_claim(query) if is_presigned else _header_claim(request.headers)
    if not hmac.compare_digest(claim.access_key_id.encode(), credentials.access_key_id.encode()):
        raise S3Error(403, "InvalidAccessKeyId", "The access key ID you provided does not exist in our records.")
    date_text = query.get("X-Amz-Date", "") if is_presigned else request.headers.get("x-amz-date", "")
    _check_date(date_text, query, clock, is_presigned=is_presigned)
    date, region, service, end = claim.scope
    if "host" not in claim.signed_headers or not date_text.startswith(date) or end != "aws4_request":
        raise _malformed()
    if any(name.startswith("x-amz-") and name not in claim.signed_headers for name in request.headers):
        raise S3Error(403, "AccessDenied", "There were headers present in the request which were not signed")
    canonical = "\n".join(
        [
            request.method,
            quote(unquote(request.path), safe="/-_.~"),
            _canonical_query(request.query),
            *(f"{name}:{' '.join(request.headers.get(name, '').split())}" for name in claim.signed_headers),
            "",
            ";".join(claim.signed_headers),
            claim.payload_hash,
        ]
    )
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join([ALGORITHM, date_text, "/".join(claim.scope), digest])
    key = ("AWS4" + credentials.secret_access_key).encode()
    for part in (date, region, service, end):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    expected = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), claim.signature.encode()):
        raise S3Error(
            403,
            "SignatureDoesNotMatch",
            "The request signature we calculated does not match the signature you provided.",
        )
    return Verified(claim.payload_hash, claim.signature, date_text, "/".join(claim.scope), key)


def _header_claim(headers: Mapping[str, str]) -> _Claim:
    fields = {}
    for part in headers.get("authorization", "").removeprefix(ALGORITHM).split(","):
        name, _, value = part.strip().partition("=")
        fields[name] = value
    try:
        return _claim(
            fields["Credential"], fields["SignedHeaders"], fields["Signature"], headers["x-amz-content-sha256"]
        )
    except KeyError:
        raise _malformed() from None


def _presigned_claim(query: Mapping[str, str]) -> _Claim:
    try:
        return _claim(
            query["X-Amz-Credential"], query["X-Amz-SignedHeaders"], query["X-Amz-Signature"], UNSIGNED_PAYLOAD
        )
    except KeyError:
        raise _malformed() from None


def _claim(credential: str, signed_headers: str, signature: str, payload_hash: str) -> _Claim:
    parts = credential.rsplit("/", 4)
    if len(parts) != 5:
        raise _malformed()
    access_key_id, date, region, service, end = parts
    names = tuple(signed_headers.lower().split(";"))
    return _Claim(access_key_id, (date, region, service, end), names, signature, payload_hash)


def _check_date(text: str, query: Mapping[str, str], clock: Clock, *, is_presigned: bool) -> None:
    try:
        signed_at = datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC)
        seconds = int(query["X-Amz-Expires"]) if is_presigned else 0
    except (ValueError, KeyError):
        raise _malformed() from None
    now = clock()
    if is_presigned and (seconds > _MAX_PRESIGNED_SECONDS or now > signed_at + timedelta(seconds=seconds)):
        raise S3Error(403, "AccessDenied", "Request has expired")
    if signed_at - now > _MAX_SKEW or (not is_presigned and now - signed_at > _MAX_SKEW):
        message = "The difference between the request time and the server's time is too large."
        raise S3Error(403, "RequestTimeTooSkewed", message)


def _canonical_query(query: Sequence[tuple[str, str]]) -> str:
    pairs = [(quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs) if name != "X-Amz-Signature")


def _malformed() -> S3Error:
    return S3Error(400, "AuthorizationHeaderMalformed", "The authorization of the request is malformed.")
