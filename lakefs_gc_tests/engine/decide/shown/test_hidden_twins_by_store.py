"""Hidden twins in Azure's and Google's stores: told by MD5 where the store has one for certain, and otherwise kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.sandbox.azurite import Azurite
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.fake_gcs import FakeGCS
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.uncertain_content import (
    before_fake_gcs_with_composites,
    compose,
    put_append_blob,
    put_blocks,
)

_MOST = 4
_SHIELDED, _SHOWN = "shielded", "shown_by_a_branch"


def of_paths(repository: LakeRepository) -> str:
    """Commit more paths of one size than are looked up; return a hidden twin of one of them."""
    for number in range(_MOST + 2):
        repository.put(f"path/{number}", f"text-{number}")
    repository.commit()
    repository.keep_days(10)
    return repository.put("path/0", "text-0")


def collected(spark: SparkSession, repository: LakeRepository) -> tuple[set[str], dict[str, str]]:
    """Return the candidates, and why other objects are kept."""
    time.sleep(1.1)  # a store's times may be whole seconds
    safety = SafetyParameters(
        max_twin_lookups=_MOST, min_age_hours=0, allow_min_age_below_grace=True, longest_commit_minutes=0
    )
    collector = Collector(spark, repository, safety=safety)
    collector.collect()
    rows = collector.dataset("kept").dataframe.collect()
    return collector.addresses("candidates"), {row["address"]: row["why"] for row in rows}


@pytest.fixture
def in_azure(
    spark: SparkSession,
    azurite: Azurite,
    azure_namespace: StoreLocation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[LakeRepository]:
    """A repository in Azurite."""
    for name, value in azurite.environment.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    with Lake(tmp_path / "lake", azure_namespace, SandboxOptions(grace_period_seconds=0)) as lake:
        yield lake.repository()


def test_in_azure(spark: SparkSession, azurite: Azurite, in_azure: LakeRepository) -> None:
    twin = of_paths(in_azure)
    store = in_azure.store
    garbage = in_azure.put_stray("data/s/of-other-content", b"garbage"[:6])
    # Azure's ETags say nothing about the content, so these two are told apart by their MD5.
    assert not set(store.content_md5([twin, garbage]).values()) & {i.e_tag for i in store.stat_many([garbage]).values()}
    candidates, kept = collected(spark, in_azure)
    assert candidates == {garbage}
    assert kept == {twin: _SHOWN}


@pytest.mark.usefixtures("few_paths")
def test_without_an_md5_in_azure(spark: SparkSession, azurite: Azurite, in_azure: LakeRepository) -> None:
    """It may have any content of its size, so as many paths would be looked up as there are: it is kept."""
    twin = of_paths(in_azure)
    store = in_azure.store
    of_other_size = "data/s/of-other-size"
    put_blocks(azurite, store, "data/s/in-blocks", b"garbag")
    put_append_blob(azurite, store, "data/s/appended", b"garbag")
    put_blocks(azurite, store, of_other_size, b"longer than any path")
    put_blocks(azurite, store, "data/s/in-blocks-with-md5", b"garbag", declared=b"garbag")
    assert store.content_md5(["data/s/in-blocks", "data/s/appended", "data/s/in-blocks-with-md5"]).keys() == {
        "data/s/in-blocks-with-md5"
    }
    candidates, kept = collected(spark, in_azure)
    assert candidates == {of_other_size, "data/s/in-blocks-with-md5"}
    assert kept == dict.fromkeys((twin, "data/s/in-blocks", "data/s/appended"), _SHIELDED)


@pytest.mark.of_ci
@pytest.mark.usefixtures("few_paths")
def test_in_google_s_store(
    spark: SparkSession,
    fake_gcs: FakeGCS,
    gcs_namespace: StoreLocation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A composite object has no MD5, and its CRC32C is none of the checksums that entries have: it is kept."""
    with before_fake_gcs_with_composites(fake_gcs) as (stand_in, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
        with Lake(tmp_path / "lake", gcs_namespace, SandboxOptions(grace_period_seconds=0)) as lake:
            repository = lake.repository()
            twin = of_paths(repository)
            garbage = repository.put_stray("data/s/of-other-content", b"garbag")
            assert collected(spark, repository) == ({garbage}, {twin: _SHOWN})
            compose(fake_gcs, stand_in, repository.store, "data/s/composite", b"gar", b"bag")
            candidates, kept = collected(spark, repository)
            assert candidates == {garbage}
            assert kept == dict.fromkeys((twin, "data/s/composite"), _SHIELDED)
