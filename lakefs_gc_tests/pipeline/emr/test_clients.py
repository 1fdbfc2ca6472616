"""The requests that EMR gets, and the assets that make them."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from lakefs_gc.cli import archive as package
from lakefs_gc.config import Settings
from lakefs_gc.pipeline.code_location import build_definitions
from lakefs_gc.pipeline.emr.clients import emr_request, emr_serverless_request
from lakefs_gc_tests.support.asset_graph import GRAPH, JOBS, specs

PYTHON = "./lakefs-gc/python/bin/python3"
ARCHIVE = "s3://bucket/lakefs-gc.tar.gz"
REQUESTS: dict[str, dict[str, Any]] = {
    "emr": {"ReleaseLabel": "emr-7.9.0", "Instances": {"InstanceCount": 3, "KeepJobFlowAliveWhenNoSteps": True}},
    "emr-serverless": {"applicationId": "00f", "executionRoleArn": "arn:aws:iam::123456789012:role/lakefs-gc"},
}


def settings(kind: str) -> Settings:
    return Settings.model_validate(
        {
            "work_url": "s3://bucket/work",
            "spark": package.spark_settings(ARCHIVE) | {"spark.driver.extraJavaOptions": "-Da=1 -Db=2"},
            "emr": {
                "kind": kind,
                "entry_point": "s3://bucket/lakefs-gc.py",
                "messages_bucket": "messages",
                "request": REQUESTS[kind],
            },
        }
    )


def conf(options: list[str]) -> dict[str, str]:
    assert options[::2] == ["--conf"] * (len(options) // 2)
    return {name: value for name, _, value in (option.partition("=") for option in options[1::2])}


def test_a_cluster_runs_one_step_with_the_archive_and_ends() -> None:
    configured = settings("emr")
    assert configured.emr
    request = emr_request(configured, configured.emr, "gc_mark", "lake")
    assert request["Name"] == "lakefs-gc lake"
    assert request["Instances"] == {"InstanceCount": 3, "KeepJobFlowAliveWhenNoSteps": False}
    [step] = request["Steps"]
    command = step["HadoopJarStep"]["Args"]
    assert (command[0], command[-3:]) == ("spark-submit", ["s3://bucket/lakefs-gc.py", "job", "gc_mark"])
    told = conf(command[1:-3])
    assert told["spark.submit.deployMode"] == "cluster", "or the driver would not have the archive"
    assert told["spark.archives"] == f"{ARCHIVE}#lakefs-gc"
    assert told["spark.yarn.appMasterEnv.PYSPARK_PYTHON"] == told["spark.pyspark.python"] == PYTHON
    assert told["spark.driver.extraJavaOptions"] == "-Da=1 -Db=2"
    assert configured.emr.request == REQUESTS["emr"], "is as it was"


def test_yarn_does_not_begin_a_failed_job_again() -> None:
    """Nor where the users' own settings, which may be those of other jobs, ask for it."""
    plain = settings("emr")
    for configured in (plain, plain.model_copy(update={"spark": {"spark.yarn.maxAppAttempts": "4"}})):
        assert configured.emr
        command = emr_request(configured, configured.emr, "gc_mark", "lake")["Steps"][0]["HadoopJarStep"]["Args"]
        assert [word for word in command if "maxAppAttempts" in word] == ["spark.yarn.maxAppAttempts=1"]
    configured = settings("emr-serverless")
    assert configured.emr
    request = emr_serverless_request(configured, configured.emr, "gc_mark", "lake")
    assert "yarn" not in request["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"]


def test_a_serverless_job_runs_the_driver_with_the_archive() -> None:
    configured = settings("emr-serverless")
    assert configured.emr
    request = emr_serverless_request(configured, configured.emr, "gc_sweep", "lake")
    assert request["name"] == "lakefs-gc lake"
    assert (request["applicationId"], request["executionRoleArn"]) == tuple(REQUESTS["emr-serverless"].values())
    driver = request["jobDriver"]["sparkSubmit"]
    assert (driver["entryPoint"], driver["entryPointArguments"]) == ("s3://bucket/lakefs-gc.py", ["job", "gc_sweep"])
    told = conf(shlex.split(driver["sparkSubmitParameters"]))
    assert told["spark.archives"] == f"{ARCHIVE}#lakefs-gc"
    for name in ("driverEnv.PYSPARK_PYTHON", "driverEnv.PYSPARK_DRIVER_PYTHON"):
        assert told[f"spark.emr-serverless.{name}"] == PYTHON
    assert told["spark.executorEnv.PYSPARK_PYTHON"] == PYTHON
    assert told["spark.driver.extraJavaOptions"] == "-Da=1 -Db=2"


@pytest.mark.parametrize("kind", sorted(REQUESTS))
def test_people_see_the_same_graph(kind: str) -> None:
    here, there = build_definitions(Settings(work_url="s3://bucket/work")), build_definitions(settings(kind))
    assert specs(there).keys() == GRAPH.keys()
    for name, spec in specs(here).items():
        assert specs(there)[name] == spec, name
    for name, assets in JOBS.items():
        job = there.resolve_job_def(name)
        assert {key.to_user_string() for key in job.asset_layer.executable_asset_keys} == assets
    checks = {spec.key: spec for asset in here.assets or () for spec in getattr(asset, "check_specs", ())}
    assert checks
    assert {spec.key: spec for asset in there.assets or () for spec in getattr(asset, "check_specs", ())} == checks
