"""``lakefs-gc designs``, as text and as JSON."""

from __future__ import annotations

import json
import sys

import pytest

from lakefs_gc.cli import main


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["lakefs-gc", *arguments])
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main()
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


def test_a_trace_is_printed_as_numbered_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(monkeypatch, capsys, "designs", "show", "5", "commit-move")
    assert code == 0
    assert 'move a to b  Move 2: "locks" entry a  -> done' in out
    assert "=> a committed entry lost its object: c1/a is committed as A, which does not exist" in out
    assert " states in " in out


def test_a_trace_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(monkeypatch, capsys, "designs", "show", "4", "override", "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["scenario"], facts["found"]) == ("override", ["leaked"])
    assert facts["states"] > 10
    (trace,) = facts["traces"]
    assert trace["steps"][0] == {"operation": "client", "step": "Upload 1: writes object A1", "reply": ""}
    assert trace["afterwards"]


def test_a_design_lists_its_scenarios(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(monkeypatch, capsys, "designs", "show", "2")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert "a staged entry lost its object" in rows["lost-update-aws"]
    assert "nothing found" in rows["lost-update-azure"]
    code, out, _ = run(monkeypatch, capsys, "designs", "show", "2", "--json")
    assert [one["scenario"] for one in json.loads(out)["scenarios"]][:1] == ["lost-update-aws"]


@pytest.mark.parametrize("arguments", [("show", "8"), ("show", "5", "comit-move")])
def test_an_unknown_name_is_an_error_that_lists_the_known_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    code, out, err = run(monkeypatch, capsys, "designs", *arguments)
    assert (code, out) == (2, "")
    assert "what to do: Choose one of these: " in err
