"""What Dagster loads: the graph, its names, and that loading needs nothing but Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance, DefaultSensorStatus, Definitions, in_process_executor

from lakefs_gc.config import ScheduleSettings, Settings, SweepSettings
from lakefs_gc.engine.spark import schemas
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.pipeline.code_location import build_definitions
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc_tests.support.asset_graph import GRAPH, JOBS, specs


def test_graph_is_the_one_that_people_know() -> None:
    found = specs(build_definitions(Settings()))
    assert {
        name: (spec.group_name, set(spec.kinds), {dep.asset_key.to_user_string() for dep in spec.deps})
        for name, spec in found.items()
    } == GRAPH


def test_every_asset_is_described_owned_and_partitioned_by_run() -> None:
    for name, spec in specs(build_definitions(Settings(owner="team:lake-people"))).items():
        assert len(spec.description or "") > 30, name
        assert list(spec.owners) == ["team:lake-people"], name
        assert spec.partitions_def == gc_runs, name
        if name in schemas.BY_STAGE:
            columns = spec.metadata["dagster/column_schema"].columns
            assert [column.name for column in columns] == schemas.BY_STAGE[name].fieldNames(), name
            assert all(column.description for column in columns), name


def test_jobs_run_their_assets_in_one_process() -> None:
    definitions = build_definitions(Settings())
    assert {job.name for job in definitions.resolve_all_job_defs()} - {"__ASSET_JOB"} == set(JOBS)
    for name, assets in JOBS.items():
        job = definitions.resolve_job_def(name)
        assert job.description, name
        assert {key.to_user_string() for key in job.asset_layer.executable_asset_keys} == assets
        assert job.executor_def is in_process_executor, name
        assert job.partitions_def == gc_runs
        # What the queue goes by, wherever the run comes from: UI, schedule, sensor, backfill.
        tags = job.get_tags_for_partition_key("lake/2026-01-31", None)
        assert tags["lakefs_gc/repository"] == "lake"
    # A run of selected assets, too: the Materialize button.
    assert definitions.resolve_implicit_global_asset_job_def().executor_def is in_process_executor


def test_schedule_and_sensor() -> None:
    repository = build_definitions(Settings()).get_repository_def()
    assert [(s.name, s.job_name) for s in repository.schedule_defs] == [("mark_repositories", "gc_mark")]
    jobs = {sensor.name: sensor.job_name if sensor.has_jobs else "" for sensor in repository.sensor_defs}
    assert jobs == {
        "sweep_after_mark": "gc_sweep",
        "approvals_in_namespaces": "",
        "forecast_after_mark": "gc_forecast",
    }
    assert all(sensor.default_status is DefaultSensorStatus.RUNNING for sensor in repository.sensor_defs)
    assert all(schedule.description for schedule in repository.schedule_defs)
    assert all(sensor.description for sensor in repository.sensor_defs)


def test_two_code_locations_in_one_process_do_not_mix() -> None:
    sweep, schedule = SweepSettings(policy="after"), ScheduleSettings(cron="1 1 * * *")
    common = [{"owner": f"team:{x}", "work_url": f"file:///{x}", "spark": {"spark.app.name": x}} for x in "ab"]
    first = build_definitions(Settings.model_validate(common[0] | {"sweep": sweep}))
    second = build_definitions(Settings.model_validate(common[1] | {"schedule": schedule}))
    for definitions, letter, hours, cron in ((first, "a", "24 h", "0 3 * * *"), (second, "b", "", "1 1 * * *")):
        assert {owner for spec in specs(definitions).values() for owner in spec.owners} == {f"team:{letter}"}
        resources = definitions.resources or {}
        assert resources["parquet"].work_url == f"file:///{letter}"
        assert resources["spark"].spark_config == {"spark.app.name": letter}
        repository = definitions.get_repository_def()
        assert hours in str(repository.get_sensor_def("sweep_after_mark").description)
        assert repository.schedule_defs[0].cron_schedule == cron
        assert AssetKey("mark") in set(repository.asset_graph.get_all_asset_keys())


_LOADING = """
import socket

def refuse(*args, **kwargs):
    raise AssertionError("loading the definitions must reach nothing")

socket.socket.connect = socket.create_connection = refuse
from lakefs_gc.definitions import defs
from pyspark import SparkContext
assert SparkContext._gateway is None, "a JVM was started"

from dagster import Definitions, asset
from dagster._core.workspace.autodiscovery import loadable_targets_from_python_module
(target,) = loadable_targets_from_python_module("lakefs_gc.definitions", working_directory=None)
assert target.target_definition is defs

@asset
def report():
    pass

merged = Definitions.merge(defs, Definitions([report]))
Definitions.validate_loadable(merged)
print(len(merged.resolve_asset_graph().get_all_asset_keys()) - 1)
"""


def test_loads_without_network_java_or_lakefs(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    loaded = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:lakefs_gc", "-c", _LOADING],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.strip() == str(len(GRAPH))
    assert "lakefs_gc" not in loaded.stderr, "no warning of ours"


def test_does_not_load_a_setting_that_dagster_refuses(tmp_path: Path) -> None:
    (tmp_path / "lakefs-gc.toml").write_text('[schedule]\ncron = "0 3 * * FOO"\n')
    command = [sys.executable, "-c", "import lakefs_gc.definitions"]
    environment = {**os.environ, "LAKEFS_GC_CONFIG": str(tmp_path / "lakefs-gc.toml")}
    loaded = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert "ConfigurationError: schedule.cron is '0 3 * * FOO', which Dagster does not accept" in loaded.stderr


def test_definitions_are_valid_for_an_instance() -> None:
    with DagsterInstance.ephemeral():
        Definitions.validate_loadable(build_definitions(Settings()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(owner="data platform"), "owner is 'data platform'"),
        (Settings(schedule=ScheduleSettings(cron="0 3 * * funday")), r"schedule\.cron is '0 3 \* \* funday'"),
    ],
)
def test_what_dagster_does_not_take_is_said_by_name(settings: Settings, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_definitions(settings)
