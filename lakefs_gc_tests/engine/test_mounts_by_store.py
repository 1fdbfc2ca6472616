"""Mounts between URLs of Azure, and between URLs of Google's store: marks and sweeps go where the mount leads."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.errors import SafetyError
from lakefs_gc.sandbox.azurite import ACCOUNT, Azurite
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.fake_gcs import FakeGCS
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.collector import Collector, counts
from lakefs_gc_tests.support.emulators import lead
from lakefs_gc_tests.support.lake import Lake, LakeRepository, keys_below
from lakefs_gc_tests.support.store_proxy import StoreAnswer, StoreProxy, before_fake_gcs

_BUCKET, _OTHER_NAME = "lakefs-gc-tests", "lakefs-gc-mount"
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


@pytest.mark.of_ci
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


class TwoNames(StoreProxy):
    """A stand-in for a store where a bucket has another name, too. Both names are of the same length."""

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> StoreAnswer:
        """See ``StoreProxy``. The body of a batch has paths, too."""
        path = path.replace(f"/b/{_OTHER_NAME}/", f"/b/{_BUCKET}/")
        body = body.replace(f"/b/{_OTHER_NAME}/".encode(), f"/b/{_BUCKET}/".encode())
        return super().answer(method, path, headers, body)


@pytest.mark.of_ci
def test_another_name_of_a_bucket_of_google(
    spark: SparkSession,
    fake_gcs: FakeGCS,
    gcs_namespace: StoreLocation,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """All reads and deletes use the other name. An object that is staged by it is live, too."""
    with before_fake_gcs(fake_gcs) as (proxy, _), TwoNames(proxy.endpoint) as two_names:
        lead(request, {"STORAGE_EMULATOR_HOST": two_names.endpoint})
        with Lake(tmp_path / "lake", gcs_namespace, SandboxOptions(grace_period_seconds=0)) as lake:
            repository = lake.repository()
            live = filled(repository)
            other = repository.namespace.replace(f"gs://{_BUCKET}/", f"gs://{_OTHER_NAME}/")
            assert other != repository.namespace
            live.add(repository.put_stray("data/s/linked"))
            repository.stage("linked", f"{other}data/s/linked", size_bytes=5)
            repository.commit()
            collector = mounted(spark, repository, {f"gs://{_BUCKET}/": f"gs://{_OTHER_NAME}/"})
            mark = collector.collect_and_mark()
            assert collector.run.store.url == other
            assert collector.addresses("candidates") == _GARBAGE
            assert counts(collector.sweep(mark)) == {"deleted": len(_GARBAGE)}
            assert repository.objects() == live
            assert repository.read("live") == b"live"


def test_a_copy_in_google_that_the_server_does_not_write(
    spark: SparkSession,
    gcs_namespace: StoreLocation,
    fake_gcs: FakeGCS,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """The server does not see there what the run has just written. Where a mount leads elsewhere, the run ends."""
    lead(request, fake_gcs.environment)
    with Lake(tmp_path / "lake", gcs_namespace, SandboxOptions(grace_period_seconds=0)) as lake:
        repository = lake.repository()
        live = filled(repository)
        copy = open_store(StoreLocation(gcs_namespace.url.replace("/repository", "/copy")))
        for key in keys_below(repository.store, ""):
            repository.store.copy_to(key, copy, key)
        collector = mounted(spark, repository, {repository.namespace: copy.location.folder_url})
        with pytest.raises(SafetyError, match=r"is another one than gs://.*/copy/"):
            collector.collect(until="active_ranges")
        assert repository.objects() == {*live, *_GARBAGE}
