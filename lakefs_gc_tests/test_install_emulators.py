"""What the installation of the emulators does if a tool fails, in CI and elsewhere. The tools are scripts."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from lakefs_gc.errors import ConfigurationError
from lakefs_gc_tests import install_emulators
from lakefs_gc_tests.install_emulators import AZURITE, FAKE_GCS, install, main, skip_without

_INSTALL = {
    "npm": 'while [ "$1" != --prefix ]; do shift; done; B="$2/node_modules/.bin"; mkdir -p "$B"; F="$B/azurite-blob"',
    "go": 'mkdir -p "$GOBIN"; F="$GOBIN/fake-gcs-server"',
}
_WORKS = {name: f'{text}; echo x > "$F"; chmod +x "$F"' for name, text in _INSTALL.items()}
_NO_ANSWER = {
    "npm": "echo 'npm error code ENOTFOUND' >&2; exit 1",
    "go": "echo 'go: x: Get \"y\": dial tcp: lookup y: no such host' >&2; exit 1",
}
_BROKEN = {"npm": "echo 'npm error code ETARGET' >&2; exit 1", "go": "echo 'compile: version mismatch' >&2; exit 1"}


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the tools, which is the PATH with the machine's shell; the environment to install in is empty."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(install_emulators, "PAUSE_SECONDS", 0.0)
    return folder


def write(tools: Path, scripts: dict[str, str]) -> None:
    for name, text in scripts.items():
        (tools / name).write_text(f'#!/bin/sh\necho "$*" >> {tools}/calls\n{text}\n')
        (tools / name).chmod(0o755)


def without(program: str) -> tuple[bool, str]:
    """Return whether a test without the program is skipped, rather than failed, and the reason."""
    try:
        skip_without(ConfigurationError("not here", remedy="install it"), program)
    except pytest.skip.Exception as skipped:
        return True, str(skipped)
    except pytest.fail.Exception as failed:
        return False, str(failed)
    raise AssertionError("the test would run")


def calls(tools: Path) -> int:
    return len((tools / "calls").read_text().splitlines())


def test_what_is_installed_is_not_installed_again(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    write(tools, _WORKS)
    assert main() == 0
    assert (tmp_path / "azurite" / "node_modules" / ".bin" / AZURITE).exists()
    assert (tmp_path / "fake-gcs" / FAKE_GCS).exists()
    assert calls(tools) == 2
    write(tools, _BROKEN)
    assert main() == 0
    assert calls(tools) == 2


@pytest.mark.parametrize(("ci", "exit_code"), [("true", 1), ("", 0)])
def test_a_failure_is_an_error_in_ci_only(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ci: str, exit_code: int
) -> None:
    monkeypatch.setenv("CI", ci)
    write(tools, _BROKEN)
    assert main() == exit_code
    assert calls(tools) == 2, "tried once: it would fail again"
    is_skipped, reason = without(AZURITE)
    assert is_skipped is not bool(ci)
    assert "not here" in reason


def test_a_registry_that_does_not_answer_is_no_error_and_the_reason_is_kept(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    write(tools, _WORKS | {"npm": _NO_ANSWER["npm"]})
    [failure] = install(tmp_path, {"PATH": f"{tools}:/usr/bin:/bin"})
    assert failure.no_answer
    assert calls(tools) == 3 + 1, "npm thrice, go once"
    is_skipped, reason = without(AZURITE)
    assert is_skipped
    assert re.fullmatch(r"not here\. A registry did not answer: .*ENOTFOUND", reason)
    write(tools, _NO_ANSWER)
    (tmp_path / "fake-gcs" / FAKE_GCS).unlink()
    assert main() == 0
    assert "dial tcp" in (tmp_path / "fake-gcs" / "no-answer.txt").read_text()
    write(tools, _BROKEN)
    assert main() == 1, "another reason now"
    is_skipped, reason = without(AZURITE)
    assert not is_skipped
    assert "make emulators" in reason
