"""What an S3 client's errors mean: which to try again, and what to tell the user about the others."""

from __future__ import annotations

from typing import Any

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

RETRYABLE_CODES = frozenset(
    {
        "InternalError",
        "SlowDown",
        "SlowDownRead",
        "SlowDownWrite",
        "ServiceUnavailable",
        "ServerBusy",
        "Busy",
        "RequestTimeout",
        "RequestLimitExceeded",
        "BandwidthLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequests",
        "TooManyRequestsException",
        "OperationAborted",
        "ConditionalRequestConflict",
        "XMinioServerNotInitialized",
    }
)
"""Codes, of a whole answer or of one key in a bulk delete, after which the same call may succeed."""

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
"""Those of them that say: fewer requests."""

EXPIRED_CODES = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
BAD_CREDENTIALS_CODES = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidSecurity"})
WRONG_REGION_CODES = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301", "307"}
)
CLOCK_CODES = frozenset({"RequestTimeTooSkewed"})

NOT_ABOUT_KEYS = EXPIRED_CODES | BAD_CREDENTIALS_CODES | WRONG_REGION_CODES | CLOCK_CODES | {"NoSuchBucket"}
"""Codes of an answer that no choice of keys would change."""

S3Failure = ClientError | BotoCoreError | HTTPError | ResponseParserError
"""Everything that boto3 raises on purpose."""


class IncompleteListingError(BotoCoreError):
    """A page of a listing is cut off, or does not say whether there is more. Never leaves this package."""

    fmt = "the listing is not whole: {reason}"


def error_code(error: BaseException) -> str:
    """S3's code (``SlowDown``), the HTTP status where the answer has no body, or ''."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def http_status(error: BaseException) -> int:
    """The HTTP status of the answer, 0 when there was none."""
    if not isinstance(error, ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_answered(error: BaseException) -> bool:
    """True when the store itself has refused: it does not carry the request out later.

    A broken connection does not say that, nor does a time-out, the client's or a proxy's: any 5xx but SlowDown.
    """
    return isinstance(error, ClientError) and (http_status(error) < 500 or is_well_but_slow(error))


def is_retryable(error: BaseException) -> bool:
    """True when the same call may succeed a little later: 5xx but 501, 429, throttling, broken
    connections.
    """
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
    """True for a TLS failure that stays: a certificate nobody here trusts, or no TLS at the other end."""
    return isinstance(error, SSLError) and any(
        word in str(error) for word in ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER", "UNKNOWN_CA")
    )


def is_slow_down(error: BaseException) -> bool:
    """True when the store asks for fewer requests."""
    return error_code(error) in SLOW_DOWN_CODES or http_status(error) in (429, 503)


def is_well_but_slow(error: BaseException) -> bool:
    """True when that is all that the store asks for: one that is down says ``ServiceUnavailable``."""
    return error_code(error) in SLOW_DOWN_CODES - {"ServiceUnavailable"}


def describe(error: BaseException) -> str:
    """``Code: message`` of the store's own answer, or the kind of the failure.

    Nothing else of the answer is shown: the rest of a SignatureDoesNotMatch answer, for one, is about keys.
    """
    if isinstance(error, ClientError):
        facts = error.response.get("Error", {})
        return ": ".join(part for part in (str(facts.get("Code", "")), str(facts.get("Message", ""))) if part)
    if isinstance(error, IncompleteListingError):
        return str(error)
    return type(error).__name__


def storage_error(error: S3Failure, *, action: str, bucket: str, key: str, endpoint: str) -> StorageError:
    """The error to raise for ``error``, which happened in ``action`` (an IAM action without ``s3:``)."""
    code, status, facts = error_code(error), http_status(error), describe(error)
    bucket_action = action in {"ListBucket", "ListBucketVersions", "ListBucketMultipartUploads"}
    resource = f"arn:aws:s3:::{bucket}" if bucket_action else f"arn:aws:s3:::{bucket}/{key}"
    where = f"s3://{bucket}/{key} at {endpoint}"
    note: dict[str, Any] = {"action": f"s3:{action}", "bucket": bucket, "code": code, "status": status}
    if code == "NoSuchBucket":
        return ObjectNotFoundError(
            f"the bucket {bucket} does not exist at {endpoint}",
            remedy="check the bucket's name, the endpoint (AWS_ENDPOINT_URL_S3) and whose credentials these are",
            **note,
        )
    if code in EXPIRED_CODES:
        return AccessDeniedError(
            f"the credentials for {where} have expired ({code})", remedy="renew the credentials", **note
        )
    if code in BAD_CREDENTIALS_CODES:
        return AccessDeniedError(
            f"{where} does not accept the credentials ({code})",
            remedy="check the AWS credentials, and that they belong to this endpoint",
            **note,
        )
    if code in CLOCK_CODES:
        return AccessDeniedError(
            f"{where}: this machine's clock is too far from the store's ({code})",
            remedy="set the clock",
            **note,
        )
    if code in WRONG_REGION_CODES:
        return StorageError(
            f"{where}: the bucket is in another region ({facts})",
            remedy="set AWS_REGION to the bucket's",
            **note,
        )
    if status in (401, 403) or code in ("AccessDenied", "403", "401"):
        condition = f", for the prefix {key}*" if bucket_action else ""
        return AccessDeniedError(
            f"{where}: not allowed to call s3:{action} ({facts})",
            remedy=f"allow s3:{action} on {resource}{condition} to the credentials in use",
            **note,
        )
    if status == 404 or code in ("NoSuchKey", "404"):
        return ObjectNotFoundError(f"{where} does not exist", remedy="check the namespace and the key", **note)
    if is_retryable(error):
        return StoreUnavailableError(
            f"{where}: the store does not answer s3:{action} properly ({facts})",
            remedy="check that the endpoint is reachable from here and healthy, then run again; "
            "if it asks to slow down, lower the concurrency",
            **note,
        )
    if isinstance(error, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError):
        return AccessDeniedError(
            f"no usable AWS credentials for {where} ({facts})",
            remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or give the machine a role",
            **note,
        )
    if isinstance(error, SSOError | TokenRetrievalError):
        return AccessDeniedError(f"the AWS login for {where} is not valid ({facts})", remedy="aws sso login", **note)
    if is_tls_configuration(error):
        return StorageError(
            f"{where}: the TLS connection failed (certificate or protocol)",
            remedy="set AWS_CA_BUNDLE to the certificate authority of the endpoint, or correct http:// and https://",
            **note,
        )
    if isinstance(error, ProxyConnectionError):
        return StorageError(f"{where}: the proxy refuses", remedy="check HTTPS_PROXY, HTTP_PROXY, NO_PROXY", **note)
    return StorageError(
        f"{where}: s3:{action} failed ({facts})", remedy="see the store's answer in this message", **note
    )
