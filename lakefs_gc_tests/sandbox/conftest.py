"""Sandboxes on local files and on S3, and clients of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.fake_clock import FakeClock
from lakefs_gc_tests.support.sandbox_place import Place, StartSandbox, make_place


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def start_sandbox(tmp_path: Path, clock: FakeClock) -> Iterator[StartSandbox]:
    """Start sandboxes on local files (or at ``store``). A second call uses the same folder."""
    with ExitStack() as running:

        def start(store: StoreLocation | None = None, options: SandboxOptions | None = None) -> SandboxServer:
            location = store or StoreLocation((tmp_path / "objects").as_uri())
            server = SandboxServer(tmp_path / "state", location, options=options, clock=clock)
            return running.enter_context(server)

        yield start


@pytest.fixture
def local(start_sandbox: StartSandbox, tmp_path: Path) -> Place:
    return make_place(start_sandbox(), (tmp_path / "objects" / "demo").as_uri(), "local://demo")


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, start_sandbox: StartSandbox) -> Place:
    if request.param == "local":
        found: Place = request.getfixturevalue("local")
        return found
    location: StoreLocation = request.getfixturevalue("s3_namespace")
    root = StoreLocation(location.url.removesuffix("/repository"))
    return make_place(start_sandbox(root), location.url, location.url)
