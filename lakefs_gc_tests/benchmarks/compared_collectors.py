"""Runs of the two collectors as processes: lakefs-gc's command, and lakeFS's own Spark client.

Both write their marks in the same layout (``formats/report.py``), so one function reads both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import lakefs_gc
from lakefs_gc.config import ServerCredentials
from lakefs_gc.errors import ConfigurationError, MarkError
from lakefs_gc.formats.parquet import read_strings
from lakefs_gc.formats.report import MARKS_FOLDER, Summary, report_paths
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc_tests.benchmarks.harness import watched

CLIENT_CLASS = "io.treeverse.gc.GarbageCollection"
_MIN_AGE_SECONDS = 1
_OUTPUT_END_CHARACTERS = 3000
_CONFIG = """\
repositories = ["{repository}"]
work_url = "file://{folder}/work"

[safety]
# Only the benchmark writes to its repositories, and nothing while a collector runs.
longest_commit_minutes = 0
"""


class CollectorFailedError(Exception):
    """A collector ended with an error; the message has the end of its output."""


@dataclass(frozen=True)
class Run:
    """A run of a collector: elapsed and processor time, from the start of its process to the end."""

    wall_seconds: float
    cpu_seconds: float
    mark_id: str


class Collector(Protocol):
    """What the benchmark asks of a collector."""

    def mark(self, repository: str, store: ObjectStore) -> Run: ...

    def sweep(self, repository: str, mark_id: str) -> Run: ...


class Ours:
    """The command ``lakefs-gc`` of this checkout. ``folder`` has its workspace, so a fresh one has no range cache.

    ``cache`` is the user's cache folder of the process, so what ``warm-up`` recorded for this user has no effect.
    """

    def __init__(self, folder: Path, cache: Path, credentials: ServerCredentials) -> None:
        self._folder = folder
        environment = dict(os.environ)
        for name in ("DAGSTER_HOME", "LAKEFS_GC_CONFIG"):
            environment.pop(name, None)
        self._environment = environment | {
            "LAKECTL_SERVER_ENDPOINT_URL": credentials.endpoint_url,
            "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": credentials.access_key_id,
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": credentials.secret_access_key,
            "PYTHONPATH": str(Path(lakefs_gc.__file__).parents[1]),
            "XDG_CACHE_HOME": str(cache),
        }

    def warm_up(self) -> None:
        """Record Java's cache for the runs that follow."""
        self._run("warm-up")

    def mark(self, repository: str, store: ObjectStore) -> Run:
        del store
        return self._run("mark", repository, "--min-age", f"{_MIN_AGE_SECONDS}s", "--unsafe-min-age")

    def sweep(self, repository: str, mark_id: str) -> Run:
        return self._run("sweep", repository, "--mark", mark_id)

    def _run(self, command: str, repository: str = "", *arguments: str) -> Run:
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "lakefs-gc.toml"
        config.write_text(_CONFIG.format(repository=repository or "none", folder=self._folder), "utf-8")
        named = [command, *([repository] if repository else []), *arguments, "--json"]
        program = [sys.executable, "-m", "lakefs_gc", "--config", str(config), *named]
        usage, output = _measured(program, self._environment, self._folder)
        facts = json.loads(output)
        return Run(*usage, str(facts.get("mark_id", "")))


class SparkClient:
    """lakeFS's own client: ``spark-submit`` with its jar, and the further jars that Spark needs for S3.

    ``spark_home`` is the folder of a Spark, e.g. ``site-packages/pyspark`` of an environment. ``folder`` gets the file
    of Spark properties, because a command line would show the secrets to all users of the machine.
    """

    def __init__(
        self,
        folder: Path,
        credentials: ServerCredentials,
        *,
        jar: Path,
        spark_home: Path,
        jars: Sequence[Path] = (),
        cores: int = 2,
        partitions: int = 0,
        memory: str = "4g",
    ) -> None:
        self._folder, self._jar = folder, checked_client_jar(jar)
        self._program = spark_home / "bin" / "spark-submit"
        if not self._program.is_file():
            raise ConfigurationError(
                f"{spark_home} has no bin/spark-submit",
                remedy="Pass the folder of a Spark that fits the client: --spark-home FOLDER",
            )
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
        self._environment["SPARK_HOME"] = str(spark_home)
        self._properties = {
            "spark.master": f"local[{cores}]",
            "spark.driver.memory": memory,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.hadoop.lakefs.api.url": f"{credentials.endpoint_url}/api/v1",
            "spark.hadoop.lakefs.api.access_key": credentials.access_key_id,
            "spark.hadoop.lakefs.api.secret_key": credentials.secret_access_key,
            "spark.hadoop.lakefs.debug.gc.uncommitted_min_age_seconds": str(_MIN_AGE_SECONDS),
            "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            **_store_properties(os.environ),
        }
        if jars:
            self._properties["spark.jars"] = ",".join(f"local:{file.absolute()}" for file in jars)
        if partitions:
            self._properties["spark.sql.shuffle.partitions"] = str(partitions)
            self._properties["spark.default.parallelism"] = str(partitions)
        self._region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"

    def mark(self, repository: str, store: ObjectStore) -> Run:
        before = mark_ids(store)
        usage = self._run(repository, {"spark.hadoop.lakefs.gc.do_sweep": "false"})
        new = mark_ids(store) - before
        if len(new) != 1:
            raise CollectorFailedError(f"lakeFS's client wrote {len(new)} marks instead of one: {sorted(new)}")
        return Run(*usage, new.pop())

    def sweep(self, repository: str, mark_id: str) -> Run:
        mode = {"spark.hadoop.lakefs.gc.do_mark": "false", "spark.hadoop.lakefs.gc.mark_id": mark_id}
        return Run(*self._run(repository, mode), mark_id)

    def _run(self, repository: str, mode: Mapping[str, str]) -> tuple[float, float]:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / "spark.properties"
        file.touch(mode=0o600)
        file.write_text(properties_text({**self._properties, **mode}), "utf-8")
        options = ["--properties-file", str(file), "--class", CLIENT_CLASS]
        program = [str(self._program), *options, str(self._jar), repository, self._region]
        return _measured(program, self._environment, self._folder)[0]


