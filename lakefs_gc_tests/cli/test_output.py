"""Keys, paths and messages come out of the command line as they are."""

from __future__ import annotations

import json
import logging

import pytest

from lakefs_gc.cli.output import Output
from lakefs_gc.errors import StorageError
from lakefs_gc.findings import Finding

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


def test_errors_and_logs_show_keys_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.say_error(KEY)
    out.fail(StorageError(KEY, remedy=KEY))
    logging.getLogger("lakefs_gc.engine").info(KEY)
    assert capsys.readouterr().err.count(KEY) == 4
