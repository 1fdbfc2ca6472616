"""A small run, whose work this process does, decides what executors decide, in few jobs and without Python workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dagster import DagsterInstance
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.config import ListingSettings
from lakefs_gc.engine.collect.listing import earlier_listing, listing_rounds
from lakefs_gc.engine.decide.shown import contents
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.scale import IS_SMALL, Work, is_small
from lakefs_gc.engine.sweep.second_look import SecondLook
from lakefs_gc.engine.workspace import range_cache
from lakefs_gc.engine.workspace import workspace as workspaces
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput, Workspace
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.code_location import CodeLocation, materialized, values
from lakefs_gc_tests.support.collector import STAGES
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lake_fixtures import name_server

_RUN, _LARGE_RUN, _MIXED_RUN = "lake/small", "lake/large", "lake/mixed"
_AT_ONCE = {"min_age_hours": 0, "unsafe_min_age": True}
_MOST_JOBS = 50
"""44 were counted; as many as 66 if executors do the work."""


@pytest.fixture
def lake_in_s3(tmp_path: Path, s3_namespace: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    with Lake(tmp_path / "lake", s3_namespace) as lake:
        name_server(lake, monkeypatch)
        yield lake


def _with_everything(lake: Lake) -> LakeRepository:
    """A repository with expired, staged and deleted objects, hidden twins, and an import by another repository."""
    repository = lake.repository()
    repository.keep_days(5)
    for number in range(3):
        repository.put(f"old/{number}")
    repository.commit(age_days=30)
    for number in range(3):
        repository.delete(f"old/{number}")
    repository.put("live/ä b")
    repository.commit(age_days=20)
    repository.put("live/now")
    repository.commit()
    repository.put("staged/one")
    repository.put_stray("data/garbage-1")
    used = repository.put_stray("data/garbage-2")
    other = lake.repository("other")
    other.put("of another repository")
    other.stage("a/link", repository.namespace + used, size_bytes=5)
    other.commit()
    time.sleep(1.2)  # S3 dates objects by the second: these are older than the cutoff
    return repository


@pytest.mark.long(25)
def test_a_small_run_marks_what_executors_mark(
    lake_in_s3: Lake,
    spark: SparkSession,
    spark_config: dict[str, str],
    instance: DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository = _with_everything(lake_in_s3)
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    small = CodeLocation.of(lake_in_s3.settings.model_copy(update={"spark": {}}), instance)
    large = CodeLocation.of(lake_in_s3.settings.model_copy(update={"spark": spark_config}), instance)
    first_job = scheduler.nextJobId()
    in_process = materialized(small.run("gc_mark", _RUN, store_listing=_AT_ONCE))
    jobs = scheduler.nextJobId() - first_job
    by_executors = materialized(large.run("gc_mark", _LARGE_RUN, store_listing=_AT_ONCE))

    # Workers read the files and ask for the objects, where a small run has many of them.
    with monkeypatch.context() as patch:
        for module, limit in (
            (range_cache, "_FEW_FILES"),
            (range_cache, "_FEW_BYTES"),
            (range_cache, "_FEW_CACHED_BYTES"),
            (contents, "_FEW_OBJECTS"),
            (workspaces, "_MOST_BYTES_HERE"),
        ):
            patch.setattr(module, limit, 0)
        first_job = scheduler.nextJobId()
        mixed = materialized(
            small.run("gc_mark", _MIXED_RUN, store_listing={"min_age_hours": 0, "unsafe_min_age": True})
        )
        jobs_of_mixed = scheduler.nextJobId() - first_job

    workspace = Workspace(lake_in_s3.settings.work_url)
    assert workspace.manifest(_RUN, "store_listing").facts[IS_SMALL]
    assert workspace.manifest(_MIXED_RUN, "store_listing").facts[IS_SMALL]
    assert not workspace.manifest(_LARGE_RUN, "store_listing").facts[IS_SMALL]
    assert jobs <= _MOST_JOBS
    assert jobs_of_mixed > jobs
    one = values(in_process["mark"])
    for run_key, other in ((_LARGE_RUN, by_executors), (_MIXED_RUN, mixed)):
        assert one["dagster/row_count"] == values(other["mark"])["dagster/row_count"] == 4
        for stage in STAGES:
            assert _rows(workspace, spark, _RUN, stage) == _rows(workspace, spark, run_key, stage), (run_key, stage)

    # Its sweep is small, also after a large run in the same session.
    resource = SparkResource()
    resource.scale(False)
    assert not is_small(resource.session)
    looks, real_look = [], SecondLook.__call__

    def look(self: SecondLook, objects: DataFrame) -> DataFrame:
        looks.append(is_small(spark))
        return real_look(self, objects)

    written, real_write = [], Workspace.write

    def write(self: Workspace, session: SparkSession, run_key: str, stage: str, output: StageOutput) -> Any:
        written.append((stage, is_small(session)))
        return real_write(self, session, run_key, stage, output)

    monkeypatch.setattr(SecondLook, "__call__", look)
    monkeypatch.setattr(Workspace, "write", write)
    swept = materialized(small.run("gc_sweep", _RUN, sweep={"approve_digest": one["digest"], "approved_by": "ada"}))
    assert looks == [True]
    assert written[-1] == ("sweep", True)
    assert {small for _, small in written} == {True}
    assert values(swept["sweep"])["deleted_objects"] == 4
    assert repository.read("live/now") == b"live/now"


@pytest.mark.long(25)
@pytest.mark.parametrize(("most", "small"), [(6, True), (5, False)])
def test_a_run_of_a_local_folder_with_few_files_is_small(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, most: int, small: bool
) -> None:
    """A folder has no pages, so its files are counted before the driver lists them."""
    monkeypatch.setattr(listing_rounds, "SMALL_RUN_OBJECTS", most)
    with Lake(tmp_path / "lake") as lake:
        name_server(lake, monkeypatch)
        repository = lake.repository()
        for number in range(6):
            repository.put_stray(f"data/slice-{number % 2}/{number}", age_hours=48)
        location = CodeLocation.of(lake.settings.model_copy(update={"spark": {}}), instance)
        materialized(location.materialize(_RUN, "store_listing"))
        facts = Workspace(lake.settings.work_url).manifest(_RUN, "store_listing")
        assert facts.facts[IS_SMALL] is small
        assert facts.rows == 6


@pytest.mark.long(25)
def test_the_driver_stops_listing_once_a_run_is_not_small(
    lake_in_s3: Lake, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many slices of few pages each may have more objects than one process lists in reasonable time."""
    monkeypatch.setattr(listing_rounds, "SMALL_RUN_OBJECTS", 5)
    monkeypatch.setattr(listing_rounds, "_RANGES_AT_ONCE", 2)
    ranges_here: list[int] = []
    real_work = listing_rounds.work_here  # type: ignore[attr-defined]

    def work_here(batches: list[pa.RecordBatch], work: Work, fields: pa.Schema) -> pa.Table:
        ranges_here.append(sum(batch.num_rows for batch in batches))
        return real_work(batches, work, fields)

    monkeypatch.setattr(listing_rounds, "work_here", work_here)
    repository = lake_in_s3.repository()
    for number in range(20):
        repository.put_stray(f"data/slice-{number % 10}/{number}", age_hours=48)
    location = CodeLocation.of(lake_in_s3.settings.model_copy(update={"spark": {}}), instance)
    materialized(location.materialize(_RUN, "store_listing"))
    facts = Workspace(lake_in_s3.settings.work_url).manifest(_RUN, "store_listing")
    assert facts.rows == 20
    assert facts.facts[IS_SMALL] is False
    assert ranges_here == [2, 2, 2], "the root and data/, and then slices until there are 6 objects"


