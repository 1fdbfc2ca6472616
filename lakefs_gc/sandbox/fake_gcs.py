"""Run fake-gcs-server, an emulator of Google Cloud Storage (github.com/fsouza/fake-gcs-server, written in Go).

It listens on the loopback interface only, and keeps its objects in memory.
"""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path
from types import TracebackType

import urllib3

from lakefs_gc.errors import ConfigurationError, StoreUnavailableError
from lakefs_gc.sandbox.server_process import HOST, ServerProcess, free_port

log = logging.getLogger(__name__)

PROGRAM = "fake-gcs-server"


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
        self._server = ServerProcess(PROGRAM, folder, "fake-gcs-server.log")

    def __enter__(self) -> FakeGCS:
        """Start the server. Raise ``ConfigurationError`` (not installed) or ``StoreUnavailableError``."""
        program = fake_gcs_program()
        port = free_port()
        self.endpoint = f"http://{HOST}:{port}"
        command = [program, "-scheme", "http", "-host", HOST, "-port", str(port), "-backend", "memory"]
        command += ["-public-host", f"{HOST}:{port}", "-external-url", self.endpoint, "-log-level", "warn"]
        command += ["-data", str(self.folder / "none")]
        try:
            self._server.start(command)
            self._server.wait_for_port(port)
        except BaseException:
            self.close()
            raise
        log.info("fake-gcs-server ready: endpoint=%s pid=%d", self.endpoint, self._server.pid)
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
            raise StoreUnavailableError(f"{PROGRAM} did not create a bucket", remedy=f"Read the log {self._server.log}")

    def close(self) -> None:
        """Stop the server, and wait until its process has ended."""
        self._server.stop()
