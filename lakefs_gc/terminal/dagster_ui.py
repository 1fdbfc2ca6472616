"""Dagster's UI and its daemon, as one process until it is interrupted."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from lakefs_gc.errors import ConfigurationError

# Dagster recommends its tool `dg`, which lakefs-gc does not need.
_NO_DG_WARNING = "ignore:Function `dev_command` is superseded"
_SHUTDOWN_SECONDS = 30


def serve_dagster(environment: Mapping[str, str], host: str, port: int) -> int:
    """Run ``dagster dev`` in the folder ``DAGSTER_HOME`` of ``environment``, and return its exit code.

    Raises ``ConfigurationError`` if the port is in use.
    """
    _refuse_used_port(host, port)
    command = [sys.executable, "-W", _NO_DG_WARNING, "-m", "dagster", "dev"]
    workspace = Path(str(files("lakefs_gc"))) / "workspace.yaml"
    command += ["-w", str(workspace), "-h", host, "-p", str(port), "--log-level", "warning"]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts background programs so. Dagster would inherit that, and could not be ended.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command, env={**os.environ, **environment}, cwd=environment["DAGSTER_HOME"])
    # systemd and Kubernetes end this process with SIGTERM. At SIGINT, Dagster ends its own processes, too.
    before = signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
    try:
        return process.wait()
    except KeyboardInterrupt:
        # The terminal sent Dagster the same signal, so it ends its daemon and its server.
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_SHUTDOWN_SECONDS)
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)
        process.terminate()


def _refuse_used_port(host: str, port: int) -> None:
    """Dagster would choose another port, and the address that was printed would lead to another program."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise ConfigurationError(
            f"Cannot listen on {host}:{port}: {error.strerror or error}",
            remedy="End the program that uses the port, or pass --port with another one",
        ) from None
