"""Shows in the Dagster UI what went wrong and what to do, instead of a stack trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import Failure

from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.pipeline.metadata import Metadata


@contextmanager
def failures_shown() -> Iterator[None]:
    """Turn a ``LakeFSGCError`` into Dagster's ``Failure``, whose message and metadata the UI shows first.

    Can be used as a decorator, too. The error is the cause of the failure.
    """
    try:
        yield
    except LakeFSGCError as error:
        raise failure_of(error, {}) from error


def failure_of(error: LakeFSGCError, metadata: Metadata) -> Failure:
    """Return the failure for an error, with additional ``metadata``."""
    remedy = {"what_to_do": error.remedy} if error.remedy else {}
    described = {**remedy, "error": type(error).__name__, **metadata}
    return Failure(error.message, metadata=described, allow_retries=error.transient)
