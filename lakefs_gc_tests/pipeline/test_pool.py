"""The pool of an embedded code location, with Dagster's own daemon: a second run of a repository waits (rule 10)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRunStatus, RunRecord, RunsFilter

from lakefs_gc.pipeline.instances import configured_instance, traits
from lakefs_gc_tests.support.killing import kill_session
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lake_fixtures import lake_of_environment, repository_with_garbage

__all__ = ["lake_of_environment", "repository_with_garbage"]

INSTANCE = "telemetry: {enabled: false}\nconcurrency:\n  pools: {granularity: run}\n"
LIMIT = ("instance", "concurrency", "set", "lakefs_gc__runs", "1")
PARTITIONS = ("lake/first", "lake/second")
TIMEOUT_SECONDS = 300
_MARKS = RunsFilter(job_name="lakefs_gc__gc_mark")  # a sensor starts a forecast after each
_ENDED = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)


@pytest.mark.of_ci  # outside CI, resources/test_run_lock shows that a second run does not begin (rule 10)
@pytest.mark.long(120)
def test_the_second_run_of_a_repository_waits_for_the_first(
    lake: Lake,
    repository: LakeRepository,
    tmp_path: Path,
    small_spark_config: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    settings = {"work_url": lake.settings.work_url, "mounts": lake.settings.mounts, "spark": small_spark_config}
    project = tmp_path / "project.py"
    project.write_text(
        "from lakefs_gc.component import build_lakefs_gc_definitions\n"
        f"defs = build_lakefs_gc_definitions(['lake'], settings={settings!r})\n"
    )
    _dagster(*LIMIT)
    for partition in PARTITIONS:
        tags = json.dumps({"dagster/partition": partition})
        _dagster("job", "launch", "-f", str(project), "-j", "lakefs_gc__gc_mark", "--tags", tags)
    with DagsterInstance.from_config(str(home)) as instance, (tmp_path / "daemon.log").open("wb") as log:
        assert [run.status for run in instance.get_runs(_MARKS)] == [DagsterRunStatus.QUEUED] * 2
        daemon = subprocess.Popen(
            [sys.executable, "-m", "dagster._daemon", "run", "-f", str(project)],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while any(run.status not in _ENDED for run in instance.get_runs(_MARKS)):
                assert daemon.poll() is None, (tmp_path / "daemon.log").read_text()[-3000:]
                assert time.monotonic() < deadline, (tmp_path / "daemon.log").read_text()[-3000:]
                time.sleep(0.5)
        finally:
            kill_session(daemon)
        first, second = sorted(instance.get_run_records(_MARKS), key=_started_at)
        # Neither was refused by the assets' own check, because neither began while the other ran.
        assert [record.dagster_run.status for record in (first, second)] == [DagsterRunStatus.SUCCESS] * 2
        assert first.end_time is not None
        assert first.end_time <= _started_at(second)


def test_doctor_says_when_the_pool_does_not_hold_a_second_run_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))

    def remedy(text: str) -> str:
        (tmp_path / "dagster.yaml").write_text(text)
        with configured_instance() as instance:
            assert instance is not None
            return next(iter(traits(instance))).remedy

    assert "dagster instance concurrency set <prefix>__runs 1" in remedy(INSTANCE)
    # The first runs of a new pool start before Dagster has given it the default.
    assert "concurrency set" in remedy(INSTANCE.replace("run}", "run, default_limit: 1}"))
    _dagster(*LIMIT)
    assert remedy(INSTANCE) == ""
    # Dagster's default limits the steps of a pool. Then the second run begins between two steps of the first.
    for text in ("telemetry: {enabled: false}\n", INSTANCE.replace("run}", "op}")):
        assert "pools: {granularity: run}" in remedy(text)
        assert "concurrency set" not in remedy(text)


def _dagster(*arguments: str) -> None:
    command = [sys.executable, "-m", "dagster", *arguments]
    ended = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert ended.returncode == 0, ended.stderr[-3000:]


def _started_at(record: RunRecord) -> float:
    assert record.start_time is not None, record.dagster_run.status
    return record.start_time
