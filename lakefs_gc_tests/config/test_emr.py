"""The table ``emr``: what is missing, what lakefs-gc generates, and that it holds no secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakefs_gc.config import Settings, load_settings
from lakefs_gc.errors import ConfigurationError

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "emr.md").read_text("utf-8")
SERVERLESS = {"applicationId": "00f", "executionRoleArn": "arn:aws:iam::123456789012:role/lakefs-gc"}
CLUSTER = {"ReleaseLabel": "emr-7.9.0", "Instances": {"InstanceCount": 1}}


def settings(tmp_path: Path, kind: str, request: dict[str, Any], **other: Any) -> Settings:
    emr = {"kind": kind, "entry_point": "s3://bucket/lakefs-gc.py", "messages_bucket": "bucket", "request": request}
    return load_settings(written(tmp_path, {"work_url": "s3://bucket/work", "emr": emr, **other}))


def written(tmp_path: Path, content: dict[str, Any]) -> Path:
    file = tmp_path / "lakefs-gc.toml"
    file.write_text("\n".join(f"{name} = {toml(value)}" for name, value in content.items()))
    return file


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}" = {toml(inner)}' for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def test_without_it_nothing_runs_elsewhere() -> None:
    assert Settings().emr is None


@pytest.mark.parametrize(("kind", "request_"), [("emr", CLUSTER), ("emr-serverless", SERVERLESS)])
def test_a_whole_request_is_taken(tmp_path: Path, kind: str, request_: dict[str, Any]) -> None:
    found = settings(tmp_path, kind, request_).emr
    assert found is not None
    assert (found.kind, found.request) == (kind, request_)


@pytest.mark.parametrize(
    ("kind", "request_", "message"),
    [
        ("emr", {}, "lacks ReleaseLabel and Instances"),
        ("emr-serverless", {"applicationId": "00f"}, "lacks executionRoleArn"),
        ("emr", {**CLUSTER, "Steps": []}, "has Steps, which lakefs-gc generates"),
        ("emr-serverless", {**SERVERLESS, "jobDriver": {"x": "y"}}, "has jobDriver, which lakefs-gc generates"),
        ("glue", {}, "kind: Input should be"),
    ],
)
def test_what_is_missing_or_too_much_is_named(
    tmp_path: Path, kind: str, request_: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        settings(tmp_path, kind, request_)


@pytest.mark.parametrize(
    "again", [{"retryPolicy": {"maxAttempts": 2}}, {"retryPolicy": "always"}, {"mode": "STREAMING"}], ids=str
)
def test_a_failed_job_is_not_to_run_again(tmp_path: Path, again: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"request has .*{next(iter(again))}.* run .*again.* Remove it"):
        settings(tmp_path, "emr-serverless", SERVERLESS | again)


def test_one_attempt_may_be_said(tmp_path: Path) -> None:
    found = settings(tmp_path, "emr-serverless", {**SERVERLESS, "retryPolicy": {"maxAttempts": 1}, "mode": "BATCH"})
    assert found.emr


def properties(value: str) -> dict[str, Any]:
    name = "spark.emr-serverless.driverEnv.LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
    overrides = {"applicationConfiguration": [{"classification": "spark-defaults", "properties": {name: value}}]}
    return {**SERVERLESS, "configurationOverrides": overrides}


def test_a_secret_is_refused_and_a_reference_to_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="looks like a secret") as caught:
        settings(tmp_path, "emr-serverless", properties("hunter2"))
    assert "hunter2" not in str(caught.value)
    assert settings(tmp_path, "emr-serverless", properties("EMR.secret@lakefs-gc")).emr


def test_a_url_with_credentials_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings(tmp_path, "emr", {**CLUSTER, "BootstrapActions": [{"Path": "https://key:hunter2@host/script"}]})
    assert "hunter2" not in str(caught.value)


def test_the_workspace_is_one_that_jobs_share(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="emr needs work_url"):
        settings(tmp_path, "emr", CLUSTER, work_url="")


def test_spark_connect_is_no_job(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.remote and emr exclude each other"):
        settings(tmp_path, "emr", CLUSTER, spark={"spark.remote": "sc://host"})


def test_the_examples_of_the_guide_are_valid(tmp_path: Path) -> None:
    tables = [block for block in GUIDE.split("```toml\n")[1:] if "[emr.request]" in block]
    serverless, cluster = (block.partition("```")[0] for block in tables)
    file = tmp_path / "lakefs-gc.toml"
    file.write_text(serverless)
    found = load_settings(file).emr
    assert found
    assert found.kind == "emr-serverless"
    before, _, after = serverless.partition("[emr.request]")
    file.write_text(before.replace("emr-serverless", "emr") + cluster + after[after.index("\n[spark]") :])
    found = load_settings(file).emr
    assert found
    assert found.request["Configurations"][0]["Properties"]
