"""Where paths are too many to look up, an ETag counts as an MD5 only if the store states it for an object."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake, LakeRepository

_FILES = 60
_FEW_LOOKUPS = SafetyParameters(max_twin_lookups=5)  # and the paths of fifty are tried


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def hash_of_client(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def stage(repository: LakeRepository, number: int, e_tag: str, *, name: str = "") -> str:
    content = b"%04d" % number
    key = repository.put_stray(f"data/tables/{name or number}", content)
    repository.stage(f"path-{number:04d}", key, size_bytes=len(content), checksum=e_tag)
    return key


def collect(spark: SparkSession, repository: LakeRepository) -> Collector:
    repository.keep_days(10)
    collector = Collector(spark, repository, safety=_FEW_LOOKUPS)
    collector.collect()
    return collector


@pytest.mark.executors
def test_what_is_proved_is_compared(spark: SparkSession, repository: LakeRepository) -> None:
    for number in range(_FILES):
        stage(repository, number, md5(b"%04d" % number))
    repository.commit()
    twin = stage(repository, 7, md5(b"0007"), name="again")
    garbage = repository.put_stray("data/tables/garbage", b"zzzz")
    collector = collect(spark, repository)
    assert collector.addresses("kept") == {twin}
    assert collector.addresses("candidates") == {garbage}
    proven = collector.manifest("twins_proven_md5s")
    assert proven.rows == collector.manifest("twins_stated_md5s").rows == _FILES - 1, "one is the twin's own"


@pytest.mark.parametrize("in_another_bucket", [False, True])
def test_a_twin_below_an_e_tag_that_is_no_md5(
    spark: SparkSession, repository: LakeRepository, *, in_another_bucket: bool
) -> None:
    """As a client states that has its own hash, or as an import has of an object that was encrypted with SSE-KMS."""
    for number in range(_FILES):
        stage(repository, number, md5(b"%04d" % number))
    if in_another_bucket:
        url = "local://elsewhere/0007"
        repository.stage("path-0007", url, size_bytes=4, checksum=hash_of_client(b"0007"))
    else:
        stage(repository, 7, hash_of_client(b"0007"), name="with-hash-of-client")
    repository.commit()
    twin = stage(repository, 7, hash_of_client(b"0007"), name="again")
    garbage = repository.put_stray("data/tables/garbage", b"zzzz")
    collector = collect(spark, repository)
    assert collector.addresses("kept") == {twin}
    assert garbage in collector.addresses("candidates")
    assert twin not in collector.addresses("candidates")


@pytest.mark.executors
def test_a_copy_that_is_made_twice(spark: SparkSession, repository: LakeRepository) -> None:
    """lakeFS gives the copy the ETag of its source, not that of the object that it writes."""
    for number in range(_FILES):
        stage(repository, number, md5(b"%04d" % number))
    stage(repository, _FILES, hash_of_client(b"%04d" % _FILES))
    repository.copy(f"path-{_FILES:04d}", "copy")
    repository.commit()
    twin = repository.copy(f"path-{_FILES:04d}", "copy")
    collector = collect(spark, repository)
    assert twin not in collector.addresses("uncommitted")
    assert collector.addresses("kept") == {twin}


def test_too_many_paths_without_a_proof(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is known of what they may show, so it is kept, and counted."""
    with Lake(tmp_path / "lake") as lake:
        repository = lake.repository()
        for number in range(_FILES):
            stage(repository, number, hash_of_client(b"%04d" % number))
        repository.commit()
        twin = stage(repository, 7, hash_of_client(b"0007"), name="again")
        garbage = repository.put_stray("data/tables/garbage", b"zzzz")
        collector = collect(spark, repository)
        assert collector.addresses("kept") == {twin, garbage}
        assert collector.manifest("kept").facts["shielded"] == 2
