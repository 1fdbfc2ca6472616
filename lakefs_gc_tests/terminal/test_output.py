"""Keys, paths and messages come out of the command line as they are."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from dataclasses import replace

import pytest

from lakefs_gc.errors import StorageError
from lakefs_gc.pipeline.ui.summaries import not_lakefs_metadata
from lakefs_gc.terminal.findings import Finding
from lakefs_gc.terminal.output import Output
from lakefs_gc_tests.support.sample_mark import MARK

KEY = r"a:100:b [red]c[/red] \\[d] [/e] :warning:"


def test_json_is_what_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).result({"key": KEY, "long": "x:100:" * 100}, lambda: None)
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"key": KEY, "long": "x:100:" * 100}
    assert shown.count("\n") == 1


def test_people_see_keys_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.say(KEY)
    out.show_errors([{"objects": 1, "error": "AccessDenied", "for_example": KEY}])
    out.show_findings([Finding("store", "fail", KEY, KEY)])
    assert capsys.readouterr().out.count(KEY) == 4


def test_what_is_not_lakefs_is_shown() -> None:
    mark = replace(MARK, run={"not_lakefs": 1234, "not_lakefs_bytes": 2048, "named_at_root": ""})
    metadata = not_lakefs_metadata(mark)
    assert metadata == {"not_lakefs": 1234, "not_lakefs_bytes": 2048, "not_lakefs_size": "2.0 KiB"}
    named = replace(mark, run={"not_lakefs": 0, "not_lakefs_bytes": 0, "named_at_root": KEY})
    assert not_lakefs_metadata(named)["named_at_root"].value == KEY
    assert not_lakefs_metadata(replace(mark, run={})) == {}, "of an older mark, which says nothing of them"


def test_errors_and_logs_show_keys_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.say_error(KEY)
    out.fail(StorageError(KEY, remedy=KEY))
    logging.getLogger("lakefs_gc.engine").warning(KEY)
    assert capsys.readouterr().err.count(KEY) == 4


def test_help_loads_nothing_that_only_a_run_needs() -> None:
    """Each of these takes between a fifth of a second and two to load."""
    code = "import sys; from lakefs_gc.cli.main import main; sys.argv = ['lakefs-gc', '--help']\ntry: main()\n"
    code += "finally: sys.stderr.write(' '.join({name.partition('.')[0] for name in sys.modules}))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sweep" in ended.stdout
    assert {"dagster", "pyspark", "pyarrow", "boto3", "lakefs_sdk", "numba"} & set(ended.stderr.split()) == set()


def test_what_only_reads_marks_does_not_load_what_makes_them() -> None:
    """Arrow loads pandas for a list of Python values (``pa.array``), also at the import of a module."""
    code = "import sys, lakefs_gc.cli.mark_pages; print({'dagster', 'numba', 'pandas'} & {*sys.modules})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"


def test_in_a_notebook_progress_is_text(monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder) -> None:
    """Without ipywidgets, rich would warn at each refresh, and each line would be an output of the cell."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    displayed: list[object] = []
    monkeypatch.setattr("rich.jupyter.display", lambda *shown: displayed.append(shown))
    out = Output(as_json=True)
    with out.progress("forecasting lake"):
        out.say("one line")
    assert displayed == []
    assert not [warning for warning in recwarn if "ipywidgets" in str(warning.message)]
