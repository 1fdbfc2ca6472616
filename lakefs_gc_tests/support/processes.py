"""Runs of the command line as processes that tests kill or restrict, and Spark's Python workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lakefs_gc_tests.support.killing import kill_session
from lakefs_gc_tests.support.lake import Lake

TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class CommandLine:
    """``lakefs-gc`` in a separate process, with its Dagster instance and its workspace in ``folder``."""

    lake: Lake
    folder: Path
    spark: Mapping[str, str]
    work: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.home.mkdir(exist_ok=True)
        (self.home / "dagster.yaml").touch()
        spark = "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in self.spark.items())
        (self.folder / "lakefs-gc.toml").write_text(
            f"work_url = {json.dumps(self.work.as_uri())}\n"
            f'[mounts]\n"local://" = {json.dumps(self.lake.location.folder_url)}\n'
            "[safety]\nlongest_commit_minutes = 0\n"
            "[sweep]\nobjects_per_request = 1\n"
            f"[spark]\n{spark}"
        )

    @property
    def home(self) -> Path:
        return self.folder / "dagster"

    def environment(self) -> dict[str, str]:
        credentials = self.lake.credentials
        return {
            **os.environ,
            "DAGSTER_HOME": str(self.home),
            "LAKECTL_SERVER_ENDPOINT_URL": credentials.endpoint_url,
            "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": credentials.access_key_id,
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": credentials.secret_access_key,
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "lakefs_gc", *arguments]

    def run(self, *arguments: str, within: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run the command to its end. ``within``: a command that runs it."""
        return subprocess.run(
            [*within, *self.command(*arguments)],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    def json(self, *arguments: str) -> dict[str, Any]:
        """Return the JSON output of a command that succeeds."""
        ended = self.run(*arguments, "--json")
        assert ended.returncode == 0, ended.stderr[-3000:]
        content: dict[str, Any] = json.loads(ended.stdout)
        return content

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command in a session of its own, with its log in ``stderr``."""
        return subprocess.Popen(
            self.command("--verbose", *arguments),
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def kill_when(self, pattern: str, *arguments: str) -> bool:
        """Start, and SIGKILL everything once a line of its log has ``said``; whether it came to that."""
        process = self.begin(*arguments)
        assert process.stderr is not None
        try:
            return any(pattern in line for line in process.stderr)
        finally:
            kill_session(process)  # type: ignore[arg-type]
            process.stderr.close()

    def kill_once(self, condition: Callable[[], bool], *arguments: str) -> bool:
        """Start, and SIGKILL everything once a condition holds; whether it came to that before the end."""
        process = subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while process.poll() is None and time.monotonic() < deadline:
                if condition():
                    return True
                time.sleep(0.002)
            return False
        finally:
            kill_session(process)


def kill_workers(spark: SparkSession) -> int:
    """Send SIGKILL to the Python workers of a session, but not to their daemon. Return the number of workers."""
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
    daemons = {pid for pid, parent in parents.items() if parent == jvm}
    workers = [pid for pid, parent in parents.items() if parent in daemons]
    for pid in workers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(workers)


def run_python(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new Python process that imports what this one imports."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
    )
