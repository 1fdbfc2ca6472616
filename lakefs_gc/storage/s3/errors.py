"""The meaning of an S3 client's errors: which calls to repeat, and the message and remedy of the others."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ProxyConnectionError,
    SSLError,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from lakefs_gc.errors import AccessDeniedError, ObjectNotFoundError, StorageError, StoreUnavailableError

SLOW_DOWN_CODES = frozenset(
    {
        "SlowDown",
        "SlowDownRead",
        "SlowDownWrite",
        "ServiceUnavailable",
        "ServerBusy",
        "Busy",
        "RequestLimitExceeded",
        "BandwidthLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequests",
        "TooManyRequestsException",
    }
)
"""Codes that ask for fewer requests; all of them are retryable."""

RETRYABLE_CODES = SLOW_DOWN_CODES | {
    "InternalError",
    "RequestTimeout",
    "OperationAborted",
    "ConditionalRequestConflict",
    "XMinioServerNotInitialized",
}
"""Codes of an answer, or of one key in a bulk delete, after which the same call may succeed."""

EXPIRED_CODES = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
BAD_CREDENTIALS_CODES = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidTokenId", "InvalidSecurity"}
)
WRONG_REGION_CODES = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301", "307"}
)
CLOCK_CODES = frozenset({"RequestTimeTooSkewed"})

NOT_ABOUT_KEYS = EXPIRED_CODES | BAD_CREDENTIALS_CODES | WRONG_REGION_CODES | CLOCK_CODES | {"NoSuchBucket"}
"""Codes of an answer that are the same for any choice of keys."""

S3Failure = ClientError | BotoCoreError | HTTPError | ResponseParserError
"""Everything that boto3 raises on purpose."""


class IncompleteListingError(BotoCoreError):
    """A page of a listing is truncated, or does not state whether it is the last. Used within this package only."""

    fmt = "the listing is incomplete: {reason}"


def error_code(error: BaseException) -> str:
    """Return S3's code (``SlowDown``), the HTTP status if the answer has no body, or ''."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def http_status(error: BaseException) -> int:
    """Return the HTTP status of the answer, or 0 if there was no answer."""
    if not isinstance(error, ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_unknown_condition(error: ClientError) -> bool:
    """Return whether the store does not know the condition of a write (``If-None-Match``), and so has not written."""
    return http_status(error) == 501 or error_code(error) == "NotImplemented"


def is_answered(error: BaseException) -> bool:
    """Return whether the store itself refused the request, so that it will not execute it later.

    A broken connection proves no refusal. Neither does a time-out of the client or a proxy, that is, any 5xx except
    SlowDown.
    """
    return isinstance(error, ClientError) and (http_status(error) < 500 or is_only_slow_down(error))


def is_retryable(error: BaseException) -> bool:
    """Return whether the same call may succeed later: 5xx except 501, 429, throttling, broken connections."""
    if isinstance(error, ClientError):
        status = http_status(error)
        return error_code(error) in RETRYABLE_CODES or status == 429 or (status >= 500 and status != 501)
    if isinstance(error, ProxyConnectionError) or is_tls_configuration(error):
        return False
    return isinstance(
        error,
        HTTPClientError
        | BotoConnectionError
        | IncompleteReadError
        | IncompleteListingError
        | FlexibleChecksumError
        | HTTPError
        | ResponseParserError,
    )


def is_tls_configuration(error: BaseException) -> bool:
    """Return whether a TLS failure is permanent: an untrusted certificate, or a server without TLS."""
    return isinstance(error, SSLError) and any(
        word in str(error) for word in ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER", "UNKNOWN_CA")
    )


def is_slow_down(error: BaseException) -> bool:
    """Return whether the store asks for fewer requests."""
    return error_code(error) in SLOW_DOWN_CODES or http_status(error) in (429, 503)


def is_only_slow_down(error: BaseException) -> bool:
    """Return whether the store only asks for fewer requests; after ``ServiceUnavailable`` it may be down."""
    return error_code(error) in SLOW_DOWN_CODES - {"ServiceUnavailable"}


def describe(error: BaseException) -> str:
    """Return ``Code: message`` of the store's answer, or the type of the failure.

    The rest of the answer is not shown, because it may contain secrets (SignatureDoesNotMatch describes keys).
    """
    if isinstance(error, ClientError):
        facts = error.response.get("Error", {})
        return ": ".join(part for part in (str(facts.get("Code", "")), str(facts.get("Message", ""))) if part)
    if isinstance(error, IncompleteListingError):
        return str(error)
    return type(error).__name__


def storage_error(error: S3Failure, *, action: str, bucket: str, key: str, endpoint: str) -> StorageError:
    """Return the error to raise for ``error`` of the call ``action`` (an IAM action without ``s3:``)."""
    code, status, facts = error_code(error), http_status(error), describe(error)
    bucket_action = action in {"ListBucket", "ListBucketVersions", "ListBucketMultipartUploads"}
    resource = f"arn:aws:s3:::{bucket}" if bucket_action else f"arn:aws:s3:::{bucket}/{key}"
    where = f"s3://{bucket}/{key} at {endpoint}"
    note: dict[str, Any] = {"action": f"s3:{action}", "bucket": bucket, "code": code, "status": status}
    default_endpoint = _about_default_endpoint(endpoint)
    if code == "NoSuchBucket":
        return ObjectNotFoundError(
            f"The bucket {bucket} does not exist at {endpoint}",
            remedy="Check the name of the bucket, the endpoint (AWS_ENDPOINT_URL_S3) and the credentials"
            f"{default_endpoint}",
            **note,
        )
    if code in EXPIRED_CODES:
        return AccessDeniedError(
            f"The credentials for {where} have expired ({code})", remedy="Renew the credentials", **note
        )
    if code in BAD_CREDENTIALS_CODES:
        return AccessDeniedError(
            f"{where} does not accept the credentials ({code})",
            remedy=f"{_about_session_token()}Check the AWS credentials, and that they belong to this endpoint"
            f"{default_endpoint}",
            **note,
        )
    if code in CLOCK_CODES:
        return AccessDeniedError(
            f"{where}: the clocks of this machine and of the store differ too much ({code})",
            remedy="Synchronize the clock of this machine, for example with NTP",
            **note,
        )
    if code in WRONG_REGION_CODES:
        return StorageError(
            f"{where}: the bucket is in another region ({facts})",
            remedy="Set AWS_REGION to the region of the bucket",
            **note,
        )
    if status in (401, 403) or code in ("AccessDenied", "403", "401"):
        condition = f", for the prefix {key}*" if bucket_action else ""
        return AccessDeniedError(
            f"{where}: access denied for s3:{action} ({facts})",
            remedy=f"Grant these credentials s3:{action} on {resource}{condition}{default_endpoint}",
            **note,
        )
    if status == 404 or code in ("NoSuchKey", "404"):
        return ObjectNotFoundError(f"{where} does not exist", remedy="Check the namespace and the key", **note)
    if is_retryable(error):
        return StoreUnavailableError(
            f"{where}: s3:{action} still fails after all retries ({facts})",
            remedy="Check that the endpoint is healthy and reachable from this machine, then run again. "
            f"If the store asks to slow down, lower requests_at_once{default_endpoint}",
            **note,
        )
    if isinstance(error, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError):
        return AccessDeniedError(
            f"No usable AWS credentials for {where} ({facts})",
            remedy="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role",
            **note,
        )
    if isinstance(error, SSOError | TokenRetrievalError):
        return AccessDeniedError(
            f"The AWS login for {where} is not valid ({facts})", remedy="Run `aws sso login`", **note
        )
    if is_tls_configuration(error):
        return StorageError(
            f"{where}: the TLS connection failed (certificate or protocol)",
            remedy="Set AWS_CA_BUNDLE to the certificate authority of the endpoint, or correct http:// and https://",
            **note,
        )
    if isinstance(error, ProxyConnectionError):
        return StorageError(
            f"{where}: the proxy refused the call", remedy="Check HTTPS_PROXY, HTTP_PROXY, NO_PROXY", **note
        )
    return StorageError(
        f"{where}: s3:{action} failed ({facts})",
        remedy="Correct the cause that the store names, then run again",
        **note,
    )


def _about_session_token() -> str:
    """Return what to do first if a session token may be the cause."""
    if not os.environ.get("AWS_SESSION_TOKEN"):
        return ""
    return "AWS_SESSION_TOKEN is set: renew the token, or unset it if these credentials have none. "


def _about_default_endpoint(endpoint: str) -> str:
    """Return a hint if the requests went to AWS only because no other endpoint is set."""
    if not (urlsplit(endpoint).hostname or "").endswith("amazonaws.com"):
        return ""
    return ". The requests went to AWS: for another store, set AWS_ENDPOINT_URL_S3"