def checked_client_jar(jar: Path) -> Path:
    """Return the absolute path of a jar that has lakeFS's garbage collector. Raise ``ConfigurationError``."""
    remedy = "Pass the assembly jar of lakeFS's Spark client: --client-jar FILE"
    try:
        with zipfile.ZipFile(jar) as archive:
            archive.getinfo(f"{CLIENT_CLASS.replace('.', '/')}.class")
    except OSError as error:
        raise ConfigurationError(f"Cannot read {jar}: {error.strerror}", remedy=remedy) from error
    except zipfile.BadZipFile as error:
        raise ConfigurationError(f"{jar} is not a jar", remedy=remedy) from error
    except KeyError as error:
        raise ConfigurationError(f"{jar} has no class {CLIENT_CLASS}", remedy=remedy) from error
    return jar.absolute()


def properties_text(properties: Mapping[str, str]) -> str:
    """Return a file of Java properties. Raise ``ConfigurationError`` for a value with a line break."""
    lines = []
    for name, value in properties.items():
        if not value.isprintable():
            raise ConfigurationError(f"The value of {name} has a line break", remedy="Remove it")
        lines.append(f"{name}={value}\n".replace("\\", "\\\\"))
    return "".join(lines)


def _store_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Return how Hadoop reaches the store that this process reaches. What is not set is left to AWS's own chain."""
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    values = {
        "endpoint": endpoint,
        "path.style.access": "true" if endpoint else None,
        "access.key": environment.get("AWS_ACCESS_KEY_ID"),
        "secret.key": environment.get("AWS_SECRET_ACCESS_KEY"),
        "session.token": environment.get("AWS_SESSION_TOKEN"),
    }
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in values.items() if value}


def mark_ids(store: ObjectStore) -> set[str]:
    """Return the ids of all marks in a namespace, of either collector."""
    folders, _ = store.list_level(MARKS_FOLDER)
    return {folder.removeprefix(MARKS_FOLDER).rstrip("/") for folder in folders}


def marked_addresses(store: ObjectStore, mark_id: str) -> set[str]:
    """Return the addresses of a mark. Raise ``MarkError`` if its run failed, or the files contradict its summary."""
    paths = report_paths(mark_id)
    if paths.summary is None:
        raise MarkError(f"mark {mark_id} has no summary")
    summary = Summary.from_json(store.read(paths.summary), paths.summary)
    if not summary.success:
        raise MarkError(f"mark {mark_id} is of a failed run")
    files = [key for batch in store.list(paths.deleted) for key in batch["address"].to_pylist()]
    addresses = [
        address
        for key, data in store.read_many(key for key in files if key.endswith(".parquet"))
        for address in read_strings(data, "address", key).to_pylist()
    ]
    if len(addresses) != summary.num_deleted_objects or len(set(addresses)) != len(addresses):
        raise MarkError(f"mark {mark_id} has {len(addresses)} addresses instead of {summary.num_deleted_objects}")
    return set(addresses)


def _measured(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> tuple[tuple[float, float], str]:
    """Run a command. Return elapsed and processor seconds of all its processes, and its standard output."""
    with watched() as usage:
        done: subprocess.CompletedProcess[Any] = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
    if done.returncode != 0:
        output = f"{done.stdout}\n{done.stderr}"[-_OUTPUT_END_CHARACTERS:]
        raise CollectorFailedError(f"{Path(command[0]).name} ended with exit code {done.returncode}:\n{output}")
    seconds = sum(seconds for kind, seconds in usage.cpu_seconds.items() if kind != "driver")
    return (usage.wall_seconds, seconds), done.stdout
