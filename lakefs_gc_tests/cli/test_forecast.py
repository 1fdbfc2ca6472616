"""``forecast`` and ``branches``, from an installation without runs to the tables that people read."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefs_gc.cli.commands.forecast import parse_retention
from lakefs_gc.demo.story import REPOSITORY, Storyteller
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc_tests.support.commands import Run


@pytest.mark.long(60)
def test_forecast_and_branches(run: Run, lake: Storyteller, tmp_path: Path) -> None:
    config = tmp_path / "lakefs-gc.toml"
    text = config.read_text().replace("[safety]", "[safety]\nmin_age_hours = 0.0003")
    config.write_text(f'work_url = "file://{tmp_path}/work"\n{text}')
    # Objects of a deleted repository, beside the namespace of the demo.
    deleted = tmp_path / "objects" / "deleted-repository"
    for name in ("dummy", "data/slice/object"):
        (deleted / name).parent.mkdir(parents=True, exist_ok=True)
        (deleted / name).write_bytes(b"12345")
    made = run("forecast", REPOSITORY, "--retention", "default=1,main=3650", "--json")
    assert made.exit_code == 0, made.err
    facts = made.json()
    present, asked = facts["present"], facts["asked"]
    assert [row["days"] for row in present["freed"]] == [0, 30, 90]
    assert asked["rules"] == {"default_days": 1, "branches": {"main": 3650}}
    assert asked["freed"][0]["size_bytes"] != present["freed"][0]["size_bytes"]
    assert facts["curve"][0]["days"] == 0
    assert facts["not_read"] == {"metadata_files": [], "repositories": [], "no_other_repository": False}

    marked = run("mark", REPOSITORY, "--json").json()
    assert (present["freed"][0]["objects"], present["freed"][0]["size_bytes"]) == (
        marked["candidates"],
        marked["candidate_bytes"],
    )

    shown = run("branches", REPOSITORY, "--unused-namespaces", "--idle-days", "0")
    assert shown.exit_code == 0, shown.err
    for text in ("main", "only here", "Metadata files that no visible commit names", "deleted-repository/", "10 B"):
        assert text in shown.out
    assert "Nothing is deleted." in shown.out
    assert (deleted / "data/slice/object").exists()

    again = run("forecast", REPOSITORY)
    assert again.exit_code == 0, again.err
    for text in ("Assumption: No commit", "present rules", "now", "in 90 days", "brings nothing back", "####"):
        assert text in again.out


@pytest.mark.parametrize(
    ("text", "rules"),
    [("", None), ("default=30", GCRules(30)), ("main=14, default=0", GCRules(0, {"main": 14}))],
)
def test_retention_of_the_command_line(text: str, rules: GCRules | None) -> None:
    assert parse_retention(text) == rules


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("main=14", "has no default"),
        ("default=x", "'default=x' is not BRANCH=DAYS"),
        ("default=3,main=1,main=2", "with a new branch"),
        ("default=-1", "whole days"),
        ("default=0", "as no rules"),
    ],
)
def test_a_wrong_retention_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_retention(text)
