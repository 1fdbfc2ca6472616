"""Commands of ``lakefs-gc`` in this process. A conftest imports the fixture ``run`` if its tests use it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from lakefs_gc.cli import main


@dataclass(frozen=True)
class Ended:
    """The result of a command."""

    exit_code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.out)
        return content


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["lakefs-gc", *arguments])
        capsys.readouterr()
        try:
            main()
            exit_code = 0
        except SystemExit as end:
            exit_code = end.code if isinstance(end.code, int) else int(end.code is not None)
        captured = capsys.readouterr()
        return Ended(exit_code, captured.out, captured.err)

    return run
