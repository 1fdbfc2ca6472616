"""Ctrl-C and SIGTERM in the middle of a mark, to commands in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc_tests.support.killing import kill_session
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lake_fixtures import lake
from lakefs_gc_tests.support.processes import TIMEOUT_SECONDS, CommandLine

__all__ = ["lake"]

pytestmark = pytest.mark.long(60)


@pytest.fixture
def line(tmp_path: Path, lake: Lake, small_spark_config: dict[str, str]) -> CommandLine:
    return CommandLine(lake, tmp_path / "command-line", small_spark_config, tmp_path / "work")


def _hear_ctrl_c() -> None:
    """A shell starts what it puts in the background deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.of_ci)],  # see engine/sweep/test_sweep_stopped, too
    ids=lambda number: number.name,
)
def test_an_interrupted_mark_says_so_and_leaves_nothing(
    lake: Lake, line: CommandLine, tmp_path: Path, number: signal.Signals
) -> None:
    """Without an instance or a workspace: both are temporary."""
    lake.repository().put_stray("data/x", b"garbage")
    configuration = line.folder / "lakefs-gc.toml"
    lines = configuration.read_text().splitlines(keepends=True)
    configuration.write_text("".join(text for text in lines if not text.startswith("work_url")))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {name: value for name, value in line.environment().items() if name != "DAGSTER_HOME"}
    _, said = _interrupt(line, {**environment, "TMPDIR": str(temporary)}, ["mark", "lake"], "store_listing: ", number)
    ours = [text for text in said.splitlines() if "gc_mark of lake/" in text][-1]
    assert "was interrupted; run the command again" in ours
    assert list(temporary.glob("*/work")) == []


@pytest.mark.of_ci
def test_a_mark_is_printed_although_its_forecast_is_interrupted(lake: Lake, line: CommandLine) -> None:
    repository = lake.repository()
    repository.put_stray("data/x", b"garbage")
    arguments = ["mark", "lake", "--forecast", "--json"]
    printed, said = _interrupt(line, line.environment(), arguments, "forecast: started", signal.SIGINT)
    made = json.loads(printed)
    assert repository.store.stat_many([MarkPaths.of(made["mark_id"]).manifest])
    assert "was interrupted" in [text for text in said.splitlines() if "gc_forecast of lake/" in text][-1]


def _interrupt(
    line: CommandLine, environment: dict[str, str], arguments: list[str], heard: str, number: signal.Signals
) -> tuple[str, str]:
    """Send a signal when a command has said ``heard``; return what it printed to stdout and after that to stderr."""
    process = subprocess.Popen(
        line.command("--verbose", *arguments),
        cwd=line.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_hear_ctrl_c,
    )
    assert process.stderr is not None
    try:
        assert any(heard in said for said in process.stderr)
        os.killpg(process.pid, number)  # as a terminal does it, and systemd
        printed, said = process.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        kill_session(process)  # type: ignore[arg-type]
    assert process.returncode == 130, said
    # No traceback of ours. A worker of Spark, which hears the signal too, may say what it was at, even after our line.
    assert "lakefs_gc/cli" not in said
    return printed, said
