"""A lake on local files, a repository in it, and collectors of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefs_gc_tests.support.faulty_s3 import FaultyS3
from lakefs_gc_tests.support.faulty_store import StoreInS3, levelled_s3, store_in_s3
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lake_fixtures import lake
from lakefs_gc_tests.support.lakefs_proxy import LakeFSProxy
from lakefs_gc_tests.support.other_server import copy

__all__ = ["copy", "lake", "levelled_s3", "store_in_s3"]


@pytest.fixture
def repository(lake: Lake) -> LakeRepository:
    """An empty repository."""
    return lake.repository()


@pytest.fixture
def in_s3(store_in_s3: StoreInS3, tmp_path: Path) -> Iterator[LakeRepository]:
    """A repository in an S3 server that can be told to fail."""
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        yield lake.repository()


@pytest.fixture
def proxy(lake: Lake) -> Iterator[LakeFSProxy]:
    """A proxy before the sandbox, to spoil its answers."""
    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def plain_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """A server of S3 whose answers a test may spoil, where the standard AWS environment points to."""
    with FaultyS3() as server:
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
        yield server
