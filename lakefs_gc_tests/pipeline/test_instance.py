"""``dagster.yaml`` and ``workspace.yaml``, as the repository, the package and the demo use them."""

from __future__ import annotations

import logging
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, asset, materialize
from dagster._core.instance.ref import InstanceRef
from dagster._core.workspace.load_target import WorkspaceFileTarget

from lakefs_gc.config import Settings, load_settings
from lakefs_gc.demo.ui import write_settings
from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.pipeline.instances import configured_instance, traits
from lakefs_gc.pipeline.partitions import REPOSITORY_TAG
from lakefs_gc.pipeline.ui.failures import failures_shown

PACKAGE = Path(str(files("lakefs_gc")))


@pytest.fixture(params=["as it stands", "of the demo"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a ``dagster.yaml``, which is the working directory too."""
    if request.param == "of the demo":
        write_settings(tmp_path, Settings(repositories=("lake",)))
    else:
        (tmp_path / "dagster.yaml").write_bytes((PACKAGE / "dagster.yaml").read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_instance_behaves_as_the_design_says(home: Path) -> None:
    with DagsterInstance.from_ref(InstanceRef.from_dir(str(home))) as instance:
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled
        assert instance.run_monitoring_enabled
        assert not instance.run_retries_enabled
        assert "lakefs_gc" in instance.managed_python_loggers
        queue = instance.get_concurrency_config().run_queue_config
        assert queue is not None
        limits: Any = queue.tag_concurrency_limits
        assert limits == [{"key": REPOSITORY_TAG, "value": {"applyLimitPerUniqueValue": True}, "limit": 1}]
        # It can really be written to, and stays below the folder.
        instance.add_run(_run())
        assert instance.get_runs_count() == 1
    with DagsterInstance.from_ref(InstanceRef.from_dir(str(home))) as again:
        assert again.get_runs_count() == 1


def test_the_log_of_a_run_says_what_it_is_doing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RUN_PROGRESS, "log_every_seconds", 0.1)

    @asset
    @failures_shown()
    def committed() -> None:
        RUN_PROGRESS.count("ranges", 3, total=6_000)
        time.sleep(1)

    with DagsterInstance.from_ref(InstanceRef.from_dir(str(home))) as instance:
        run = materialize([committed], instance=instance)
        lines = [entry for entry in instance.all_logs(run.run_id) if "3 of 6,000 ranges" in entry.user_message]
        assert {(line.step_key, line.level) for line in lines} == {("committed", logging.INFO)}
        assert lines[0].user_message.startswith("reading committed data (")


def test_doctor_says_what_an_instance_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with configured_instance() as instance:
        assert instance is None
    home = tmp_path / "home"
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with pytest.raises(ConfigurationError, match="not a folder"), configured_instance():
        pass
    home.mkdir()

    def lacks() -> list[str]:
        with configured_instance() as instance:
            assert instance is not None
            return [trait.remedy for trait in traits(instance) if trait.remedy]

    one_run, monitoring, telemetry = lacks()
    assert "dagster instance concurrency set <prefix>__runs 1" in one_run
    assert "run_monitoring" in monitoring
    assert "telemetry" in telemetry
    # Another pool, or a greater limit, does not help.
    with configured_instance() as instance:
        assert instance is not None
        instance.event_log_storage.set_concurrency_slots("lakefs_gc__runs", 2)
        instance.event_log_storage.set_concurrency_slots("database", 1)
    assert one_run in lacks()
    with configured_instance() as instance:
        assert instance is not None
        instance.event_log_storage.set_concurrency_slots("lakefs_gc__runs", 1)
    per_step, *others = lacks()
    assert ("pools: {granularity: run}" in per_step, others) == (True, [monitoring, telemetry])
    (home / "dagster.yaml").write_text("concurrency: {pools: {granularity: run}}\n")
    assert lacks() == [monitoring, telemetry]
    write_settings(home, Settings())
    assert lacks() == []
    (home / "dagster.yaml").write_text("run_retries: {enabled: true}\n")
    assert any("run_retries" in remedy for remedy in lacks())


def _run() -> DagsterRun:
    return DagsterRun(job_name="gc_mark", status=DagsterRunStatus.NOT_STARTED)


def test_instance_of_the_demo_is_below_its_home_whatever_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    write_settings(home, Settings())
    monkeypatch.chdir(elsewhere)
    with DagsterInstance.from_ref(InstanceRef.from_dir(str(home))) as instance:
        instance.add_run(_run())
    assert list(elsewhere.iterdir()) == []


def test_settings_of_the_demo_survive_their_file(tmp_path: Path) -> None:
    settings = Settings(
        repositories=("lake", "pond"),
        work_url='file:///a folder/wo"rk',
        mounts={"local://": "file:///data\\x/"},
        spark={"spark.master": "local[2]"},
    )
    assert load_settings(write_settings(tmp_path, settings)) == settings.model_copy(
        update={"safety": load_settings(tmp_path / "lakefs-gc.toml").safety}
    )


def test_workspace_names_the_code_location() -> None:
    (origin,) = WorkspaceFileTarget(paths=[str(PACKAGE / "workspace.yaml")]).create_origins()
    assert origin.location_name == "lakefs_gc"
    assert origin.loadable_target_origin.module_name == "lakefs_gc.definitions"


@pytest.mark.parametrize("name", ["dagster.yaml", "workspace.yaml"])
def test_repository_has_the_files_of_the_package(name: str) -> None:
    at_the_top = PACKAGE.parent / name
    if not (PACKAGE.parent / "pyproject.toml").exists():
        pytest.skip("not a checkout")
    assert at_the_top.resolve() == (PACKAGE / name).resolve()
    assert yaml.safe_load(at_the_top.read_text("utf-8"))
