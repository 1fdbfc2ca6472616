"""Run fake-gcs-server, an emulator of Google Cloud Storage (github.com/fsouza/fake-gcs-server, written in Go).

It listens on the loopback interface only, and keeps its objects in memory.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import urllib3

from lakefs_gc.errors import ConfigurationError, StoreUnavailableError

log = logging.getLogger(__name__)

PROGRAM = "fake-gcs-server"
HOST = "127.0.0.1"
_TIMEOUT_SECONDS = 60.0


def fake_gcs_program() -> str:
    """Return the path of the emulator. Raise ``ConfigurationError`` if it is not installed.

    It is looked for on the PATH, and in the folder ``fake-gcs`` of the virtual environment.
    """
    program = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=str(Path(sys.prefix) / "fake-gcs"))
    if not program:
        raise ConfigurationError(
            f"{PROGRAM}, an emulator of Google Cloud Storage, is not installed",
            remedy=f"Run `go install github.com/fsouza/{PROGRAM}@latest`, and add its folder to the PATH",
        )
    return program


class FakeGCS:
    """A running emulator: ``with FakeGCS(folder) as server: server.environment``. It ends with the ``with`` block.

    ``folder`` has its log. It checks no credentials.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.endpoint = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> FakeGCS:
        """Start the server. Raise ``ConfigurationError`` (not installed) or ``StoreUnavailableError``."""
        program = fake_gcs_program()
        self.folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = probe.getsockname()[1]
        self.endpoint = f"http://{HOST}:{port}"
        command = [program, "-scheme", "http", "-host", HOST, "-port", str(port), "-backend", "memory"]
        command += ["-public-host", f"{HOST}:{port}", "-external-url", self.endpoint, "-log-level", "warn"]
        command += ["-data", str(self.folder / "none")]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder)},
                start_new_session=True,  # Ctrl-C ends it through close(), after its users
            )
        try:
            self._wait(port)
        except BaseException:
            self.close()
            raise
        log.info("fake-gcs-server ready: endpoint=%s pid=%d", self.endpoint, self._process.pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def environment(self) -> dict[str, str]:
        """Return the variable of Google's clients that leads to this server."""
        return {"STORAGE_EMULATOR_HOST": self.endpoint}

    def create_bucket(self, name: str) -> None:
        """Create a bucket. Raise ``StoreUnavailableError``."""
        answer = urllib3.request("POST", f"{self.endpoint}/storage/v1/b", json={"name": name}, retries=False)
        if answer.status != 200:
            raise StoreUnavailableError(f"{PROGRAM} did not create a bucket", remedy=f"Read the log {self._log}")

    def close(self) -> None:
        """Stop the server, and wait until its process has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait(self, port: int) -> None:
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            try:
                socket.create_connection((HOST, port), timeout=1).close()
                return
            except OSError as error:
                ended = self._process is None or self._process.poll() is not None
                if ended or time.monotonic() > deadline:
                    raise StoreUnavailableError(
                        f"{PROGRAM} {'ended' if ended else 'did not become ready'}", remedy=f"Read the log {self._log}"
                    ) from error
                time.sleep(0.1)

    @property
    def _log(self) -> Path:
        return self.folder / "fake-gcs-server.log"
