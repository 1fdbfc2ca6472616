"""Runs in this process, for the command line."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from dagster import DagsterInstance, DagsterRunStatus
from pyspark import SparkContext
from pyspark.sql import SparkSession

from lakefs_gc.config import Settings
from lakefs_gc.engine.spark import session as spark_session
from lakefs_gc.errors import ConfigurationError, InputOrderError, LakeFSGCError, ServerError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.pipeline.partitions import REPOSITORY_TAG, gc_runs
from lakefs_gc.pipeline.session import GCSession, _cause

RUN = "lake/one"


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No configuration of a server but what a test sets."""
    for name in [name for name in os.environ if name.startswith("LAKECTL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)


def test_without_an_instance_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with GCSession.open(Settings()) as session:
        work = Path(urlsplit(session.settings.resolved_work_url()).path)
        assert session.instance.is_ephemeral
        assert work.parent.exists()
    assert not work.parent.exists()
    assert list(tmp_path.iterdir()) == []


def test_instance_of_the_working_directory_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``dagster dev`` uses there, so that its sensor sees an approval of the command line."""
    (tmp_path / "dagster.yaml").write_bytes(files("lakefs_gc").joinpath("dagster.yaml").read_bytes())
    monkeypatch.chdir(tmp_path)
    with GCSession.open(Settings()) as session, pytest.raises(ConfigurationError):
        session.mark(RUN)
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        assert [run.job_name for run in instance.get_runs()] == ["gc_mark"]


def test_an_interruption_leaves_the_spark_that_ran_before(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a notebook, or of a job on Databricks."""
    monkeypatch.setattr(spark_session, "_started_here", threading.Event())
    with pytest.raises(KeyboardInterrupt), GCSession.open(Settings()):
        raise KeyboardInterrupt
    assert SparkContext._active_spark_context is spark.sparkContext
    assert spark.range(3).count() == 3


def test_configured_workspace_is_kept(tmp_path: Path) -> None:
    with GCSession.open(Settings(work_url=tmp_path.as_uri())) as session:
        assert session.settings.resolved_work_url() == tmp_path.as_uri()
    assert tmp_path.exists()


def test_runs_stand_in_the_instance_of_dagster_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with GCSession.open(Settings()) as session, pytest.raises(ConfigurationError):
        session.mark(RUN)
    with DagsterInstance.get() as instance:
        (run,) = instance.get_runs()
        assert (run.job_name, run.status) == ("gc_mark", DagsterRunStatus.FAILURE)
        assert run.tags["dagster/partition"] == RUN
        # The same tag as in the UI: the queue counts this run too.
        assert run.tags[REPOSITORY_TAG] == "lake"
        assert run.tags["lakefs_gc/process"].startswith(f"{run.run_id}@"), "otherwise nobody notices if it was killed"
        assert list(instance.get_dynamic_partitions(str(gc_runs.name))) == [], "a refused run leaves no partition"


@pytest.mark.parametrize("home", ["relative/home", "{tmp}/missing", "{tmp}/file"])
def test_a_dagster_home_that_is_no_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setenv("DAGSTER_HOME", home.format(tmp=tmp_path))
    with pytest.raises(ConfigurationError, match="DAGSTER_HOME") as refused, GCSession.open(Settings()):
        pytest.fail("opened")
    assert "unset it" in refused.value.remedy


def test_errors_come_through_dagster_as_they_were_raised(
    connect_to_lakefs: Callable[[str], LakeFSClient], tmp_path: Path
) -> None:
    settings = Settings(work_url=tmp_path.as_uri())
    with GCSession.open(settings) as session, pytest.raises(ConfigurationError, match="LAKECTL_SERVER_ENDPOINT_URL"):
        session.mark(RUN)
    with GCSession.open(settings) as session, pytest.raises(ConfigurationError, match="is not a run key"):
        session.mark("no run key")
    connect_to_lakefs("http://127.0.0.1:9")  # discard: nobody listens
    with GCSession.open(settings) as session, pytest.raises((InputOrderError, ServerError)) as missing:
        session.materialize("gc_approve", RUN, {})
    assert missing.value.remedy


def test_finds_the_error_behind_errors_that_go_in_circles() -> None:
    ours = LakeFSGCError("ours")
    outer, inner = RuntimeError("outer"), RuntimeError("inner")
    outer.__cause__, inner.__context__ = inner, outer
    assert _cause(outer) is outer
    inner.__cause__ = ours
    assert _cause(outer) is ours
    assert _cause(ours) is ours
