"""The line of a command that runs."""

from __future__ import annotations

import io
import logging
import subprocess
import sys

import pytest
from rich.console import Console
from rich.spinner import Spinner

from lakefs_gc.engine.progress import Progress, Tasks
from lakefs_gc.terminal.output import Output
from lakefs_gc.terminal.progress_line import ProgressLine


def drawn(line: ProgressLine) -> str:
    return line.__rich__().plain


def test_it_is_current_whenever_it_is_drawn() -> None:
    now, asked = [0.0], []
    progress = Progress(lambda: now[0])
    progress.tasks = lambda: asked.append(1) or Tasks(1, 4)  # type: ignore[func-returns-value]
    line = ProgressLine("marking lake", progress, lambda: now[0])
    assert drawn(line) == "marking lake, 0:00"
    with progress.step("unmatched"):
        now[0] = 65.0
        for _ in range(20):
            shown = drawn(line)
        assert shown == "marking lake, 1:05  comparing the store with all references (1 min 5 s): 1 of 4 tasks"
        assert len(asked) == 1, "Spark is not asked at each drawing"
    now[0] = 66.0
    assert drawn(line) == "marking lake, 1:06"


def test_a_narrow_terminal_cuts_it() -> None:
    progress = Progress()
    console = Console(file=io.StringIO(), width=30)
    with progress.step("unmatched"):
        console.print(Spinner("dots", ProgressLine("marking lake", progress)))
    assert console.file.getvalue().count("\n") == 1  # type: ignore[attr-defined]


def test_a_run_whose_output_dagster_captures_shows_it() -> None:
    """Dagster redirects standard error to a file while steps run."""
    code = """
import logging, os, sys
from lakefs_gc.terminal.output import Output
out = Output(verbose=True)
with out.progress("marking lake"):
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    logging.getLogger("lakefs_gc.engine").info("seen in spite of it")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "seen in spite of it" in ended.stderr


def test_standard_error_that_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    with out.progress("marking lake"):
        logging.getLogger("lakefs_gc.engine").warning("a warning")
    out.say_error("an error")
    first, second = capsys.readouterr().err.splitlines()
    assert (first[8:], second) == (" a warning", "an error")
