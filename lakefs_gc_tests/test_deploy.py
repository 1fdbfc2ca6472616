"""The files for containers: their syntax, and what the collector needs of them. No cluster runs them here."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml

from lakefs_gc.config import settings_from
from lakefs_gc.pipeline.partitions import REPOSITORY_TAG

DEPLOY = Path(__file__).parents[1] / "deploy"


def test_the_cronjob_has_valid_settings_and_no_root() -> None:
    config, volume, job = yaml.safe_load_all((DEPLOY / "cronjob.yaml").read_text("utf-8"))
    settings = settings_from(tomllib.loads(config["data"]["lakefs-gc.toml"]), "cronjob.yaml")
    assert settings.backup.required_before_sweep
    assert settings.spark["spark.master"] == "local[*]"
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    [container] = pod["containers"]
    assert "mark" in container["args"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    # Whatever a run writes is on a volume: the image has no S3 client for Spark.
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    volumes = {each["name"]: each for each in pod["volumes"]}
    work = volumes[mounts[settings.work_url.removeprefix("file://")]]
    assert work["persistentVolumeClaim"]["claimName"] == volume["metadata"]["name"]
    assert "emptyDir" in volumes[mounts[settings.spark["spark.local.dir"]]]


def test_the_chart_allows_one_run_of_a_repository() -> None:
    values = yaml.safe_load((DEPLOY / "dagster-values.yaml").read_text("utf-8"))
    daemon = values["dagsterDaemon"]
    (limit,) = daemon["runCoordinator"]["config"]["queuedRunCoordinator"]["tagConcurrencyLimits"]
    assert limit == {"key": REPOSITORY_TAG, "value": {"applyLimitPerUniqueValue": True}, "limit": 1}
    assert daemon["runMonitoring"]["enabled"]
    assert values["telemetry"]["enabled"] is False


def test_the_chart_mounts_what_the_settings_name() -> None:
    config, volume, _ = yaml.safe_load_all((DEPLOY / "cronjob.yaml").read_text("utf-8"))
    settings = settings_from(tomllib.loads(config["data"]["lakefs-gc.toml"]), "cronjob.yaml")
    values = yaml.safe_load((DEPLOY / "dagster-values.yaml").read_text("utf-8"))
    [deployment] = values["dagster-user-deployments"]["deployments"]
    mounts = {mount["mountPath"]: mount["name"] for mount in deployment["volumeMounts"]}
    volumes = {each["name"]: each for each in deployment["volumes"]}
    work = volumes[mounts[settings.work_url.removeprefix("file://")]]
    assert work["persistentVolumeClaim"]["claimName"] == volume["metadata"]["name"]


def test_the_image_has_no_root_and_no_dagster_home() -> None:
    lines = (DEPLOY / "Containerfile").read_text("utf-8").splitlines()
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001"]
    assert not any("DAGSTER_HOME=" in line for line in lines)
