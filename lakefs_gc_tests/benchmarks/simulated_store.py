"""A simulated object store: S3's protocol, in a separate process, with keys from a formula.

    with SimulatedStore(KeyShape(slices=1000, objects_per_slice=20_000), latency_ms=30) as store:
        with store.environment(): ...open_store(store.location)...

It answers ListObjectsV2 (prefix, delimiter, start-after, continuation, max-keys), HEAD, GET, PUT, DELETE and
DeleteObjects (an outcome for each key). Written objects are in memory. A deleted key of the formula takes one bit. It
does not check signatures. It counts its requests by operation and measures its own processor time, so that a benchmark
can subtract it. A page of 1000 keys takes about 0.3 ms.

Each answer waits for ``latency_ms``. Above ``requests_per_second`` (a bucket of one second's tokens) it answers 503
SlowDown, as S3 does.

Source of the format: AWS S3 API reference.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.benchmarks.simulated_bucket import ACCOUNT, ACCOUNT_KEY, BUCKET, STATS, Bucket, StoreOptions
from lakefs_gc_tests.benchmarks.simulated_keys import KeySource
from lakefs_gc_tests.benchmarks.simulated_protocols import BUCKETS

_ROOTS = {"s3": "s3://", "azure": f"https://{ACCOUNT}.blob.core.windows.net/", "gcs": "gs://"}


@dataclass(frozen=True)
class StoreStats:
    """The requests of the store by operation (``SlowDown``: the rejected ones), and its own CPU seconds."""

    requests: dict[str, int]
    cpu_seconds: float
    deleted: int
    most_at_once: int


class SimulatedStore:
    """The store in a separate process. See the module."""

    def __init__(
        self,
        source: KeySource,
        *,
        latency_ms: float = 0.0,
        requests_per_second: float = 0.0,
        folder: str = "namespace/",
        files: Path | None = None,
        protocol: str = "s3",
    ) -> None:
        self.options = StoreOptions(source, folder, files, latency_ms, requests_per_second, protocol)
        self.location = StoreLocation(f"{_ROOTS[protocol]}{BUCKET}/{folder}")
        self.endpoint = ""

    def __enter__(self) -> SimulatedStore:
        here, there = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(self.options, there), daemon=True
        )
        self._process.start()
        there.close()  # so that the pipe ends if the process ends immediately
        self.endpoint = f"http://127.0.0.1:{here.recv()}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not SIGTERM, because Dagster treats it like SIGINT, which background processes of a shell ignore.
        self._process.kill()
        self._process.join()

    @contextmanager
    def environment(self) -> Iterator[None]:
        """Set the environment variables of this store, for this process and its child processes."""
        before = dict(os.environ)
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN"):
            os.environ.pop(name, None)
        os.environ.update(
            AWS_ENDPOINT_URL_S3=self.endpoint,
            AWS_ACCESS_KEY_ID="simulated",
            AWS_SECRET_ACCESS_KEY="simulated",
            AZURE_STORAGE_ACCOUNT=ACCOUNT,
            AZURE_STORAGE_KEY=ACCOUNT_KEY,
            AZURE_STORAGE_SERVICE_ENDPOINT=f"{self.endpoint}/{ACCOUNT}",
            STORAGE_EMULATOR_HOST=self.endpoint,
        )
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def stats(self) -> StoreStats:
        """Since the start."""
        with urllib.request.urlopen(self.endpoint + STATS) as answer:
            return StoreStats(**json.loads(answer.read()))


class _Connection(asyncio.Protocol):
    """One connection: HTTP/1.1 with keep-alive, one request after the other."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.received += data
        while (end := self.received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.received[:end])
            length = re.search(rb"\r\ncontent-length: *([0-9]+)", head, re.IGNORECASE)
            size = int(length[1]) if length else 0
            if len(self.received) < end + 4 + size:
                if b"100-continue" in head and len(self.received) == end + 4:
                    self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return
            body = bytes(self.received[end + 4 : end + 4 + size])
            del self.received[: end + 4 + size]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        bucket = self.bucket
        method, target, _ = head.split(b" ", 2)
        answer = bucket.answer(method, target, body)
        length = b"" if answer.status.startswith(b"204") else b"Content-Length: %d\r\n" % len(answer.body)
        date = formatdate(usegmt=True).encode()
        header = b"HTTP/1.1 %b\r\nDate: %b\r\n%b%b\r\n" % (answer.status, date, length, answer.headers)
        data = header if method == b"HEAD" else header + answer.body
        bucket.at_once += 1
        bucket.most_at_once = max(bucket.most_at_once, bucket.at_once)
        if bucket.options.latency_ms:
            asyncio.get_running_loop().call_later(bucket.options.latency_ms / 1000, self._send, data)
        else:
            self._send(data)

    def _send(self, data: bytes) -> None:
        self.bucket.at_once -= 1
        self.transport.write(data)


def bucket_of(options: StoreOptions) -> Bucket:
    """Return the content, with the answers of the protocol."""
    protocols: dict[str, type[Bucket]] = {"s3": Bucket, **BUCKETS}
    return protocols[options.protocol](options)


def _serve(options: StoreOptions, ready: Connection) -> None:
    async def run() -> None:
        bucket = bucket_of(options)
        server = await asyncio.get_running_loop().create_server(lambda: _Connection(bucket), "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())
