"""Jobs that fail, end early, or must not begin: what Dagster says, and what it has recorded."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import boto3
import pytest
from dagster import AssetMaterialization, DagsterInstance, DagsterRunStatus, ExecuteInProcessResult
from dagster._core.pipes import utils

from lakefs_gc_tests.support.code_location import CodeLocation, failure_of, materialized, refusal_of
from lakefs_gc_tests.support.emr import EMR, INSTANCES, ROLE, failure
from lakefs_gc_tests.support.lake import Lake, LakeRepository

RUN = "lake/one"
KINDS = pytest.mark.parametrize("kind", ["emr", "emr-serverless"])

_REPORTS_ONE = """
import boto3, sys
from dagster_pipes import PipesS3ContextLoader, PipesS3MessageWriter, open_dagster_pipes
s3 = boto3.client("s3")
with open_dagster_pipes(context_loader=PipesS3ContextLoader(s3), message_writer=PipesS3MessageWriter(s3)) as pipes:
    pipes.report_asset_materialization(asset_key="store_listing", metadata={"dagster/row_count": 5})
sys.exit(7)
"""
_REPORTS_AN_ERROR = """
import boto3, sys
from dagster_pipes import PipesS3ContextLoader, PipesS3MessageWriter, open_dagster_pipes
s3 = boto3.client("s3")
failure = {{"error": "MarkError", "message": "the mark was changed", "remedy": "", "facts": {{}}, "metadata": {{}}}}
with open_dagster_pipes(context_loader=PipesS3ContextLoader(s3), message_writer=PipesS3MessageWriter(s3)) as pipes:
    pipes.report_custom_message({{"failure": failure | {}}})
sys.exit(3)
"""
JOBS = {"gc_backup": "backup", "gc_sweep": "sweep", "gc_restore": "restore", "gc_forecast": "forecast"}


@pytest.fixture(autouse=True)
def no_late_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a job has ended, nothing more comes: Dagster need not wait ten seconds for it."""
    monkeypatch.setattr(utils, "WAIT_FOR_LOGS_AFTER_EXECUTION_INTERVAL", 0)


@pytest.fixture(autouse=True)
def no_spark(emr: EMR) -> None:
    """None of these jobs comes so far."""
    emr.without_java = True


def status(instance: DagsterInstance, result: ExecuteInProcessResult) -> DagsterRunStatus:
    ended = instance.get_run_by_id(result.run_id)
    assert ended is not None
    return ended.status


def said(result: ExecuteInProcessResult) -> dict[str, Any]:
    assert not result.success
    shown = failure(result)
    return {"message": shown.description, **{name: value.value for name, value in shown.metadata.items()}}


@KINDS
def test_a_job_that_fails_silently_fails_the_run(
    emr: EMR, lake: Lake, repository: LakeRepository, instance: DagsterInstance, kind: str
) -> None:
    emr.entry_point.write_text("raise SystemExit(3)")
    result = CodeLocation.of(emr.settings(lake, kind), instance).run("gc_mark", RUN)
    shown = said(result)
    assert shown["error"] == "RemoteJobError"
    assert "ended FAILED" in shown["message"]
    assert "exit code 3" in shown["message"] or kind == "emr"
    assert "log" in shown["what_to_do"]
    assert not materialized(result)


@pytest.mark.of_ci
def test_what_was_reported_before_a_failure_is_recorded(
    emr: EMR, lake: Lake, repository: LakeRepository, instance: DagsterInstance
) -> None:
    emr.entry_point.write_text(_REPORTS_ONE)
    result = CodeLocation.of(emr.settings(lake, "emr-serverless"), instance).run("gc_mark", RUN)
    assert "exit code 7" in said(result)["message"]
    assert list(materialized(result)) == ["store_listing"]


def test_a_job_must_report_every_asset(
    emr: EMR, lake: Lake, repository: LakeRepository, instance: DagsterInstance
) -> None:
    emr.entry_point.write_text(_REPORTS_ONE.replace("sys.exit(7)", ""))
    result = CodeLocation.of(emr.settings(lake, "emr-serverless"), instance).run("gc_mark", RUN)
    shown = said(result)
    assert shown["error"] == "RemoteJobError"
    assert "without reporting active_ranges, candidates, committed, " in shown["message"]
    assert "store_listing" not in shown["message"]
    assert list(materialized(result)) == ["store_listing"]


def test_the_error_of_the_job_is_the_error_of_the_run(
    emr: EMR, lake: Lake, repository: LakeRepository, instance: DagsterInstance
) -> None:
    result = CodeLocation.of(emr.settings(lake, "emr-serverless"), instance).run("gc_mark", "other/one")
    shown = said(result)
    assert shown["error"] == "RepositoryNotFoundError", emr.jobs[-1].output[-3000:]
    assert shown["what_to_do"]
    assert emr.states == ["FAILED"]


