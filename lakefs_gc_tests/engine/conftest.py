"""A lake on local files, a repository in it, and collectors of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakefs_gc_tests.support.faulty_store import levelled_s3, store_in_s3
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lake_fixtures import lake
from lakefs_gc_tests.support.lakefs_proxy import LakeFSProxy

__all__ = ["lake", "levelled_s3", "store_in_s3"]


@pytest.fixture
def repository(lake: Lake) -> LakeRepository:
    """An empty repository."""
    return lake.repository()


@pytest.fixture
def proxy(lake: Lake) -> Iterator[LakeFSProxy]:
    """A proxy before the sandbox, to spoil its answers."""
    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        yield proxy
