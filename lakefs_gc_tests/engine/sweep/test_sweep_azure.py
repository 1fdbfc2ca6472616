"""A mark and a sweep in an Azure account with soft delete (in Azurite), holds or folders (by a stand-in)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.sandbox.azurite import Azurite
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.azure_account import AzureAccount, azure_account, soft_delete
from lakefs_gc_tests.support.collector import Collector, counts, marked
from lakefs_gc_tests.support.lake import Lake, LakeRepository

_GARBAGE = ("data/s/held", "data/s/retained", "data/s/free", "data/t/free")


@pytest.fixture
def account(
    spark: SparkSession, azurite: Azurite, azure_namespace: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AzureAccount]:
    """A stand-in before Azurite, which this process and Spark's workers use."""
    assert azure_namespace.url
    with azure_account(azurite) as (account, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
        yield account


@pytest.fixture
def repository(account: AzureAccount, azure_namespace: StoreLocation, tmp_path: Path) -> Iterator[LakeRepository]:
    """A repository with a live object and garbage."""
    assert account.endpoint
    with Lake(tmp_path / "lake", azure_namespace, SandboxOptions(grace_period_seconds=0)) as lake:
        repository = lake.repository()
        for key in _GARBAGE:
            repository.put_stray(key)
        repository.put("live")
        repository.commit()
        repository.keep_days(10)
        time.sleep(1.1)  # the times of the store are whole seconds
        yield repository


def collector_of(spark: SparkSession, repository: LakeRepository) -> Collector:
    safety = SafetyParameters(min_age_hours=0, allow_min_age_below_grace=True, longest_commit_minutes=0)
    return Collector(spark, repository, safety=safety)


def test_what_is_held_is_locked_and_the_mark_says_where_the_bytes_stay(
    spark: SparkSession, azurite: Azurite, account: AzureAccount, repository: LakeRepository
) -> None:
    account.container_headers = {"x-ms-has-legal-hold": "true"}
    account.held = {"data/s/held": "BlobImmutableDueToLegalHold", "data/s/retained": "BlobImmutableDueToPolicy"}
    live = repository.objects() - set(_GARBAGE)
    with soft_delete(azurite, 5):
        collector = collector_of(spark, repository)
        mark = collector.collect_and_mark()
        assert marked(repository, mark) == set(_GARBAGE)
        said = mark.run["deleted_bytes"]
        assert said.startswith("not freed: ")
        assert "keeps deleted blobs for 5 days (soft delete)" in said
        assert "has a legal hold: locked blobs cannot be deleted" in said
        result = collector.sweep(mark)
    result.raise_if_incomplete()  # what is locked is no failure
    assert counts(result) == {"deleted": 2, "locked": 2}
    assert collector.errors["data/s/held"].startswith("BlobImmutableDueToLegalHold")
    assert repository.objects() == {*live, "data/s/held", "data/s/retained"}

    account.held = {"data/s/retained": "BlobImmutableDueToPolicy"}
    again = collector_of(spark, repository)
    assert counts(again.sweep(mark)) == {"deleted": 3, "locked": 1}
    assert repository.objects() == {*live, "data/s/retained"}
    assert repository.read("live") == b"live"


@pytest.mark.executors  # whose processes ask for the properties of the account anew
def test_a_hierarchical_namespace_ends_the_run(
    spark: SparkSession, account: AzureAccount, repository: LakeRepository
) -> None:
    before = repository.objects()
    account.account_headers = {"x-ms-is-hns-enabled": "true"}
    with pytest.raises(ConfigurationError, match="hierarchical namespace"):
        collector_of(spark, repository).collect(until="store_listing")
    account.account_headers = {}
    mark = collector_of(spark, repository).collect_and_mark()
    account.account_headers = {"x-ms-is-hns-enabled": "true"}  # which only a migration of the account can do
    with pytest.raises(ConfigurationError, match="hierarchical namespace"):
        collector_of(spark, repository).sweep(mark)
    account.account_headers = {}
    assert repository.objects() == before
