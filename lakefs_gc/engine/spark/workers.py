"""Run code in Spark's Python workers, and return its errors to the driver.

The driver gets an error of a worker only as the text of a stack trace. ``worker`` adds the error to that text as one
line of JSON, and ``driver_errors`` restores it. So a damaged range is a ``CorruptRangeError`` with its file and offset,
in the driver and in workers.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.serializers import CloudPickleSerializer

from lakefs_gc import errors
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.endpoints import endpoints_for_workers, following, whose_clients
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

P = ParamSpec("P")
T = TypeVar("T")
Batches = Iterator[pa.RecordBatch]

_MARKER = "lakefs-gc-error:"
_MARKED = re.compile(re.escape(_MARKER) + r"(\{.*?\}):end")


_PICKLES = cast(Any, CloudPickleSerializer)()
"""With which Spark itself sends functions to its workers."""

_CAUSE = re.compile(r"^(?:Caused by: |: )?([\w.$]+(?:Error|Exception): \S.*)$", re.MULTILINE)
_RPC_DETAILS = re.compile(r'^\s*details = "(.+)"$', re.MULTILINE)
_LONGEST_REASON = 500
_REMEDY = "Check Spark's log for the full error, then start a new run. Nothing is lost"
_REMEDIES = {
    "No space left on device": "Free disk space for the workspace and for spark.local.dir, then start a new run",
    "OutOfMemoryError": "Raise spark.driver.memory and spark.executor.memory, then start a new run",
    "Python worker exited unexpectedly": "Check whether the system killed a Python worker for its memory. "
    "If so, reduce the concurrent tasks (spark.master, spark.executor.cores), then start a new run",
    "failed to connect to all addresses": "The server of Spark Connect has ended, or cannot be reached. Read its log "
    "(of a server that stays on this machine: in spark-connect-USER, in the folder for temporary files), then start a "
    "new run. Nothing is lost",
    "No FileSystem for scheme": "Set work_url to a folder that every machine of Spark reaches (file:///...). Or give "
    'Spark the client for this store: in [spark], "spark.jars.packages" = "org.apache.hadoop:hadoop-aws:VERSION" with '
    "the version of Hadoop that your Spark has, and s3a:// in work_url",
}
"""The remedy for each text in a stack trace."""


class Proof(Protocol):
    """Shows whether a store is the one that the process of a run has read (``witness.Witness``)."""

    @property
    def store(self) -> StoreLocation: ...

    def refuse_other(self, store: ObjectStore) -> None:
        """Raise ``StorageError`` if it is another one."""


_proof_of_run: tuple[Hashable, Proof] | None = None


def require_of_tasks(proof: Proof) -> None:
    """Let each task that is created from now on compare its store with ``proof`` before it does anything else.

    That holds until the end of ``proofs_of_tasks``, and for tasks of this run only.

    A machine of a cluster may have other credentials or another mount, and a worker may have a client of before they
    changed. What such a task reads for a second look says nothing about the store in which the sweep deletes. Each task
    sends a request for that.
    """
    global _proof_of_run
    _proof_of_run = whose_clients(), proof


@contextmanager
def proofs_of_tasks() -> Iterator[None]:
    """Let tasks that are created after this block need none of the proofs that were required in it."""
    global _proof_of_run
    try:
        yield
    finally:
        _proof_of_run = None


def refuse_unproved(proof: Proof) -> None:
    """Raise ``ConfigurationError`` unless ``proof`` was required of every task since ``require_of_tasks``."""
    if _proof_of_clients() is not proof:
        raise ConfigurationError(
            f"Another run of this process began or ended during the second look at {proof.store.folder_url}, so not "
            "every task of the look has compared its store with that of the sweep",
            remedy="Sweep in a process that has no other run at the same time, as Dagster and the command line do. "
            "Then sweep again: the sweep continues with the remaining objects",
        )


def _proof_of_clients() -> Proof | None:
    whose, proof = _proof_of_run or (None, None)
    return proof if whose == whose_clients() else None


class WorkerError(Exception):
    """Carries an error of lakefs-gc through Spark as text."""


def worker(function: Callable[Concatenate[Batches, P], Batches]) -> Callable[P, Callable[[Batches], Batches]]:
    """Make ``function(batches, ...)`` a factory of functions for ``mapInArrow`` whose errors reach the driver."""

    @wraps(function)
    def bind(*args: P.args, **kwargs: P.kwargs) -> Callable[[Batches], Batches]:
        return _Task(function, args, kwargs)

    return bind


class _Task:
    """A function of workers with its arguments. All of it is pickled with a checksum.

    Spark passes a function of more than 1 MiB, which a filter of sizes makes it, through files that have none. A bit
    that flips in its code turns a comparison around.
    """

    def __init__(
        self,
        function: Callable[..., Batches],
        args: Any,
        kwargs: Any,
        endpoints: dict[str, str] | None = None,
        proof: Proof | None = None,
    ) -> None:
        """In a worker: the ``endpoints`` of the run (``storage.endpoints``), and its ``proof``, if it has one."""
        self._function, self._args, self._kwargs = function, args, kwargs
        self._endpoints, self._proof = endpoints, proof

    def __call__(self, batches: Batches) -> Batches:
        _spare_modules()
        try:
            in_worker = TaskContext.get() is not None
            with nullcontext() if self._endpoints is None else following(self._endpoints, stays=in_worker):
                # In the process of a small run, nothing was carried.
                proof = _proof_of_clients() if self._endpoints is None else self._proof
                if proof is not None:
                    proof.refuse_other(worker_store(proof.store))
                yield from self._function(batches, *self._args, **self._kwargs)
        except errors.LakeFSGCError as error:
            raise WorkerError(_to_text(error)) from error

    def __reduce__(self) -> tuple[Any, ...]:
        carried = endpoints_for_workers(), _proof_of_clients()
        content: bytes = _PICKLES.dumps((self._function, self._args, self._kwargs, *carried))
        return _unpickled, (content, zlib.crc32(content))


def _unpickled(content: bytes, checksum: int) -> _Task:
    if zlib.crc32(content) != checksum:
        damaged = errors.CorruptFileError(
            "a task of Spark",
            "its function and arguments are not those that this machine sent",
            remedy="Check the disks of Spark's machines (spark.local.dir), then start a new run",
        )
        raise WorkerError(_to_text(damaged))
    return _Task(*_PICKLES.loads(content))


_modules = 0


def _spare_modules() -> None:
    """Exclude modules from Python's garbage collection, which takes 90 ms after each task of a worker otherwise."""
    global _modules
    if _modules != len(sys.modules):
        _modules = len(sys.modules)
        gc.freeze()


