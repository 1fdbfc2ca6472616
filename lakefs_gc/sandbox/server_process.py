"""The process of an emulator: it writes a log, ends with its user, and does not outlive it."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lakefs_gc.errors import StoreUnavailableError

HOST = "127.0.0.1"
_TIMEOUT_SECONDS = 60.0


class ServerProcess:
    """A program in ``folder``, which also has its log."""

    def __init__(self, name: str, folder: Path, log_name: str) -> None:
        self.name, self.folder, self.log = name, folder, folder / log_name
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start the program with no environment but the PATH, its folder as the home, and ``environment``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder), **(environment or {})},
                start_new_session=True,  # Ctrl-C ends it through stop(), after its users
            )

    @property
    def pid(self) -> int:
        """Return the number of the process, 0 if it does not run."""
        return self._process.pid if self._process else 0

    @property
    def has_ended(self) -> bool:
        """Whether it was not started, or ended by itself."""
        return self._process is None or self._process.poll() is not None

    def wait_for_port(self, port: int) -> None:
        """Wait until it listens. Raise ``StoreUnavailableError`` if it ends, or takes too long."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            try:
                socket.create_connection((HOST, port), timeout=1).close()
                return
            except OSError as error:
                if self.has_ended or time.monotonic() > deadline:
                    raise StoreUnavailableError(
                        f"{self.name} {'ended' if self.has_ended else 'did not become ready'}",
                        remedy=f"Read the log {self.log}",
                    ) from error
                time.sleep(0.1)

    def stop(self, seconds: float = 5) -> bool:
        """Stop it, and wait until it has ended; kill it after ``seconds``. Return whether it was running."""
        process, self._process = self._process, None
        if process is None:
            return False
        process.terminate()
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return True


def free_port() -> int:
    """Return a port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
