"""Objects of this namespace that other repositories reference by full address (rule 5)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.collect.references.foreign_references import FILES
from lakefs_gc.engine.spark.scale import SMALL
from lakefs_gc.engine.workspace.workspace import StageOutput, Workspace
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository


def test_an_object_that_another_repository_imported_is_kept(
    spark: SparkSession, lake: Lake, repository: LakeRepository
) -> None:
    imported, garbage = repository.put("x"), repository.put("y")
    repository.delete("x")
    repository.delete("y")
    other, similar = lake.repository("other"), lake.repository("lake-2")
    other.stage("imported", f"local://lake/{imported}")
    other.put("own")
    other.stage("not/ours", f"local://lake-2/{garbage}")  # the same key in a namespace whose name has the same prefix
    other.commit()
    similar.put_stray(garbage, b"another file of that name")
    other.put_stray("_lakefs/" + "0" * 63)  # not an id, so it is not read
    similar.put("z")
    similar.commit()
    collector = Collector(spark, repository)
    collector.collect()
    rows = collector.dataset("foreign_references").dataframe.collect()
    assert [(row["address"], row["repository"]) for row in rows] == [(imported, "other")]
    facts = collector.manifest("foreign_references").facts
    assert (facts["checked"], facts["unreadable"], facts["switched_off"]) == (2, {}, False)
    assert collector.addresses("candidates") == {garbage}

    unsafe = Collector(spark, repository, safety=SafetyParameters(check_foreign_references=False))
    unsafe.run_key = collector.run_key
    unsafe.materialize("foreign_references", "unmatched", "missing", "kept", "candidates")
    assert unsafe.manifest("foreign_references").facts["switched_off"] is True
    assert unsafe.addresses("candidates") == {imported, garbage}


def test_a_small_run_reads_repositories_after_an_empty_one(
    spark: SparkSession, lake: Lake, repository: LakeRepository
) -> None:
    imported = repository.put("x")
    repository.delete("x")
    for name in ("a-without-commits", "b-imports", "c-without-commits", "d-imports"):
        other = lake.repository(name)
        if name.endswith("imports"):
            other.stage("imported", f"local://lake/{imported}")
            other.commit()
    collector = Collector(spark, repository)
    spark.conf.set(SMALL, "true")
    collector.collect()
    rows = collector.dataset("foreign_references").dataframe.collect()
    assert {(row["address"], row["repository"]) for row in rows} == {(imported, "b-imports"), (imported, "d-imports")}


def test_a_range_that_is_written_while_files_are_listed_is_read(
    spark: SparkSession, lake: Lake, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing in the order of names may have a metarange but omit a range that was written before it."""
    imported, garbage = repository.put_stray("data/s/imported"), repository.put_stray("data/s/garbage")
    other = lake.repository("other")
    other.stage("first", f"{repository.namespace}{imported}")
    metarange = other.metadata_file(other.metarange_of(other.commit()))
    [range_id] = read_metarange(other.store.read(metarange), metarange).column("range_id").to_pylist()
    late = other.folder / other.metadata_file(range_id)
    content = late.read_bytes()
    late.unlink()
    write = Workspace.write

    def written(place: Workspace, spark: SparkSession, run_key: str, stage: str, output: StageOutput) -> object:
        manifest = write(place, spark, run_key, stage, output)
        if stage == FILES:
            late.write_bytes(content)
        return manifest

    monkeypatch.setattr(Workspace, "write", written)
    collector = Collector(spark, repository)
    collector.collect()
    assert collector.addresses("foreign_references") == {imported}
    assert collector.manifest("foreign_references").facts["unreadable"] == {}
    assert collector.addresses("candidates") == {garbage}


@pytest.mark.parametrize("mounts", [{"s3://bucket/": "s3://real/"}, {"s3://alias/": "s3://bucket/"}])
def test_an_import_by_another_name_of_the_bucket_is_a_reference(
    spark: SparkSession, tmp_path: Path, store_in_s3: StoreInS3, mounts: dict[str, str]
) -> None:
    """A mount leads from one bucket to another, so both names are those of one folder."""
    [(alias, real)] = mounts.items()
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        own, other = lake.repository("own"), lake.repository("other")
        own.put("a")
        shared, mine = own.put_stray("data/slice/shared", b"shared"), own.put_stray("data/slice/mine", b"minemine")
        name = own.namespace.replace("s3://bucket/", real if real != "s3://bucket/" else alias)
        other.stage("imported", name + shared, size_bytes=6)
        own.stage("own-import", name + mine, size_bytes=8)
        other.commit()
        own.commit()
        garbage = own.put_stray("data/slice/garbage", b"no")
        settings = lake.settings.model_copy(update={"mounts": mounts})
        collector = Collector(spark, own, settings=settings)
        collector.collect()
        assert collector.addresses("candidates") == {garbage}
