"""Entries with full addresses that spell the namespace differently: the objects that they name are live."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake, LakeRepository


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[LakeRepository]:
    with Lake(tmp_path) as lake:
        made = lake.repository()
        made.keep_days(10)
        yield made


def candidates(spark: SparkSession, repository: LakeRepository) -> set[str]:
    collector = Collector(spark, repository)
    collector.collect_and_mark()
    return collector.addresses("candidates")


def by_folder(repository: LakeRepository, key: str) -> str:
    """Return the address of an object as a lakeFS server with a local store issues it for an upload."""
    return f"local://{repository.folder}/{key}"


def test_objects_linked_by_the_servers_folder_are_live(spark: SparkSession, repository: LakeRepository) -> None:
    of_a_parent, staged, of_another, garbage = (repository.put_stray(f"data/s/{name}") for name in "abcd")
    repository.stage("linked", by_folder(repository, of_a_parent), size_bytes=5)
    repository.commit(age_days=1)
    repository.delete("linked")
    repository.put("something")
    repository.commit()
    repository.stage("new", by_folder(repository, staged), size_bytes=5)
    other = repository.lake.repository("other")
    other.stage("imported", by_folder(repository, of_another))
    other.commit()
    assert repository.read("linked", "main~1") == repository.read("new") == b"stray"
    assert candidates(spark, repository) == {garbage}


def test_objects_whose_address_lakefs_decodes_are_live(spark: SparkSession, repository: LakeRepository) -> None:
    _, _, garbage = (repository.put_stray(key) for key in ("my file", "of today", "other file"))
    repository.stage("quoted", f"{repository.namespace}my%20file", size_bytes=5)
    repository.put("something")
    repository.commit()
    repository.stage("asked", f"{repository.namespace}of%20today?x=1", size_bytes=5)
    assert repository.read("quoted") == repository.read("asked") == b"stray"
    assert candidates(spark, repository) == {garbage}
