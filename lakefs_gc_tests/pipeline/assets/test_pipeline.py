"""The whole way through Dagster: mark, approve, sensor, sweep; what the UI shows; what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from dagster import (
    AssetKey,
    DagsterInstance,
    DagsterRunStatus,
    MarkdownMetadataValue,
    TimestampMetadataValue,
)
from dagster._core.storage.partition_status_cache import AssetPartitionStatus
from pyspark import SparkContext
from pyspark.sql import SparkSession

from lakefs_gc.config import SweepSettings
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.workspace.run_folders import run_folders
from lakefs_gc.errors import ApprovalError, InputOrderError, MarkError, RunInProgressError, SweepIncompleteError
from lakefs_gc.notify import Event, EventKind
from lakefs_gc.pipeline.automation.forecast_sensor import forecasts_due
from lakefs_gc.pipeline.automation.notify_sensor import NotifyCursor, tell
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.code_location import (
    RUN,
    CodeLocation,
    assert_numbers_plot,
    failure_of,
    materialized,
    values,
)
from lakefs_gc_tests.support.collector import STAGES
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lake_fixtures import name_server
from lakefs_gc_tests.support.repository_with_garbage import GARBAGE, LIVE, with_garbage


def parquet_rows(uri: str) -> int:
    return int(sum(pq.read_metadata(file).num_rows for file in Path(urlsplit(uri).path).glob("*.parquet")))


@pytest.mark.long(20)
def test_from_mark_to_sweep(location: CodeLocation, repository: LakeRepository) -> None:
    made = location.run("gc_mark", RUN)
    assert made.success
    stages = materialized(made)
    assert set(stages) == {*STAGES, "mark"}
    for stage in STAGES:
        shown = values(stages[stage])
        assert shown["dagster/row_count"] == parquet_rows(shown["dagster/uri"]), stage
        columns = [(column.name, column.type) for column in shown["dagster/column_schema"].columns]
        assert columns == [(f.name, f.dataType.simpleString()) for f in schemas.BY_STAGE[stage].fields]
        assert shown["duration_seconds"] >= 0
        assert isinstance(stages[stage].metadata["began_at"], TimestampMetadataValue)
    listing, candidates = values(stages["store_listing"]), values(stages["candidates"])
    # The server begins its list after the store was listed, and works while other repositories are read.
    others = values(stages["foreign_references"])
    assert listing["ended_at"] <= values(stages["uncommitted"])["began_at"] < others["ended_at"]
    assert listing["dagster/row_count"] == LIVE + GARBAGE
    assert candidates["dagster/row_count"] == GARBAGE
    assert candidates["bytes"] == GARBAGE * 12
    assert isinstance(stages["store_listing"].metadata["bytes_by_age"], MarkdownMetadataValue)

    mark = values(stages["mark"])
    assert (mark["dagster/row_count"], mark["bytes"], mark["size"]) == (GARBAGE, GARBAGE * 12, "24 B")
    assert mark["store_listing_rows"] == LIVE + GARBAGE
    assert mark["committed_rows"] == LIVE
    reasons = {record.data["reason"]: record.data["objects"] for record in mark["why"].records}
    assert reasons == {"expired": 0, "never_committed": GARBAGE}
    sample = [record.data for record in mark["sample"].records]
    assert {(row["object"], row["why"], row["age"]) for row in sample} == {
        ("data/garbage-0", "never committed", "2 d"),
        ("data/garbage-1", "never committed", "2 d"),
    }
    assert mark["digest"].startswith("sha256:")
    assert "sweep_approval" in mark["what_now"]
    assert "when the mark was made" in mark["what_now"], "the overview of the asset shows it for ever"
    # The UI does not wrap words, so the widest one makes every text as wide. The folder of the mark is one entry.
    alone = ("location", "digest", "notification", "report_file")
    shown = {name: str(value) for name, value in mark.items() if name not in alone}
    digest = mark["digest"]
    assert {name for name, text in shown.items() if any(len(word) > len(digest) for word in text.split())} == set()
    assert_numbers_plot(stages["store_listing"], "dagster/row_count", "bytes", "duration_seconds")
    assert_numbers_plot(stages["candidates"], "dagster/row_count", "bytes", "expired", "expired_bytes")
    assert_numbers_plot(stages["mark"], "dagster/row_count", "bytes", "store_listing_rows", "committed_rows")

    assert location.sweeps_by_sensor() == [], "nobody has approved"
    assert "is not approved" in failure_of(location.run("gc_sweep", RUN), "sweep")["description"]
    for config, why in (
        ({"digest": "sha256:0", "approved_by": "ada"}, "not sha256:0"),
        ({"approved_by": "ada"}, "has no digest"),
        ({"digest": mark["digest"]}, "does not name a person"),
    ):
        refused = failure_of(location.run("gc_approve", RUN, sweep_approval=config), "sweep_approval")
        assert why in refused["description"]
    assert location.sweeps_by_sensor() == [], "a refused approval is none"
    assert len(repository.objects()) == LIVE + GARBAGE

    approved = location.approve(RUN)
    approval = values(materialized(approved)["sweep_approval"])
    assert (approval["digest"], approval["approved_by"], approval["objects"]) == (mark["digest"], "ada", GARBAGE)

    assert location.marks_what_now(RUN).startswith("**Approved by ada**")

    (swept,) = location.sweeps_by_sensor()
    assert swept.success
    assert location.marks_what_now(RUN).startswith("**Swept: nothing to do**")
    outcomes = {row.data["outcome"]: row.data["objects"] for row in location.seen_since(RUN)["outcomes"].records}
    assert (outcomes["deleted"], outcomes["failed"]) == (str(GARBAGE), "0")
    outcome = values(materialized(swept)["sweep"])
    assert outcome["report_file"] == mark["report_file"]
    assert f"Mark {mark['mark_id']}" in Path(outcome["report_file"]).read_text("utf-8")
    assert outcome["dagster/row_count"] == GARBAGE == parquet_rows(outcome["dagster/uri"])
    assert (outcome["deleted_objects"], outcome["deleted_bytes"], outcome["failed_objects"]) == (GARBAGE, 24, 0)
    assert outcome["digest"] == mark["digest"]
    assert len(repository.objects()) == LIVE
    assert [repository.read(f"live/{number}") for number in range(LIVE)]
    assert location.sweeps_by_sensor() == [], "what is swept is not swept again"

    folder = run_folders(open_store(StoreLocation(location.settings.work_url)), "lake")[RUN]
    assert folder.has_only_stages, "what a run leaves is known, or it would stay in the workspace for ever"
    assert any("/look_1_committed/" in key for key in folder.removable)


@pytest.mark.of_ci
@pytest.mark.long(60)
def test_the_forecast_after_a_mark_adds_the_curve_to_its_report(
    location: CodeLocation, repository: LakeRepository
) -> None:
    repository.put("sales/a")
    repository.commit(age_days=30)
    repository.delete("sales/a")
    repository.commit(age_days=20)
    repository.keep_days(10)
    mark = values(materialized(location.run("gc_mark", RUN))["mark"])
    report, curve = Path(mark["report_file"]), "Bytes that a retention of so many days frees"
    assert curve not in report.read_text("utf-8")
    assert "has no forecast yet" in report.read_text("utf-8")
    (request,) = forecasts_due(location.instance, datetime.now(UTC).timestamp())
    assert request.partition_key == RUN
    forecast = values(materialized(location.run("gc_forecast", RUN))["forecast"])
    assert forecast["freed_bytes_in_0_days"] == mark["bytes"]
    assert curve in report.read_text("utf-8")
    assert "has no forecast yet" not in report.read_text("utf-8")
    assert not list(forecasts_due(location.instance, datetime.now(UTC).timestamp()))
    # What follows writes the report again.
    assert location.approve(RUN).success
    text = report.read_text("utf-8")
    assert curve in text
    assert "Approved by ada" in text


def test_materialize_all_does_not_approve_what_nobody_has_seen(
    location: CodeLocation, repository: LakeRepository
) -> None:
    result = location.materialize(RUN, *STAGES, "mark", "sweep_approval", "sweep")
    failure = failure_of(result, "sweep_approval")
    assert "No person has reviewed it" in failure["description"]
    assert "only sweep_approval" in failure["what_to_do"]
    assert failure["error"] == ApprovalError.__name__
    assert len(repository.objects()) == LIVE + GARBAGE
    # Alone, after a look, it is an approval.
    assert location.approve(RUN).success
    (swept,) = location.sweeps_by_sensor()
    assert swept.success


@pytest.mark.of_ci
def test_a_re_execution_of_materialize_all_approves_no_more_than_the_first(
    location: CodeLocation, repository: LakeRepository
) -> None:
    """From failure it holds ``sweep_approval`` and ``sweep`` alone, and Dagster's daemon may begin it unasked."""
    first = location.materialize(RUN, *STAGES, "mark", "sweep_approval", "sweep")
    second = location.re_execute(first.run_id)
    third = location.re_execute(second.run_id)
    for again in (second, third):
        assert "No person has reviewed it" in failure_of(again, "sweep_approval")["description"]
        assert {event.step_key for event in again.all_events if event.is_step_start} == {"sweep_approval"}
    assert len(repository.objects()) == LIVE + GARBAGE
    assert location.approve(RUN).success


