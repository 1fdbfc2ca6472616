"""Fixtures of the tests of sweeps."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.looking import Looking


@pytest.fixture
def looking(spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch) -> Looking:
    return Looking(spark, repository, monkeypatch)
