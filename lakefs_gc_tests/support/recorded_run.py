"""One complete run through the command line and the assets, on S3, with all requests recorded.

It has the real secrets of the S3 server and the sandbox, and additional known secrets in the places where users keep
them. One process runs everything, with a Dagster instance on disk and Spark's event log. The command lines of all its
processes and all its requests are recorded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lakefs_proxy import LakeFSProxy
from lakefs_gc_tests.support.request_recorder import Needed, S3Recorder

PLANTED = {
    name: f"planted-{name}-5ec7e7"
    for name in ("unused-variable", "wrong-password", "in-the-url", "in-broken-yaml", "in-spark", "wrong-s3-secret")
}

of_a_recorded_run = pytest.mark.of_ci
"""Of tests that look at the run: with all its commands and jobs it takes a hundred seconds."""

_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class RecordedRun:
    """The results of the process: each command with its output, the folder, and all observed command lines."""

    ended: list[dict[str, Any]]
    output: bytes
    folder: Path
    command_lines: dict[int, set[bytes]]
    secrets: dict[str, str]
    namespace: StoreLocation
    other_namespace: StoreLocation
    backups: StoreLocation
    needed: set[Needed]
    """What the requests to S3 needed."""
    asked: set[tuple[str, str]]
    """Method and path of the requests to lakeFS."""


class _Watch(threading.Thread):
    """Collects the command lines of a process and its descendants, which share a session."""

    def __init__(self, session: int) -> None:
        super().__init__(daemon=True)
        self.found: dict[int, set[bytes]] = {}
        self.over = threading.Event()
        self._session = session

    def run(self) -> None:
        while not self.over.wait(_PAUSE_SECONDS):
            for process in Path("/proc").iterdir():
                if process.name.isdigit():
                    self._look(process)

    def _look(self, process: Path) -> None:
        try:
            if os.getsid(int(process.name)) == self._session:
                self.found.setdefault(int(process.name), set()).add((process / "cmdline").read_bytes())
        except OSError:
            return  # it has ended


def _settings(folder: Path, backups: StoreLocation, spark_config: dict[str, str]) -> str:
    spark = spark_config | {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.local.dir": str(folder / "tmp"),
    }
    lines = "\n".join(f'"{name}" = "{value}"' for name, value in spark.items())
    return f'[safety]\nlongest_commit_minutes = 0\n[backup]\nurl = "{backups.url}"\n[spark]\n{lines}\n'


def _steps(settings: str, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Return the steps: a run with backup and restore, and then failures that could print a secret."""
    good = [
        ["doctor", "lake", "--json"],
        ["mark", "lake", "--min-age", "1s", "--json"],
        ["show", "lake", "--mark", "{mark}"],
        ["backup", "lake", "--mark", "{mark}", "--json"],
        ["approve", "lake", "--mark", "{mark}", "--digest", "{digest}", "--by", "ada"],
        ["sweep", "lake", "--mark", "{mark}", "--json"],
        ["restore", "{mark}", "--json"],
        ["history", "lake"],
    ]
    endpoint, password = "LAKECTL_SERVER_ENDPOINT_URL", "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
    fails = ["mark", "lake", "--min-age", "1s"]
    real = {name: environment[name] for name in (endpoint, password, "AWS_ENDPOINT_URL_S3", "AWS_SECRET_ACCESS_KEY")}
    in_url = f"http://somebody:{PLANTED['in-the-url']}@127.0.0.1:9"
    broken = f"credentials:\n  secret_access_key: '{PLANTED['in-broken-yaml']}\n  server: [\n"
    return [
        *({"arguments": ["--log-json", *arguments]} for arguments in good),
        {"arguments": fails, "environment": {password: PLANTED["wrong-password"]}},
        {"arguments": fails, "environment": real | {endpoint: in_url}},
        {"arguments": fails, "environment": {endpoint: f"{PLANTED['in-the-url']}"}},
        {"arguments": fails, "environment": real | {"AWS_SECRET_ACCESS_KEY": PLANTED["wrong-s3-secret"]}},
        {"arguments": fails, "environment": real | {"AWS_ENDPOINT_URL_S3": in_url}},
        {"arguments": fails, "environment": real | {"AWS_ENDPOINT_URL_S3": f"http://{PLANTED['in-the-url']}@["}},
        {"arguments": fails, "environment": real | {password: "", endpoint: ""}, "files": {".lakectl.yaml": broken}},
        {
            "arguments": fails,
            "environment": real,
            "files": {"lakefs-gc.toml": f'{settings}"spark.hadoop.fs.s3a.secret.key" = "{PLANTED["in-spark"]}"\n'},
        },
    ]


