"""A Java home whose ``java`` only prints a version."""

from __future__ import annotations

from pathlib import Path


def fake_java(home: Path, version: str) -> Path:
    """Return a Java home whose ``java`` only prints its version to standard error, as real ones do."""
    (home / "bin").mkdir(parents=True)
    command = home / "bin" / "java"
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    command.chmod(0o755)
    return home