def test_an_approval_that_is_executed_again_is_one(location: CodeLocation, repository: LakeRepository) -> None:
    made = location.run("gc_mark", RUN)
    refused = location.approve(RUN, digest="sha256:0")
    assert not refused.success
    digest = values(materialized(made)["mark"])["digest"]
    assert location.re_execute(refused.run_id, sweep_approval={"digest": digest, "approved_by": "ada"}).success
    assert len(repository.objects()) == LIVE + GARBAGE


@pytest.mark.of_ci
def test_a_backfill_and_its_re_execution_do_not_approve_their_own_mark(
    location: CodeLocation, repository: LakeRepository
) -> None:
    assert location.materialize(RUN, *STAGES, "mark", tags={"dagster/backfill": "one"}).success
    for tags in (
        {"dagster/backfill": "one"},
        {"dagster/backfill": "two", "dagster/root_backfill_id": "one"},
    ):
        refused = location.materialize(RUN, "sweep_approval", tags=tags)
        assert "No person has reviewed it" in failure_of(refused, "sweep_approval")["description"]
    another = location.materialize(RUN, "sweep_approval", tags={"dagster/backfill": "three"})
    assert "does not name a person" in failure_of(another, "sweep_approval")["description"]
    assert len(repository.objects()) == LIVE + GARBAGE


