"""A mark and its sweep through Spark Connect, with a real server in separate processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefs_gc.engine.spark.compat import spark_version
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.live_and_garbage import Scene
from lakefs_gc_tests.support.processes import CommandLine

needs_connect = pytest.mark.skipif(spark_version() < (4, 0), reason="lakefs-gc refuses Spark Connect with Spark 3.5")
needs_reuse = pytest.mark.skipif(spark_version() < (4, 3), reason="Spark has no server that stays")
SPARK = {
    "spark.remote": "local[2]",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@pytest.fixture
def server_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where PySpark notes the server that stays: this one is of this test alone."""
    monkeypatch.setenv("SPARK_TESTING", "1")  # the server selects a port
    file = tmp_path / "server" / "connect.json"
    monkeypatch.setenv("SPARK_LOCAL_CONNECT_DISCOVERY", str(file))
    yield file
    if file.exists():
        os.kill(server_of(file), signal.SIGKILL)


def server_of(file: Path) -> int:
    process: int = json.loads(file.read_text())["pid"]
    return process


@needs_reuse
@pytest.mark.of_ci
@pytest.mark.long(100)
def test_a_server_that_stays_may_die_in_the_middle(tmp_path: Path, server_file: Path) -> None:
    """Both of a mark and of its sweep. Each run ends with an error soon, and the next one starts another server."""
    with Lake(tmp_path / "lake") as lake:
        scene = Scene.of(lake.repository())
        garbage = {scene.repository.put_stray(f"data/x/{number}", b"garbage") for number in range(3)}
        spark = SPARK | {"spark.local.connect.reuse": "true"}
        line = CommandLine(lake, tmp_path / "command-line", spark, tmp_path / "work")

        def dies(when: str, *arguments: str) -> int:
            """The server of a run that dies; its run must end by itself."""
            with line.begin(*arguments) as process:
                assert process.stderr is not None
                seen = next((text for text in process.stderr if when in text), "")
                assert seen, f"no line of the log says {when}"
                server = server_of(server_file)
                os.kill(server, signal.SIGKILL)
                rest = process.stderr.read()
                assert process.wait() not in (0, -signal.SIGKILL), rest
                assert "Spark could not finish" in rest, rest
            scene.check_live(f"the server died at {when}")
            return server

        servers = {dies("candidates: started", "mark", "lake")}
        assert garbage <= scene.repository.objects()
        marked = line.json("mark", "lake")
        assert marked["candidates"] == len(garbage)
        servers.add(server_of(server_file))
        failed = [check["name"] for check in marked["failed_checks"]]
        overrides = [option for name in failed for option in ("--override", name)]
        sweep = ("sweep", "lake", "--mark", marked["mark_id"])
        line.json("approve", *sweep[1:], "--digest", marked["digest"], "--by", "ada", *overrides, "--why", "a test")
        servers.add(dies("sweep_plan:", *sweep))
        swept = line.json(*sweep)
        servers.add(server_of(server_file))
        assert (swept["deleted"], swept["failed"]) == (len(garbage), 0)
        assert not garbage & scene.repository.objects()
        scene.check_live("in the end")
        assert len(servers) == 3, "the second mark leaves its server to the sweep"


@pytest.mark.of_ci  # the same run as elsewhere, over another protocol of Spark
@pytest.mark.long(80)
@needs_connect
def test_mark_and_sweep_work_through_spark_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_TESTING", "1")  # the server selects a port, and the client requests it
    with Lake(tmp_path / "lake") as lake:
        scene = Scene.of(lake.repository())
        garbage = scene.litter()
        line = CommandLine(lake, tmp_path / "command-line", SPARK, tmp_path / "work")
        ended = line.json("run", "lake", "--yes")
        assert (ended["candidates"], ended["deleted"], ended["failed"]) == (1, 1, 0)
        assert garbage not in scene.repository.objects()
        scene.check_live("in the end")
