"""A lake on local files, and a client of it behind a proxy that replaces answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lakefs_proxy import LakeFSProxy


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A sandbox server with a grace period of two hours."""
    with Lake(tmp_path / "lake", options=SandboxOptions(grace_period_seconds=7200)) as lake:
        yield lake


@pytest.fixture
def proxy(lake: Lake) -> Iterator[LakeFSProxy]:
    """A proxy before the sandbox, to spoil its answers."""
    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def waits() -> list[float]:
    """The seconds that a client wants to wait. No time passes."""
    return []


@pytest.fixture
def server(lake: Lake, proxy: LakeFSProxy, waits: list[float]) -> LakeFSClient:
    """A client behind the proxy."""
    return LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}), sleep=waits.append)
