"""Fixtures of the tests of sweeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.looking import Looking


@pytest.fixture
def in_s3(store_in_s3: StoreInS3, tmp_path: Path) -> Iterator[LakeRepository]:
    """A repository in an S3 server that can be told to fail."""
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        yield lake.repository()


@pytest.fixture
def looking(spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch) -> Looking:
    return Looking(spark, repository, monkeypatch)