@contextmanager
def driver_errors() -> Iterator[None]:
    """Replace the failure of a Spark action with the error of lakefs-gc that caused it, if any."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        failure = failure_of_spark(error)
        raise failure from (error if isinstance(failure, errors.SparkFailedError) else None)


def failure_of_spark(error: PySparkException | Py4JError) -> errors.LakeFSGCError:
    """Return the error of lakefs-gc that made an action of Spark fail, or else a ``SparkFailedError``."""
    text = str(error)
    return _from_text(text) or _spark_failed(text)


def interruptible(action: Callable[[], T]) -> T:
    """Return the result of an action of Spark, which another thread calls. Raise its errors.

    In the thread that handles signals, py4j does not let an interruption out before the action has ended: on its way,
    PySpark sends another command through the connection that is waiting.
    """
    pool = ThreadPoolExecutor(1, "spark-action")
    try:
        return pool.submit(action).result()
    finally:
        pool.shutdown(wait=False)


def _spark_failed(text: str) -> errors.SparkFailedError:
    """Return an error with the innermost cause in a stack trace."""
    causes = _CAUSE.findall(text) or _RPC_DETAILS.findall(text)
    reason = causes[-1] if causes else text.strip().partition("\n")[0]
    remedy = next((remedy for part, remedy in _REMEDIES.items() if part in text), _REMEDY)
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
    match = _MARKED.search(text)
    if match is None:
        return None
    content: dict[str, Any] = json.loads(match[1])
    error_class = getattr(errors, content["class"], errors.LakeFSGCError)
    return errors._rebuild(error_class, content["message"], content["remedy"], content["facts"])


def worker_store(location: StoreLocation) -> ObjectStore:
    """Return the store at ``location``, opened once for each run in each worker, and in the process of a small run.

    A new S3 client takes a quarter of a second. That of an earlier run may lead elsewhere than the files do now.
    """
    return _opened(location, whose_clients(), frozenset(os.environ.items()))


@lru_cache(maxsize=32)
def _opened(location: StoreLocation, whose: Hashable, environment: Hashable) -> ObjectStore:
    """``environment``: this process may have another endpoint and other credentials next time."""
    return open_store(location)


def strings(batches: Iterable[pa.RecordBatch], column: str) -> Iterator[str]:
    """Yield the values of a string column. For names of files and prefixes, not for millions of addresses."""
    for batch in batches:
        yield from batch.column(column).to_pylist()
