"""A Spark standalone cluster of processes. Each machine has its own folder, session and S3 credentials."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import pyspark

from lakefs_gc.engine.spark.java import ensure_java
from lakefs_gc_tests.support.killing import kill_session

_SPARK_HOME = Path(pyspark.__file__).parent
_START_SECONDS = 120


class Machine:
    """A process of Spark and all that it starts."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *command: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(_SPARK_HOME / "bin" / "spark-class"), *command],
                cwd=folder,
                # Nothing of this virtual environment, because executors import only from the archive.
                env={
                    "PATH": "/usr/bin:/bin",
                    "HOME": str(folder),
                    "JAVA_HOME": str(ensure_java()),
                    "SPARK_HOME": str(_SPARK_HOME),
                    "SPARK_LOCAL_DIRS": str(folder / "local"),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
                    **environment,
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_for(self, pattern: str) -> str:
        """Wait until the log matches a pattern, and return its first group."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            text = self.log.read_text()
            if found := re.search(pattern, text):
                return found[1]
            assert self.process.poll() is None, text[-3000:]
            assert time.monotonic() < deadline, text[-3000:]
            time.sleep(0.1)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL to the machine's process, its executors and their Python workers."""
        kill_session(self.process)


class StandaloneCluster:
    """``with StandaloneCluster(folder, environments) as cluster``: a master, and a worker of one core for each name.

    ``environments``: the environment variables of the executors of each worker.
    """

    def __init__(self, folder: Path, environments: Mapping[str, Mapping[str, str]]) -> None:
        self._folder = folder
        self._environments = environments
        self._machines: list[Machine] = []
        self.workers: dict[str, Machine] = {}
        self.url = ""

    def __enter__(self) -> StandaloneCluster:
        try:
            here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            master = self._start("master", {}, "org.apache.spark.deploy.master.Master", *here)
            self.url = master.wait_for(r"Starting Spark master at (spark://\S+)")
            size = ("--cores", "1", "--memory", "1g")
            for name, environment in self._environments.items():
                place = ("--work-dir", str(self._folder / name / "work"))
                command = ("org.apache.spark.deploy.worker.Worker", *here, *size, *place, self.url)
                self.workers[name] = self._start(name, environment, *command)
            for worker in self.workers.values():
                worker.wait_for("(Successfully registered with master)")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self, name: str, environment: Mapping[str, str], *command: str) -> Machine:
        machine = Machine(self._folder / name, environment, *command)
        self._machines.append(machine)
        return machine

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for machine in reversed(self._machines):
            machine.kill()
