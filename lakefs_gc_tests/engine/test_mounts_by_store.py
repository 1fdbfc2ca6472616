"""Mounts between URLs of Azure: marks and sweeps go where the mount leads."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.sandbox.azurite import ACCOUNT, Azurite
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.collector import Collector, Lake, LakeRepository, counts

_SAFETY = SafetyParameters(min_age_hours=0, allow_min_age_below_grace=True, longest_commit_minutes=0)
_GARBAGE = {"data/s/garbage", "data/s/é +%"}


def filled(repository: LakeRepository) -> set[str]:
    """Write live objects and garbage; return the keys of the live ones."""
    live = {repository.put("live"), repository.put("deleted later")}
    repository.commit()
    repository.keep_days(10)
    for key in _GARBAGE:
        repository.put_stray(key)
    return live


def mounted(spark: SparkSession, repository: LakeRepository, mounts: dict[str, str]) -> Collector:
    time.sleep(1.1)  # the times of the stores are whole seconds
    return Collector(
        spark, repository, safety=_SAFETY, settings=repository.lake.settings.model_copy(update={"mounts": mounts})
    )


def test_the_private_link_of_an_account(
    spark: SparkSession,
    azurite: Azurite,
    azure_namespace: StoreLocation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another host of the account. An object that is staged by a URL with that host is live, too."""
    for name, value in azurite.environment.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    with Lake(tmp_path / "lake", azure_namespace, SandboxOptions(grace_period_seconds=0)) as lake:
        repository = lake.repository()
        live = filled(repository)
        link = repository.namespace.replace(f"{ACCOUNT}.blob", f"{ACCOUNT}.privatelink.blob")
        assert link != repository.namespace
        live.add(repository.put_stray("data/s/linked"))
        repository.stage("linked", f"{link}data/s/linked", size_bytes=5)
        repository.commit()
        collector = mounted(spark, repository, {repository.namespace: link})
        mark = collector.collect_and_mark()
        assert collector.run.store.url == link
        assert collector.addresses("candidates") == _GARBAGE
        assert counts(collector.sweep(mark)) == {"deleted": len(_GARBAGE)}
        assert repository.objects() == live
        assert repository.read("live") == b"live"
