"""The errors of the gateway, in the form that S3 clients expect.

Source: lakeFS ``pkg/gateway/errors/errors.go``.
"""

from __future__ import annotations

from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.sandbox.problems import ApiError


class S3Error(LakeFSGCError):
    """An error answer: an HTTP status, and S3's code and message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message, status=status, code=code)
        self.status = status
        self.code = code


def no_such_bucket() -> S3Error:
    """Return the error 404 for a missing repository, or a missing branch of a write."""
    return S3Error(404, "NoSuchBucket", "The specified bucket does not exist")


def bucket_exists() -> S3Error:
    """Return the error 409 for the creation of a bucket that is a repository."""
    return S3Error(409, "BucketAlreadyExists", "The requested bucket name is not available.")


def no_such_key() -> S3Error:
    """Return the error 404 for a missing object."""
    return S3Error(404, "NoSuchKey", "The specified key does not exist.")


def no_such_upload() -> S3Error:
    """Return the error 404 for a multipart upload that does not exist or has ended."""
    return S3Error(404, "NoSuchUpload", "The specified multipart upload does not exist.")


def invalid_part() -> S3Error:
    """Return the error 400 for the completion of an upload with a part that is missing or differs."""
    return S3Error(400, "InvalidPart", "One or more of the specified parts could not be found.")


def invalid_argument(message: str) -> S3Error:
    """Return the error 400 for an invalid parameter."""
    return S3Error(400, "InvalidArgument", message)


def bad_digest() -> S3Error:
    """Return the error 400 for a body that does not match its checksum."""
    return S3Error(400, "BadDigest", "The checksum that you specified did not match what we received.")


def malformed_xml() -> S3Error:
    """Return the error 400 for a body that is not the expected document."""
    return S3Error(400, "MalformedXML", "The XML you provided was not well-formed.")


def not_implemented() -> S3Error:
    """Return the error 501 for an unsupported request."""
    return S3Error(501, "NotImplemented", "The sandbox's S3 gateway does not implement this.")


def s3_error(error: ApiError) -> S3Error:
    """Return an error of the API as an error of S3."""
    if error.status == 404:
        return no_such_bucket() if error.message.startswith(("repository", "branch")) else no_such_key()
    code = {
        400: "InvalidArgument",
        403: "AccessDenied",
        410: "NoSuchVersion",
        412: "PreconditionFailed",
        416: "InvalidRange",
    }.get(error.status, "InternalError")
    # As in lakeFS, an object whose bytes are deleted is a missing version.
    return S3Error(404 if error.status == 410 else error.status, code, error.message)