@KINDS
def test_no_second_job_of_a_repository(emr: EMR, lake: Lake, instance: DagsterInstance, kind: str) -> None:
    """Rule 10: one that outlived the Dagster that started it counts."""
    emr.stop()
    name = "lakefs-gc lake"
    client: Any = boto3.client
    aws = client(kind)
    if kind == "emr":
        step: Any = {"Name": "gc_sweep", "HadoopJarStep": {"Jar": "command-runner.jar", "Args": []}}
        instances: Any = INSTANCES
        aws.run_job_flow(Name=name, Instances=instances, ReleaseLabel="emr-7.9.0", Steps=[step])
    else:
        aws.start_job_run(name=name, applicationId=emr.application_id, executionRoleArn=ROLE)
    result = CodeLocation.of(emr.settings(lake, kind), instance).run("gc_mark", RUN)
    assert said(result)["error"] == "RunInProgressError"
    assert len(emr.states) == 1, "nothing was started"


@pytest.mark.of_ci
def test_a_refusal_of_a_second_job_leaves_no_red_asset(emr: EMR, lake: Lake, instance: DagsterInstance) -> None:
    emr.stop()
    aws: Any = boto3.client("emr-serverless")
    aws.start_job_run(name="lakefs-gc lake", applicationId=emr.application_id, executionRoleArn=ROLE)
    location = CodeLocation.of(emr.settings(lake, "emr-serverless"), instance)
    for job, asset in JOBS.items():
        shown = refusal_of(location.run(job, RUN), instance, asset)
        assert shown["error"] == "RunInProgressError"
    assert len(emr.states) == 1, "nothing was started"


@pytest.mark.of_ci
def test_a_refusal_in_the_job_leaves_no_red_asset(
    emr: EMR, lake: Lake, repository: LakeRepository, instance: DagsterInstance
) -> None:
    """The partition has no mark, which only the job looks up. Nobody watches the runs of a sensor."""
    location = CodeLocation.of(emr.settings(lake, "emr-serverless"), instance)
    shown = refusal_of(location.run("gc_sweep", RUN), instance, "sweep")
    assert shown["error"] == "InputOrderError", emr.jobs[-1].output[-3000:]
    assert shown["what_to_do"]
    automatic = location.materialize(RUN, "sweep", tags={"dagster/sensor_name": "sweep_after_mark"})
    assert failure_of(automatic, "sweep")["error"] == "InputOrderError"
    assert status(instance, automatic) is DagsterRunStatus.FAILURE
    assert emr.states == ["FAILED"] * 2


@pytest.mark.of_ci
def test_a_mark_that_its_job_refuses_leaves_a_complete_partition_as_it_was(
    emr: EMR, lake: Lake, repository: LakeRepository, instance: DagsterInstance
) -> None:
    location = CodeLocation.of(emr.settings(lake, "emr-serverless"), instance)
    assert status(instance, location.run("gc_mark", "other/new")) is DagsterRunStatus.FAILURE
    instance.report_runless_asset_event(AssetMaterialization("store_listing", partition="other/complete"))
    refused = location.run("gc_mark", "other/complete")
    assert said(refused)["error"] == "RepositoryNotFoundError", emr.jobs[-1].output[-3000:]
    assert status(instance, refused) is DagsterRunStatus.CANCELED


@pytest.mark.of_ci("True", "None")
@pytest.mark.parametrize("refused", [True, False, None])
def test_a_job_that_had_begun_fails_the_run(
    emr: EMR, lake: Lake, repository: LakeRepository, instance: DagsterInstance, refused: bool | None
) -> None:
    """So does one of an earlier version, which does not report whether it was refused."""
    emr.entry_point.write_text(_REPORTS_AN_ERROR.format({} if refused is None else {"is_refusal": refused}))
    result = CodeLocation.of(emr.settings(lake, "emr-serverless"), instance).run("gc_sweep", RUN)
    assert said(result)["message"] == "the mark was changed", emr.jobs[-1].output[-3000:]
    ended = DagsterRunStatus.CANCELED if refused else DagsterRunStatus.FAILURE
    assert status(instance, result) is ended


@pytest.mark.of_ci("emr-serverless")
@KINDS
def test_an_interrupted_run_ends_its_job(emr: EMR, lake: Lake, instance: DagsterInstance, kind: str) -> None:
    emr.stop()
    dagster = CodeLocation.of(emr.settings(lake, kind), instance)
    over = threading.Event()

    def interrupt() -> None:
        while not emr.states and not over.wait(0.1):
            pass
        if not over.wait(1):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        result = dagster.run("gc_mark", RUN)
        assert not result.success
    finally:
        over.set()
        thread.join()
    assert emr.states == [{"emr": "TERMINATED", "emr-serverless": "CANCELLED"}[kind]]


def test_a_request_that_is_none(emr: EMR, lake: Lake, instance: DagsterInstance) -> None:
    settings = emr.settings(lake, "emr-serverless", executionTimeoutMinutes="soon")
    shown = said(CodeLocation.of(settings, instance).run("gc_mark", RUN))
    assert shown["error"] == "ConfigurationError"
    assert "executionTimeoutMinutes" in shown["message"]
    assert emr.states == []


def test_what_aws_refuses(emr: EMR, lake: Lake, instance: DagsterInstance) -> None:
    settings = emr.settings(lake, "emr-serverless", applicationId="00none")
    shown = said(CodeLocation.of(settings, instance).run("gc_mark", RUN))
    assert shown["error"] == "RemoteJobError"
    assert "00none" in shown["message"]
    assert "permissions" in shown["what_to_do"]
