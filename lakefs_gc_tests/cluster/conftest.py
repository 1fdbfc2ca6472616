"""The archive for executors, which the command line makes once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc_tests.support.faulty_store import levelled_s3

__all__ = ["levelled_s3"]


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The output of ``lakefs-gc package --json``."""
    file = tmp_path_factory.mktemp("package") / "lakefs-gc.tar.gz"
    command = [sys.executable, "-m", "lakefs_gc", "package", "--output", str(file), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr[-3000:]
    facts: dict[str, Any] = json.loads(ended.stdout)
    assert Path(facts["archive"]) == file
    return facts