def test_missing_upstream_says_what_to_materialize(location: CodeLocation, repository: LakeRepository) -> None:
    failure = failure_of(location.materialize(RUN, "candidates"), "candidates")
    assert failure["error"] == InputOrderError.__name__
    assert "was not finished" in failure["description"]
    assert "Materialize" in failure["what_to_do"]


def test_second_run_of_a_repository_is_refused(location: CodeLocation, repository: LakeRepository, lake: Lake) -> None:
    # A run from the Materialize button, under way in another process.
    job = location.definitions.resolve_implicit_global_asset_job_def()
    location.instance.create_run_for_job(job, tags={"dagster/partition": "lake/other"}, status=DagsterRunStatus.STARTED)
    failure = failure_of(location.run("gc_mark", RUN), "store_listing")
    assert failure["error"] == RunInProgressError.__name__
    assert "partition lake/other" in failure["description"]
    assert failure_of(location.run("gc_sweep", RUN), "sweep")["error"] == RunInProgressError.__name__
    # A repository whose name begins alike is another.
    with_garbage(lake.repository("lake-2"))
    assert location.materialize("lake-2/first", "store_listing").success


@pytest.mark.of_ci
def test_a_refused_run_leaves_the_assets_of_a_mark_as_they_were(
    location: CodeLocation, repository: LakeRepository
) -> None:
    assert location.run("gc_mark", RUN).success
    keys = [AssetKey(name) for name in (*STAGES, "mark")]
    job = location.definitions.resolve_implicit_global_asset_job_def()
    other = location.instance.create_run_for_job(
        job, tags={"dagster/partition": "lake/other"}, status=DagsterRunStatus.STARTED
    )
    refused = location.run("gc_mark", RUN)
    assert failure_of(refused, "store_listing")["error"] == RunInProgressError.__name__
    statuses = {key: location.instance.get_status_by_partition(key, [RUN], gc_runs) for key in keys}
    assert statuses == {key: {RUN: AssetPartitionStatus.MATERIALIZED} for key in keys}
    # People are notified nevertheless.
    events = list[Event]()
    since = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
    tell(location.instance, NotifyCursor(since), events.append, ["gc_mark"])
    event = events[-1]
    assert (event.kind, event.dagster_run_id) == (EventKind.run_failed, refused.run_id)
    assert f"was refused: run {other.run_id} of lake is in progress" in event.message
    assert "terminate it" in event.remedy