@contextmanager
def record_run(s3_server: SeaweedFS, spark_config: dict[str, str], folder: Path) -> Iterator[RecordedRun]:
    """Run all steps. In the ``with`` block, the environment and the servers of the run are still active."""
    for name in ("home", "tmp", "events"):
        (folder / name).mkdir()
    name = f"security-{time.time_ns()}"
    bucket = StoreLocation(f"s3://lakefs-gc-tests/{name}/lakes")
    backups = StoreLocation(f"s3://{name}/backups")
    s3_server.client().create_bucket(Bucket=name)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        for variable, value in s3_server.environment.items():
            patch.setenv(variable, value)
        for variable in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
            patch.delenv(variable, raising=False)
        open_store(backups).put("here", b"")
        with Lake(folder / "lake", bucket, SandboxOptions(grace_period_seconds=1)) as lake:
            repository = lake.repository()
            repository.keep_days(1)
            repository.put("live")
            repository.put("dead", "some content")
            repository.commit(age_days=3)
            repository.delete("dead")
            repository.commit(age_days=2)
            repository.put("live/too")
            repository.commit()
            repository.put_stray("data/garbage/never-committed")
            other = lake.repository("other")
            other.put("of another repository")
            used = repository.put_stray("data/garbage/used-by-another")
            other.stage("a/link", repository.namespace + used, size_bytes=5)
            other.commit()
            time.sleep(1.2)
            store = stack.enter_context(S3Recorder(s3_server.endpoint))
            api = stack.enter_context(LakeFSProxy(lake.credentials.endpoint_url))
            settings = _settings(folder, backups, spark_config)
            (folder / "lakefs-gc.toml").write_text(settings)
            (folder / "home" / ".lakectl.yaml").symlink_to("../.lakectl.yaml")
            environment = os.environ | {
                "AWS_ENDPOINT_URL_S3": store.endpoint,
                "LAKECTL_SERVER_ENDPOINT_URL": api.url,
                "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": lake.credentials.access_key_id,
                "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lake.credentials.secret_access_key,
                "HOME": str(folder / "home"),
                "TMPDIR": str(folder / "tmp"),
                "DAGSTER_HOME": str(folder / "home"),
                "UNUSED_API_TOKEN": PLANTED["unused-variable"],
            }
            (folder / "plan.json").write_text(json.dumps(_steps(settings, environment)))
            secrets = PLANTED | {
                "lakefs": lake.credentials.secret_access_key,
                "s3": s3_server.secret_key,
                "s3 access key id": s3_server.access_key,
                "lakefs access key id": lake.credentials.access_key_id,
            }
            process = subprocess.Popen(
                [sys.executable, "-m", "lakefs_gc_tests.support.security_commands", "plan.json"],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            watch = _Watch(process.pid)
            watch.start()
            try:
                output, _ = process.communicate(timeout=600)
            finally:
                process.kill()
                watch.over.set()
            watch.join()
            ended = folder / "plan.ended"
            assert ended.exists(), output.decode(errors="replace")[-3000:]
            steps = json.loads(ended.read_text())
            yield RecordedRun(
                steps,
                output,
                folder,
                watch.found,
                secrets,
                repository.location,
                other.location,
                backups,
                store.needed,
                {(request.method, request.path.partition("?")[0]) for request in api.asked},
            )
