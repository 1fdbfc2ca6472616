"""Jobs of the code location, run in this process on a sandbox, in a real Dagster instance."""

from __future__ import annotations

import pytest
from dagster import DagsterInstance

from lakefs_gc_tests.support.code_location import CodeLocation
from lakefs_gc_tests.support.dagster_fixtures import instance
from lakefs_gc_tests.support.faulty_store import levelled_s3, store_in_s3
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lake_fixtures import lake_of_environment, repository_with_garbage

__all__ = ["instance", "lake_of_environment", "levelled_s3", "repository_with_garbage", "store_in_s3"]


@pytest.fixture
def location(lake: Lake, small_spark_config: dict[str, str], instance: DagsterInstance) -> CodeLocation:
    """The code location for the lake."""
    return CodeLocation.of(lake.settings.model_copy(update={"spark": small_spark_config}), instance)
