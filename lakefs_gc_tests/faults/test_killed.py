"""SIGKILL to the driver or to Python workers, and full disks: the run ends right or refuses, the next one ends right.

``LAKEFS_GC_TESTS_KILLS=all`` kills the driver at every stage, and the workers at every request; by default at a few
(a sweep in the middle: ``engine/sweep/test_sweep_killed.py``).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.storage.local_folder import TEMPORARY
from lakefs_gc_tests.support.collector import STAGES
from lakefs_gc_tests.support.commands import Run
from lakefs_gc_tests.support.faulty_s3 import Answer, Request
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.live_and_garbage import Scene
from lakefs_gc_tests.support.processes import CommandLine, kill_workers

_ALL = os.environ.get("LAKEFS_GC_TESTS_KILLS") == "all"
_GARBAGE = 40
_BACKED_UP = 240

pytestmark = [
    pytest.mark.executors,
    pytest.mark.long(80),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the processes in /proc"),
]


@pytest.fixture
def line(tmp_path: Path, lake: Lake, small_spark_config: dict[str, str]) -> CommandLine:
    return CommandLine(lake, tmp_path / "command-line", small_spark_config, tmp_path / "work")


Next = Callable[..., dict[str, Any]]


@pytest.fixture
def next_run(line: CommandLine, run: Run, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Next:
    """What a command that ends well says: of the same command line, in this process, whose Spark is warm."""
    for name, value in line.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(line.folder)

    def json(*arguments: str) -> dict[str, Any]:
        ended = run(*arguments, "--json")
        assert ended.exit_code == 0, ended.err[-3000:]
        return ended.json()

    return json


@pytest.mark.of_ci  # outside CI, engine/sweep/test_sweep_killed kills the driver where it matters most: in a sweep
def test_the_driver_is_killed(lake: Lake, line: CommandLine, next_run: Next) -> None:
    """At each stage of a mark, then in each of three sweeps of one mark."""
    scene = Scene.of(lake.repository())
    garbage = {scene.repository.put_stray(f"data/x/{number:03}", b"garbage") for number in range(_GARBAGE)}
    there = scene.repository.objects()
    for stage in STAGES if _ALL else STAGES[3:4]:
        assert line.kill_when(f"{stage}: started", "mark", "lake")
        assert scene.repository.objects() == there
    marked = next_run("mark", "lake")
    assert marked["candidates"] == _GARBAGE
    failed = [check["name"] for check in marked["failed_checks"]]
    overrides = [option for name in failed for option in ("--override", name)]
    sweep = ("sweep", "lake", "--mark", marked["mark_id"])
    who = ("--digest", marked["digest"], "--by", "ada")
    next_run("approve", *sweep[1:], *who, *overrides, *(["--why", "a test"] if failed else []))
    for when in ("sweep_marked:", "look_1_committed:", "sweep_plan:") if _ALL else ():
        assert line.kill_when(when, *sweep)
        scene.check_live(f"killed at {when}")
    swept = next_run(*sweep)
    assert swept["deleted"] == _GARBAGE, "a sweep counts what the killed ones have deleted"
    assert not garbage & scene.repository.objects()
    scene.check_live("in the end")


@pytest.mark.of_ci
@pytest.mark.long(95)
def test_a_backup_and_the_sweep_that_needs_it_are_killed(
    lake: Lake, line: CommandLine, next_run: Next, tmp_path: Path
) -> None:
    """In their middle. Whatever is deleted has its copy, at each time, and the next ones go on to the end."""
    place = tmp_path / "backups"
    place.mkdir()
    with (line.folder / "lakefs-gc.toml").open("a") as settings:
        settings.write(f"[backup]\nurl = {json.dumps(place.as_uri())}\nrequired_before_sweep = true\n")
    scene = Scene.of(lake.repository())
    garbage = {f"data/x{number % 4}/{number:04}": b"%d" % number for number in range(_BACKED_UP)}
    for key, content in garbage.items():
        scene.repository.put_stray(key, content)
    marked = next_run("mark", "lake")
    assert marked["candidates"] == _BACKED_UP
    mark = ("lake", "--mark", marked["mark_id"])
    copies = place / "lake" / marked["mark_id"] / "objects"

    def copied() -> dict[str, bytes]:
        files = {file for file in copies.rglob("*") if file.is_file() and not TEMPORARY.match(file.name)}
        return {file.relative_to(copies).as_posix(): file.read_bytes() for file in files}

    def left() -> set[str]:
        return garbage.keys() & scene.repository.objects()

    assert line.kill_once(lambda: any(copies.glob("data/x*/*[0-9]")), "backup", *mark)
    assert 0 < len(copied()) < _BACKED_UP, "killed in the middle"
    assert left() == garbage.keys()
    failed = [check["name"] for check in marked["failed_checks"]]
    overrides = [option for name in failed for option in ("--override", name)]
    who = ("--digest", marked["digest"], "--by", "ada", *(["--why", "a test"] if failed else []))
    next_run("approve", *mark, *who, *overrides)
    refused = line.run("sweep", *mark)
    assert "has no complete backup" in refused.stderr
    assert left() == garbage.keys()
    next_run("backup", *mark)
    assert copied() == garbage

    assert line.kill_once(
        lambda: len(list(scene.repository.folder.glob("data/x0/*"))) < _BACKED_UP // 4, "sweep", *mark
    )
    assert 0 < len(left()) < _BACKED_UP, "killed in the middle"
    assert copied() == garbage
    lost = next(iter(left()))
    (copies / lost).unlink()
    refused = line.run("sweep", *mark)
    assert "has lost objects: 1 of" in refused.stderr
    assert lost in left(), "a sweep that continues needs the backup, too"
    next_run("backup", *mark)
    assert next_run("sweep", *mark)["deleted"] == _BACKED_UP
    assert left() == set()
    assert copied() == garbage
    scene.check_live("in the end")


@pytest.mark.of_ci
def test_workers_are_killed(spark: SparkSession, tmp_path: Path, store_in_s3: StoreInS3) -> None:
    """As they ask the store for something."""
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        scene, proxied = Scene.of(lake.repository()), store_in_s3.server
        proxied.requests.clear()
        assert scene.run(scene.collector(spark), scene.litter())
        requests = sum(map(is_of_worker, proxied.requests))
        kills, refused = 0, 0
        few = (0, requests // 2, requests - 1) if os.environ.get("CI") else (requests // 2,)
        chosen = range(requests) if _ALL else few
        for wanted in chosen:
            killed: list[int] = []
            asked = 0

            def kill(request: Request, wanted: int = wanted, killed: list[int] = killed) -> Answer | None:
                nonlocal asked
                if is_of_worker(request):
                    asked += 1
                    if asked > wanted and not killed:
                        killed.append(kill_workers(spark))
                return None

            proxied.faults.append(kill)
            garbage = scene.litter()
            try:
                assert scene.run(scene.collector(spark), garbage)
            except LakeFSGCError:
                refused += 1
            if not killed:  # this run asked for less than the one that was counted
                break
            assert killed[0] > 0
            kills += 1
            scene.check_live(f"workers killed at request {wanted} of theirs")
            proxied.faults.clear()
            assert scene.run(scene.collector(spark), scene.litter())
            scene.check_live(f"after workers were killed at request {wanted} of theirs")
        assert kills >= (len(chosen) - 2 if _ALL else (len(chosen) + 1) // 2)
        assert refused


def is_of_worker(request: Request) -> bool:
    return "Credential=worker/" in request.headers["authorization"]


def small_disk(folder: Path, size: str) -> list[str]:
    """A command that runs another with a disk of its own, of ``size``, at ``folder``; skips where that is forbidden."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("no disk of our own: user namespaces are not allowed here")
    folder.mkdir(exist_ok=True)
    mount = 'mount -t tmpfs -o size="$0" tmpfs "$1" && shift && exec "$@"'
    return ["unshare", "-rm", "sh", "-c", mount, size, str(folder)]


@pytest.mark.of_ci("80k")
@pytest.mark.parametrize("size", ["40k", "80k", "120k", "160k"] if _ALL else ["80k"])
def test_the_disk_of_the_workspace_is_full(lake: Lake, line: CommandLine, next_run: Next, size: str) -> None:
    scene = Scene.of(lake.repository())
    scene.litter()
    there = scene.repository.objects()
    ended = line.run("mark", "lake", within=small_disk(line.work, size))
    assert ended.returncode != 0
    assert "No space left on device" in ended.stderr
    # The daemon of Spark's workers prints one if a worker that is no longer needed has something left to say.
    assert not re.search(r"Traceback(?!.*pyspark/daemon\.py.*BrokenPipeError)", ended.stderr, re.DOTALL)
    assert scene.repository.objects() == there
    assert next_run("mark", "lake")["candidates"] == 1
