"""Kill a process and everything that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to a process and its descendants: its JVM, and Spark's workers in their own process groups."""
    for _ in range(2):  # again, for processes that were started meanwhile
        for pid in in_session(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait()


def in_session(session: int) -> Iterator[int]:
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = file.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                yield int(file.parent.name)
