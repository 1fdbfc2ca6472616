"""A commit that names its object by a relative address with empty parts, ``.`` or ``..`` keeps it.

A lakeFS server keeps the address of an object that was staged as ``<namespace>data//slice/x`` as a relative one.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake


def test_a_committed_address_with_two_slashes_keeps_its_object(
    spark: SparkSession, tmp_path: Path, s3_namespace: StoreLocation
) -> None:
    with Lake(tmp_path / "lake", s3_namespace) as lake:
        repository = lake.repository()
        repository.keep_days(10)
        live, garbage = repository.put_stray("data/slice/live", b"live"), repository.put_stray("data/slice/garbage")
        repository.stage("path", f"{repository.namespace}data//slice/live", size_bytes=4)
        repository.put_stray("data/slice/overwritten", b"twin")
        repository.stage("twin", "data/slice/overwritten", size_bytes=4, checksum="c")
        repository.commit()
        # lakeFS sees no change here, so no list has it.
        twin = repository.put_stray("data/slice/twin", b"twin")
        repository.stage("twin", f"{repository.namespace}data//slice/twin", size_bytes=4, checksum="c")
        time.sleep(1.1)  # S3 has whole seconds
        safety = SafetyParameters(min_age_hours=0, allow_min_age_below_grace=True, longest_commit_minutes=0)
        collector = Collector(spark, repository, safety=safety)
        collector.sweep(collector.collect_and_mark())
        assert repository.read("path") == b"live"
        assert repository.read("twin") == b"twin"
        assert {live, garbage, twin} & repository.objects() == {live, twin}


@pytest.mark.parametrize("through_root", [False, True])
@pytest.mark.parametrize("is_mounted", [False, True])
def test_relative_addresses_that_lead_out_of_a_namespace(
    spark: SparkSession, lake: Lake, tmp_path: Path, is_mounted: bool, through_root: bool
) -> None:
    """On a disk, ``other/data/../../repo/data/x`` is ``repo/data/x``: of another repository, and of this one.

    ``is_mounted``: a mount of its own leads to the other folder. The paths are the server's all the same.
    ``through_root``: they go up to the root of the disk.
    """
    repository, other = lake.repository(), lake.repository("other")
    repository.keep_days(10)
    objects = [repository.put_stray(f"data/slice/{name}", b"live") for name in ("own", "foreign", "garbage")]
    folder = f"../{repository.namespace.rstrip('/').rpartition('/')[2]}"
    if through_root:
        folder = "../" * (len(repository.folder.parts) - 1) + str(repository.folder).lstrip("/")
    for holder, key in zip((repository, other), objects, strict=False):
        holder.put("first")
        holder.stage("path", f"{holder.namespace}data/../{folder}/{key}", size_bytes=4)
        holder.commit()
        holder.delete("path")  # a branch would show what is no reference
        holder.commit()
    alone = tmp_path / "alone"
    alone.symlink_to(other.folder)
    mounts = {**lake.settings.mounts, **({other.namespace: f"{alone.as_uri()}/"} if is_mounted else {})}
    collector = Collector(spark, repository, settings=lake.settings.model_copy(update={"mounts": mounts}))
    collector.sweep(collector.collect_and_mark())
    assert set(objects) & repository.objects() == set(objects[:2])
