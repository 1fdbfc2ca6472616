"""One client for the stores of a bucket that are opened one after another.

A mark opens two stores for each repository of the server, mostly in one bucket. A client of boto3 takes 10 ms, and its
first request a new connection. A small mark beside 14 other repositories created 45 clients, now 4, and takes 6.1 s,
not 7.1 s (``spark.local.connect.reuse``, six runs in turns on 2 cores).

A store with a limit of requests has a client of its own (``S3Store.limit_requests``): the limit is one of its work.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from lakefs_gc.storage.endpoints import S3, check_endpoint, whose_clients
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc.storage.s3.client import RetryingClient

_SHARED_SECONDS = 30
"""How long a client is given to further stores of a run: not for ever, because credentials in files may change."""


@dataclass(frozen=True)
class _Setup:
    """What a client depends on, except files."""

    bucket: str
    retry: RetryPolicy
    process: int = field(default_factory=os.getpid)  # connections do not survive a fork
    whose: frozenset[tuple[str, str]] = field(default_factory=whose_clients)
    environment: frozenset[tuple[str, str]] = field(default_factory=lambda: frozenset(os.environ.items()), repr=False)


_recent: dict[_Setup, tuple[float, RetryingClient]] = {}


def shared_client(bucket: str, retry: RetryPolicy) -> RetryingClient:
    """Return the client that another store of this bucket got in the last seconds in this process, or a new one.

    Not for two threads at once: ``ProcessClient`` calls it with a lock. Raise the errors of ``RetryingClient``.
    """
    now = time.monotonic()
    for setup in [setup for setup, (created_at, _) in _recent.items() if now - created_at >= _SHARED_SECONDS]:
        del _recent[setup]
    setup = _Setup(bucket, retry)
    if setup not in _recent:
        _recent[setup] = (now, RetryingClient(bucket, retry))
    client = _recent[setup][1]
    check_endpoint(S3, client.endpoint)  # again: the environment may have changed, and be as before now
    return client
