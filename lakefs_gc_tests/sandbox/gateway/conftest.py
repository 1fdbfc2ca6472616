"""A sandbox with the real clock, which signatures need, and a client of its gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc.sandbox.clock import system_clock
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.gateway_client import s3_client
from lakefs_gc_tests.support.sandbox_place import Place, make_place


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "local":
        root, folder, namespace = (tmp_path / "objects").as_uri(), (tmp_path / "objects/demo").as_uri(), "local://demo"
    else:
        folder = namespace = request.getfixturevalue("s3_namespace").url
        root = namespace.removesuffix("/repository")
    with SandboxServer(tmp_path / "state", StoreLocation(root), clock=system_clock) as server:
        yield make_place(server, folder, namespace)


@pytest.fixture
def s3(place: Place) -> Any:
    return s3_client(place.server)