@pytest.mark.of_ci
def test_failed_deletes_fail_the_sweep_and_say_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    store_in_s3: StoreInS3,
    small_spark_config: dict[str, str],
    instance: DagsterInstance,
) -> None:
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        name_server(lake, monkeypatch)
        repository = with_garbage(lake.repository())
        sweeping = lake.settings.sweep.model_copy(update={"retry_pause_seconds": 0.1})
        settings = lake.settings.model_copy(update={"spark": small_spark_config, "sweep": sweeping})
        location = CodeLocation.of(settings, instance)
        assert location.run("gc_mark", RUN).success
        store_in_s3.refuse_to_delete(repository, "data/garbage-1")
        assert location.approve(RUN).success
        (failed,) = location.sweeps_by_sensor()
        failure = failure_of(failed, "sweep")
        assert failure["error"] == SweepIncompleteError.__name__
        assert "1 of 2 objects" in failure["description"]
        assert (failure["failed_objects"], failure["deleted_objects"]) == (1, 1)
        (row,) = failure["errors"].records
        assert row.data["objects"] == 1
        assert row.data["for_example"] == "data/garbage-1"
        assert "AccessDenied" in row.data["error"]
        assert "sweep" not in materialized(failed)
        # A sweep that began to delete has failed, and a refusal does not hide it.
        unknown = location.run("gc_sweep", RUN, sweep={"mark_id": "../unknown"})
        assert failure_of(unknown, "sweep")["error"] == MarkError.__name__
        ended = [instance.get_run_by_id(run.run_id) for run in (failed, unknown)]
        assert [run and run.status for run in ended] == [DagsterRunStatus.FAILURE] * 2
        status = instance.get_status_by_partition(AssetKey("sweep"), [RUN], gc_runs)
        assert status == {RUN: AssetPartitionStatus.FAILED}
        assert location.sweeps_by_sensor() == [], "the same approval does not start it for ever"

        # Approved again, it goes on with what is left.
        store_in_s3.server.faults.clear()
        assert location.approve(RUN).success
        (swept,) = location.sweeps_by_sensor()
        assert values(materialized(swept)["sweep"])["deleted_objects"] == GARBAGE


@pytest.mark.long(45)
def test_a_policy_sweeps_without_a_person_and_runs_share_a_session(
    location: CodeLocation, repository: LakeRepository, spark: SparkSession
) -> None:
    context = spark.sparkContext
    assert location.run("gc_mark", RUN).success
    immediately = SweepSettings(policy="immediately")
    assert location.sweeps_by_sensor(immediately) == [], "it was made under the policy manual"
    # Nor does the sweep take the word of a sensor for it.
    digest = str(values(materialized(location.run("gc_mark", "lake/manual"))["mark"])["digest"])
    forced = {"approve_digest": digest, "approved_via": "policy immediately"}
    failure = failure_of(location.run("gc_sweep", "lake/manual", sweep=forced), "sweep")
    assert (failure["error"], "only a person" in failure["description"]) == (ApprovalError.__name__, True)
    assert len(repository.objects()) == LIVE + GARBAGE

    settings = location.settings.model_copy(update={"sweep": immediately})
    location = CodeLocation.of(settings, location.instance)
    assert location.run("gc_mark", "lake/by-policy").success
    (swept,) = location.sweeps_by_sensor()
    assert swept.success
    assert len(repository.objects()) == LIVE
    assert SparkContext._active_spark_context is context
    # A mark of nothing is no reason to sweep.
    assert location.run("gc_mark", "lake/second").success
    assert location.sweeps_by_sensor() == []
    assert SparkContext._active_spark_context is context


def test_a_stage_that_is_materialized_again_replaces_the_first_and_makes_the_later_ones_stale(
    location: CodeLocation, repository: LakeRepository
) -> None:
    first = values(materialized(location.run("gc_mark", RUN))["store_listing"])
    repository.put_stray("data/one-more")
    second = values(materialized(location.materialize(RUN, "store_listing"))["store_listing"])
    assert second["dagster/uri"] == first["dagster/uri"]
    assert second["dagster/row_count"] == LIVE + GARBAGE + 1 == parquet_rows(second["dagster/uri"])
    assert second["materialization_id"] != first["materialization_id"]

    failure = failure_of(location.materialize(RUN, "unmatched"), "unmatched")
    assert failure["error"] == InputOrderError.__name__
    assert "had ended" in failure["description"]
