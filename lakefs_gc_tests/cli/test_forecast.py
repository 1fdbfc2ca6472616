"""``forecast`` and ``branches``, from an installation without runs to the tables that people read."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefs_gc.cli.commands.forecast import parse_retention
from lakefs_gc.demo.story import REPOSITORY, Storyteller
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc_tests.support.commands import Run


@pytest.mark.of_ci
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


@pytest.mark.of_ci
@pytest.mark.long(90)
def test_a_mark_with_its_forecast(run: Run, lake: Storyteller, tmp_path: Path) -> None:
    """Without a workspace that lasts, nobody can compute it later."""
    config = tmp_path / "lakefs-gc.toml"
    config.write_text(config.read_text().replace("[safety]", "[safety]\nmin_age_hours = 0.0003"))
    alone = run("mark", REPOSITORY)
    assert alone.exit_code == 0, alone.err
    assert f"`lakefs-gc mark {REPOSITORY} --forecast`" in alone.out.splitlines()[-1]
    (of_alone,) = (tmp_path / "objects").rglob("report.html")
    assert f"lakefs-gc forecast {REPOSITORY}" in of_alone.read_text()
    assert "<polyline" not in of_alone.read_text()

    with_it = run("mark", REPOSITORY, "--forecast")
    assert with_it.exit_code == 0, with_it.err
    said, _, url = with_it.out.splitlines()[-1].partition(": ")
    assert said == "The report beside the mark has its forecast"
    report = (tmp_path / "objects" / url.removeprefix("local://")).read_text()
    assert "<polyline" in report
    assert f"lakefs-gc forecast {REPOSITORY}" not in report

    config.write_text(config.read_text().replace("[safety]", "[safety]\nmax_commits = 1"))
    failed = run("mark", REPOSITORY, "--forecast", "--json")
    assert failed.exit_code == 3, failed.err
    assert failed.json()["mark_id"], "the mark is complete all the same"
    assert "max_commits" in failed.err


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