@pytest.mark.long(25)
def test_a_large_earlier_listing_is_never_read_into_this_process(
    tmp_path: Path, spark: SparkSession, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (listing_rounds, earlier_listing):
        monkeypatch.setattr(module, "SMALL_RUN_OBJECTS", 5)
    reads, real_read = [], Workspace.read

    def read(self: Workspace, session: SparkSession, run_key: str, stage: str, *more: Any) -> Dataset:
        reads.append((run_key, stage, is_small(session)))
        return real_read(self, session, run_key, stage, *more)

    with Lake(tmp_path / "lake") as lake:
        name_server(lake, monkeypatch)
        repository = lake.repository()
        for number in range(6):
            repository.put_stray(f"data/slice-{number % 2}/{number}", age_hours=48)
        location = CodeLocation.of(
            lake.settings.model_copy(update={"spark": {}, "listing": ListingSettings(mode="auto")}), instance
        )
        materialized(location.materialize(_RUN, "store_listing"))
        SparkResource().scale(True)  # as a small run before in the same process leaves it
        monkeypatch.setattr(Workspace, "read", read)
        materialized(location.materialize(_LARGE_RUN, "store_listing"))
    assert (_RUN, "store_listing", False) in reads


def _rows(workspace: Workspace, spark: SparkSession, run: str, stage: str) -> set[tuple[object, ...]]:
    """Return the rows of a stage. ``committed`` may repeat an address, and other runs add metadata of marks."""
    return {tuple(row) for row in workspace.read(spark, run, stage, schemas.BY_STAGE[stage]).dataframe.collect()}
