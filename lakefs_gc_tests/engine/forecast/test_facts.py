"""Branches, what could not be read, and what the Dagster UI shows, from a forecast table."""

from __future__ import annotations

from dataclasses import replace

from dagster import TableMetadataValue

from lakefs_gc.engine.forecast.commit_holds import DEFAULT
from lakefs_gc.engine.forecast.facts import branch_facts, forecast_facts, sampled
from lakefs_gc.engine.forecast.outlook import HEAD, NONE, Branch, Forecast, Row, Total
from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc.pipeline.ui.summaries import forecast_metadata

FORECAST = Forecast(
    classes=(DEFAULT,),
    rows=[
        Row(HEAD, 0, (None,), -1, False, Total(2, 200)),
        Row(HEAD, 1, (4,), -1, False, Total(1, 10)),
        Row(HEAD, None, (None,), -1, False, Total(3, 3000)),
        Row(NONE, None, (40,), -1, False, Total(4, 400)),
        Row(NONE, None, (10,), -1, False, Total(5, 50)),
    ],
    branches=[
        Branch("exp", "a", 190, Total(4, 1200)),
        Branch("main", "b", 0, Total(3, 3010)),
        Branch("damaged", "c", 300, None),
    ],
    rules=GCRules(30),
    facts={
        "as_of": "2026-07-01T12:00:00+00:00",
        "metadata": {"files": 9, "unnamed_files": 2, "unnamed_bytes": 77, "unnamed_bytes_by_age": {"over a year": 77}},
        "other_repositories_not_read": ["secret"],
        "other_repositories_switched_off": False,
    },
    unreadable=("c0ffee",),
)


def test_branches_by_what_they_hold_alone() -> None:
    exp, main, damaged = branch_facts(FORECAST, idle_days=190)
    assert (exp["branch"], exp["only_objects"], exp["only_bytes"], exp["shared_bytes"]) == ("exp", 2, 200, 1000)
    assert (exp["worth_a_look"], exp["frees_after_days"]) == (True, 0)
    assert (main["branch"], main["only_bytes"], main["shared_bytes"]) == ("main", 10, 3000)
    assert (main["worth_a_look"], main["frees_after_days"]) == (False, 30)
    assert (damaged["shown_bytes"], damaged["shared_bytes"], damaged["worth_a_look"]) == (None, None, False)
    assert not any(row["worth_a_look"] for row in branch_facts(FORECAST, idle_days=191))


def test_what_could_not_be_read_is_reported() -> None:
    facts = forecast_facts(FORECAST, None, is_asked=True)
    assert facts["not_read"] == {
        "metadata_files": ["_lakefs/c0ffee"],
        "repositories": ["secret"],
        "no_other_repository": False,
    }
    assert facts["asked"]["freed"][0]["objects"] == 0, "no rules free nothing"
    assert "asked" not in forecast_facts(FORECAST)
    assert [row["branch"] for row in facts["present"]["only_heads"]] == [None, "exp"], "the rules keep what main has"


def test_the_ui_plots_the_numbers_and_shows_what_was_not_read() -> None:
    shown = forecast_metadata(FORECAST)
    assert [shown[f"freed_bytes_in_{days}_days"] for days in (0, 30, 90)] == [400, 450, 450]
    assert shown["only_heads_bytes"] == 3200
    assert (shown["not_read"], shown["not_read_files"]) == ("_lakefs/c0ffee, secret", 1)
    assert isinstance(shown["only_heads"], TableMetadataValue)
    assert {record.data["branch"] for record in shown["only_heads"].records} == {"several", "exp"}
    assert "11 days" in shown["freed_by_a_rule_of_n_days"].value
    rows = [Row(NONE, None, (age_days,), -1, False, Total(1, 10)) for age_days in (0, 40)]
    assert "1 day " in forecast_metadata(replace(FORECAST, rows=rows))["freed_by_a_rule_of_n_days"].value


def test_a_long_curve_keeps_its_greatest_steps() -> None:
    curve = [{"days": days, "size_bytes": 1000 - days - (500 if days >= 77 else 0)} for days in range(100)]
    chosen = sampled(curve)
    assert len(chosen) == 20
    assert [chosen[0], *(step for step in chosen if step["days"] == 77)] == [curve[0], curve[77]]
    assert sampled(curve[:20]) == curve[:20]
