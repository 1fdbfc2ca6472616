"""The stores of the contract tests: a folder, the S3 server, and the emulators of Azure's and of Google's store."""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc.storage import local, local_folder
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc_tests.support.store_proxy import (
    StoreAnswer,
    StoreProxy,
    StoreRequest,
    azure_error,
    before_azurite,
    before_fake_gcs,
    before_seaweedfs,
    gcs_error,
    s3_error,
)

KINDS = ("local", "s3", "azure", "gcs")
REMOTE = KINDS[1:]
QUICK = RetryPolicy(tries=3, tries_when_slow=6, base_seconds=0.001)

Fault = Callable[[], StoreAnswer | OSError]
NO_ANSWER = StoreAnswer(0)


def cut() -> StoreAnswer:
    """Return the answer to a write; that to a read is cut by ``Place.failing``."""
    return NO_ANSWER


_BROKEN: dict[str, Fault] = {"a cut answer": cut, "no answer": lambda: NO_ANSWER}
FAULTS: dict[str, dict[str, Fault]] = {
    "local": {"EIO": lambda: OSError(errno.EIO, os.strerror(errno.EIO))},
    "s3": {**_BROKEN, "500": lambda: s3_error(500, "InternalError")},
    "azure": {**_BROKEN, "500": lambda: azure_error(500, "InternalError")},
    "gcs": {**_BROKEN, "500": lambda: gcs_error(500, "backendError")},
}
"""How a request (of a folder: a system call) may fail for a while, by store."""
SLOW_DOWN: dict[str, dict[str, Fault]] = {
    "s3": {"SlowDown": lambda: s3_error(503, "SlowDown")},
    "azure": {
        "ServerBusy": lambda: azure_error(503, "ServerBusy"),
        "TooManyRequests": lambda: azure_error(429, "TooManyRequests"),
    },
    "gcs": {
        "rateLimitExceeded": lambda: gcs_error(429, "rateLimitExceeded"),
        "429": lambda: StoreAnswer(429, b"Too Many Requests"),
    },
}
"""How a store asks for fewer requests. A folder never does."""


class FaultyDisk:
    """A stand-in for a disk that fails: the system calls of ``LocalStore``, each of which ``faults`` may replace."""

    _CALLS = ("open", "scandir", "stat", "unlink", "rename", "link", "fsync")

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.faults: list[Callable[[str], OSError | None]] = []

    def heal(self) -> None:
        """Let the disk work from now on."""
        self.faults.clear()

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self._CALLS:
            return real

        def call(*arguments: Any, **options: Any) -> Any:
            self.requests.append(name)
            for fault in self.faults:
                if (error := fault(name)) is not None:
                    raise error
            return real(*arguments, **options)

        return call


@dataclass
class Place:
    """A fresh namespace in a store, and what stands before it: ``server`` counts requests, and fails on demand."""

    kind: str
    location: StoreLocation
    server: Any
    """A ``StoreProxy`` or a ``FaultyDisk``."""

    def open(self, retry: RetryPolicy = QUICK) -> ObjectStore:
        return open_store(self.location, retry=retry)

    @contextmanager
    def failing(self, fault: Fault, first: int = 1, last: int | None = None) -> Iterator[None]:
        """Let the requests from the number ``first`` to ``last`` (None: all later ones) fail, counted from now."""
        numbers = itertools.count(1)
        to_cut: list[StoreRequest] = []

        def answer(request: StoreRequest | str) -> Any:
            number = next(numbers)
            if number < first or (last is not None and number > last):
                return None
            if fault is cut and isinstance(request, StoreRequest) and request.operation[0] == "GET":
                to_cut.append(request)
                return None
            return fault()

        def cut_in_half(request: StoreRequest, answer: StoreAnswer) -> StoreAnswer:
            is_cut = any(request is one for one in to_cut)
            return replace(answer, cut_at=len(answer.body) // 2) if is_cut else answer

        self.server.faults.append(answer)
        if isinstance(self.server, StoreProxy):
            self.server.changes.append(cut_in_half)
        try:
            yield
        finally:
            self.server.heal()

    def requests_of(self, call: Callable[[], object]) -> int:
        """Return the number of requests that a call makes."""
        before = len(self.server.requests)
        call()
        return len(self.server.requests) - before

    def proxy(self) -> StoreProxy:
        assert isinstance(self.server, StoreProxy)
        return self.server


@contextmanager
def place_of(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """Yield a fresh namespace of a kind of store."""
    if kind == "local":
        disk = FaultyDisk()
        for module in (local, local_folder):
            monkeypatch.setattr(module, "os", disk)
        yield Place(kind, StoreLocation(f"file://{tmp_path}/namespace"), disk)
        return
    location: StoreLocation = request.getfixturevalue(f"{kind}_namespace")
    before: dict[str, Callable[[], AbstractContextManager[tuple[StoreProxy, dict[str, str]]]]] = {
        "s3": lambda: before_seaweedfs(request.getfixturevalue("s3_server")),
        "azure": lambda: before_azurite(request.getfixturevalue("azurite")),
        "gcs": lambda: before_fake_gcs(request.getfixturevalue("fake_gcs")),
    }
    with before[kind]() as (proxy, variables):
        _set(monkeypatch, variables)
        yield Place(kind, location, proxy)


def _set(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def hanging(seconds: float) -> Fault:
    """Return a fault that answers after so many seconds, too late for the client."""

    def answer() -> StoreAnswer:
        time.sleep(seconds)
        return StoreAnswer(0)

    return answer
