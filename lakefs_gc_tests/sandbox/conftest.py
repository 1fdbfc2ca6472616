"""Sandboxes on local files and on S3, and clients of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lakefs_sdk
import pytest
from lakefs_sdk.client import LakeFSClient

from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.base import StoreLocation


@dataclass
class FakeClock:
    """A clock that stands still until it is told to go on."""

    now: datetime = field(default_factory=lambda: datetime(2026, 7, 1, 12, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **duration: float) -> None:
        self.now += timedelta(**duration)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def sdk_client(server: SandboxServer) -> LakeFSClient:
    """The unmodified SDK, as the sandbox's user."""
    return LakeFSClient(
        lakefs_sdk.Configuration(
            host=f"{server.endpoint_url}/api/v1",
            username=server.access_key_id,
            password=server.secret_access_key,
        )
    )


StartSandbox = Callable[..., SandboxServer]


@pytest.fixture
def start_sandbox(tmp_path: Path, clock: FakeClock) -> Iterator[StartSandbox]:
    """Starts sandboxes on local files (or at ``store``); called again, on the same folder."""
    with ExitStack() as running:

        def start(store: StoreLocation | None = None, options: SandboxOptions | None = None) -> SandboxServer:
            location = store or StoreLocation((tmp_path / "objects").as_uri())
            server = SandboxServer(tmp_path / "state", location, options=options, clock=clock)
            return running.enter_context(server)

        yield start
