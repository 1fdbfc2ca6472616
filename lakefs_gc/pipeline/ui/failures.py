"""Shows in the Dagster UI what an asset is doing, what went wrong, and what to do, instead of a stack trace."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar

from dagster import Failure
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.engine.spark.workers import failure_of_spark
from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.pipeline.ui.metadata import Metadata

F = TypeVar("F", bound=Callable[..., Any])


class failures_shown:  # noqa: N801 - used like a function
    """Turn a ``LakeFSGCError`` into Dagster's ``Failure``, whose message and metadata the UI shows first.

    The error is the cause of the failure. Meanwhile, a line in the log says from time to time what the run is doing.
    As a decorator of an asset it also shows the asset's name as a step of the progress.
    """

    def __init__(self) -> None:
        self._progress = ExitStack()

    def __enter__(self) -> None:
        self._progress.enter_context(RUN_PROGRESS.logged())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.close()
        if isinstance(error, PySparkException | Py4JError):  # actions convert theirs, other calls do not
            error = failure_of_spark(error)
        if isinstance(error, LakeFSGCError):
            raise failure_of(error, {}) from error

    def __call__(self, asset: F) -> F:
        @wraps(asset)
        def shown(*arguments: Any, **named: Any) -> Any:
            with failures_shown(), RUN_PROGRESS.step(asset.__name__):
                return asset(*arguments, **named)

        return shown  # type: ignore[return-value]


def failure_of(error: LakeFSGCError, metadata: Metadata) -> Failure:
    """Return the failure for an error, with additional ``metadata``."""
    remedy = {"what_to_do": error.remedy} if error.remedy else {}
    described = {**remedy, "error": type(error).__name__, **metadata}
    return Failure(error.message, metadata=described, allow_retries=error.transient)
