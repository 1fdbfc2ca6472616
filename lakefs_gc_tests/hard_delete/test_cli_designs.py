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
    assert "=> a committed entry lost its object: d2/a is committed as A, which does not exist" in out
    assert " states in " in out


def test_a_trace_of_a_combination_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    name = "a staged: reset (crashes)"
    code, out, _ = run(monkeypatch, capsys, "designs", "show", "4", name, "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["scenario"], facts["found"]) == (name, ["leaked"])
    assert facts["states"] > 10
    (trace,) = facts["traces"]
    assert trace["steps"][0] == {"operation": "reset", "step": "reads branch main", "reply": "at c0, staging t1"}
    assert trace["afterwards"]


def test_a_design_lists_its_scenarios_and_its_smallest_combinations(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(monkeypatch, capsys, "designs", "show", "1", "--operations", "2")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert "committed data changed" in rows["write-after-commit"]
    assert "conditional delete, a staged: upload a + commit" in out
    code, out, _ = run(monkeypatch, capsys, "designs", "show", "2", "--json")
    facts = json.loads(out)
    found = {one["scenario"]: one["found"] for one in facts["scenarios"]}
    assert (found["lost-update-aws"], found["lost-update-azure"]) == (["staged_lost"], [])
    assert facts["readings"][0]["found"]["leaked"] >= len(facts["readings"][0]["smallest"]["leaked"]) > 5


def test_all_designs_are_listed_with_what_small_combinations_break(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(monkeypatch, capsys, "designs", "--json")
    facts = json.loads(out)
    assert code == 0
    assert [design["design"] for design in facts["designs"]] == [1, 2, 3, 4, 5, 6]
    within, beyond = facts["designs"][-1]["readings"]
    assert set(within["found"].values()) == {0}
    assert beyond["found"]["committed_lost"] > 0


@pytest.mark.parametrize("arguments", [("show", "8"), ("show", "5", "comit-move")])
def test_an_unknown_name_is_an_error_that_lists_the_known_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    code, out, err = run(monkeypatch, capsys, "designs", *arguments)
    assert (code, out) == (2, "")
    assert "what to do: Choose one of these: " in err
