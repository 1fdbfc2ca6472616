"""A mark and its sweep as jobs on EMR, with everything real but EMR itself."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from dagster import DagsterInstance, ExecuteInProcessResult

from lakefs_gc.config import Settings
from lakefs_gc.engine.records.stored_marks import open_mark
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.code_location import CodeLocation, materialized, values
from lakefs_gc_tests.support.collector import STAGES
from lakefs_gc_tests.support.emr import EMR, MESSAGES, failure
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.repository_with_garbage import GARBAGE, LIVE

RUN = "lake/one"
MARKED = {*STAGES, "mark"}

# Each job starts Java. Outside CI, test_failures runs jobs, too.
pytestmark = [pytest.mark.of_ci, pytest.mark.long(70)]


def with_failed_check(settings: Settings) -> Settings:
    """Two of seven objects are too many to be marked."""
    safety = settings.safety.model_copy(update={"max_marked_share": 0.1, "share_counts_from_objects": 0})
    return settings.model_copy(update={"safety": safety})


def checks(result: ExecuteInProcessResult) -> dict[str, bool]:
    return {check.check_name: check.passed for check in result.get_asset_check_evaluations()}


def objects(repository: LakeRepository) -> int:
    return sum(1 for file in (repository.folder / "data").rglob("*") if file.is_file())


def test_mark_approval_and_sweep(emr: EMR, lake: Lake, repository: LakeRepository, instance: DagsterInstance) -> None:
    serverless = CodeLocation.of(with_failed_check(emr.settings(lake, "emr-serverless")), instance)
    secrets_manager = {"spark.yarn.appMasterEnv.SECRET_KEY": "EMR.secret@lakefs-gc"}
    configurations = [{"Classification": "spark-defaults", "Properties": secrets_manager}]
    cluster = CodeLocation.of(with_failed_check(emr.settings(lake, "emr", Configurations=configurations)), instance)

    marked = serverless.run("gc_mark", RUN)
    assert not marked.success, "a check failed"
    assert failure(marked) is None, "and that is all"
    assert emr.states == ["SUCCESS"], "of the job: a mark with a failed check is a mark"
    made = materialized(marked)
    assert set(made) == MARKED, emr.jobs[-1].output[-3000:]
    assert {m.partition for m in made.values()} == {RUN}
    assert {name for name, passed in checks(marked).items() if not passed} == {"share_of_objects", "share_of_bytes"}
    shown = values(made["mark"])
    found = open_mark("lake", shown["mark_id"], LakeFSClient(lake.credentials), lake.settings).mark
    assert (shown["digest"], shown["dagster/row_count"]) == (found.digest, GARBAGE)
    assert shown["AWS EMR Serverless Application ID"] == emr.application_id

    emr.without_java = True
    unapproved = cluster.run("gc_sweep", RUN)
    assert failure(unapproved).metadata["error"].value == "ApprovalError", emr.jobs[-1].output[-3000:]
    assert objects(repository) == LIVE + GARBAGE

    approves_another = cluster.run("gc_sweep", RUN, sweep={"approve_digest": "sha256:another", "approved_by": "ada"})
    assert failure(approves_another).metadata["error"].value == "ApprovalError"
    assert len(emr.jobs) == 2, "approvals are given here: no job was started"

    emr.without_java = False
    assert serverless.approve(RUN, overrides=list(checks(marked)), why="few").success
    [swept] = cluster.sweeps_by_sensor()
    assert swept.success, emr.jobs[-1].output[-3000:]
    assert values(materialized(swept)["sweep"])["deleted_objects"] == GARBAGE
    assert objects(repository) == LIVE
    assert [job.command[-2:] for job in emr.jobs[-3:]] == [["job", "gc_mark"], *[["job", "gc_sweep"]] * 2]

    secret = lake.credentials.secret_access_key
    s3: Any = boto3.client("s3")
    keys = [found["Key"] for found in s3.list_objects_v2(Bucket=MESSAGES)["Contents"]]
    said = [s3.get_object(Bucket=MESSAGES, Key=key)["Body"].read().decode() for key in keys]
    assert any("report_asset_materialization" in text for text in said)
    for text in [*said, json.dumps([job.command for job in emr.jobs])]:
        assert secret not in text
