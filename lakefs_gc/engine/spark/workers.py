"""Code that runs in Spark's Python workers, and the way its errors come back to the driver.

A worker that raises one of ours would reach the driver as the text of a stack trace.  ``worker`` puts the error into
that text as one line of JSON, and ``driver_errors`` takes it out again, so that a damaged range is a
``CorruptRangeError`` with its file and offset, whoever read it.
"""

from __future__ import annotations

import gc
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lakefs_gc import errors
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

P = ParamSpec("P")
Batches = Iterator[pa.RecordBatch]

_MARKER = "lakefs-gc-error:"
_MARKED = re.compile(re.escape(_MARKER) + r"(\{.*?\}):end")


_CAUSE = re.compile(r"^(?:Caused by: |: )?([\w.$]+(?:Error|Exception): \S.*)$", re.MULTILINE)
_LONGEST_REASON = 500
_REMEDY = "nothing is lost: see Spark's log for the whole story, and start a new run"
_REMEDIES = {
    "No space left on device": "free some space where the workspace and spark.local.dir lie, and start a new run",
    "OutOfMemoryError": "give Spark more memory (spark.driver.memory, spark.executor.memory), and start a new run",
    "Python worker exited unexpectedly": "look whether the system killed a Python worker for its memory; "
    "fewer tasks at once (spark.master, spark.executor.cores) need less; then start a new run",
}
"""What to do, by a sign in the stack trace."""


class WorkerError(Exception):
    """Carries one of our errors through Spark as text."""


def worker(function: Callable[Concatenate[Batches, P], Batches]) -> Callable[P, Callable[[Batches], Batches]]:
    """Make ``function(batches, ...)`` a factory of functions for ``mapInArrow`` whose errors survive the way back."""

    @wraps(function)
    def bind(*args: P.args, **kwargs: P.kwargs) -> Callable[[Batches], Batches]:
        def run(batches: Batches) -> Batches:
            _spare_modules()
            try:
                yield from function(batches, *args, **kwargs)
            except errors.LakeFSGCError as error:
                raise WorkerError(_to_text(error)) from error

        return run

    return bind


_modules = 0


def _spare_modules() -> None:
    """Keep the garbage collection after each task of a Python worker from walking through all modules: 90 ms a task."""
    global _modules
    if _modules != len(sys.modules):
        _modules = len(sys.modules)
        gc.freeze()


@contextmanager
def driver_errors() -> Iterator[None]:
    """Turn the failure of a Spark action back into the error of ours that caused it, if one did."""
    try:
        yield
    except errors.LakeFSGCError:
        raise
    except (PySparkException, Py4JError) as error:
        text = str(error)
        found = _from_text(text)
        if found is None:
            raise _spark_failed(text) from error
        raise found from None


def _spark_failed(text: str) -> errors.SparkFailedError:
    """The innermost of the causes that a stack trace names."""
    causes = _CAUSE.findall(text)
    reason = causes[-1] if causes else text.strip().partition("\n")[0]
    remedy = next((remedy for sign, remedy in _REMEDIES.items() if sign in text), _REMEDY)
    return errors.SparkFailedError(f"Spark could not finish: {reason[:_LONGEST_REASON]}", remedy=remedy)


def _to_text(error: errors.LakeFSGCError) -> str:
    content = {
        "class": type(error).__name__,
        "message": error.message,
        "remedy": error.remedy,
        "facts": {name: value for name, value in error.facts.items() if isinstance(value, str | int | float | bool)},
    }
    return f"{_MARKER}{json.dumps(content)}:end"


def _from_text(text: str) -> errors.LakeFSGCError | None:
    found = _MARKED.search(text)
    if found is None:
        return None
    content: dict[str, Any] = json.loads(found[1])
    error_class = getattr(errors, content["class"], errors.LakeFSGCError)
    return errors._rebuild(error_class, content["message"], content["remedy"], content["facts"])


@lru_cache(maxsize=32)
def worker_store(location: StoreLocation) -> ObjectStore:
    """The store at ``location``, opened once in each worker: a new S3 client costs a quarter of a second."""
    return open_store(location)


def strings(batches: Iterable[pa.RecordBatch], column: str) -> Iterator[str]:
    """The values of a string column, row after row.  For names of files and prefixes, not for addresses."""
    for batch in batches:
        yield from batch.column(column).to_pylist()
