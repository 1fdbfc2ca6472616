"""The error answers of the API, with lakeFS's messages.

Source: recordings of a real server, and lakeFS ``pkg/graveler/errors.go``, ``pkg/api/controller.go``.
"""

from __future__ import annotations

from lakefs_gc.errors import LakeFSGCError


class ApiError(LakeFSGCError):
    """An error answer: an HTTP status, and the message of the body ``{"message": ...}``."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message, status=status)

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        return int(self.facts["status"])


class NotFound(ApiError):  # noqa: N818 - the name of an answer
    """404: something that the request names does not exist."""

    def __init__(self, what: str = "") -> None:
        super().__init__(404, f"{what} not found" if what else "not found")


class Conflict(ApiError):  # noqa: N818 - the name of an answer
    """409 of a merge: both sides changed the same path."""

    def __init__(self) -> None:
        super().__init__(409, "conflict found")


class NoChanges(ApiError):  # noqa: N818 - the name of an answer
    """400: nothing to commit or to merge."""

    def __init__(self, context: str = "") -> None:
        super().__init__(400, f"{context}: no changes" if context else "no changes")


def invalid(argument: str, kind: str, more: str = "") -> ApiError:
    """Return the error 400 for an invalid argument, e.g. ``argument branch: branch id: invalid value: ...``."""
    return ApiError(400, f"argument {argument}: {kind}invalid value: validation error{more}")


def missing(argument: str) -> ApiError:
    """Return the error 400 for an empty argument."""
    return ApiError(400, f"argument {argument}: required value: validation error")


def dirty(branch: str = "") -> ApiError:
    """Return the error 400 for an operation that needs a branch without uncommitted changes."""
    message = "uncommitted changes (dirty branch)"
    return ApiError(400, f"{branch}: {message}" if branch else message)


def already_exists(what: str) -> ApiError:
    """Return the error 409 for a name that is in use."""
    return ApiError(409, f"{what} already exists: not unique")


def read_only() -> ApiError:
    """Return the error 403 for a write to a read-only repository."""
    return ApiError(403, "read-only repository")


def gone() -> ApiError:
    """Return the error 410 for an object that is no longer in the store."""
    return ApiError(410, "No data")
