"""The page of a mark: what to do next, numbers that add up, and nothing that is only in one of its renderings."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from lakefs_gc.engine.records.check import CHECKS, SWEEP_CHECKS, Severity
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_facts import Amount
from lakefs_gc.engine.records.stored_marks import Marked
from lakefs_gc.pipeline.ui.summaries import mark_metadata
from lakefs_gc.report.build import mark_page
from lakefs_gc.report.facts import page_facts
from lakefs_gc.report.markdown import escaped, next_markdown, table_markdown
from lakefs_gc.report.meanings import MEANINGS
from lakefs_gc.report.next_step import BackupState, Standing
from lakefs_gc.report.page import MarkPage
from lakefs_gc.report.tables import tables
from lakefs_gc.report.text import as_text
from lakefs_gc.report.words import percent
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.units import human_duration
from lakefs_gc_tests.support.sample_mark import MARK, NOW
from lakefs_gc_tests.support.sample_page import FACTS, FUNNEL, HOSTILE, OVERVIEW, SAMPLE, with_failed

LATER = Standing(NOW + timedelta(hours=1))


def page(mark: Mark = SAMPLE, standing: Standing | None = None) -> MarkPage:
    return mark_page(mark, FACTS, OVERVIEW, standing)


def test_the_steps_of_the_funnel_add_up() -> None:
    steps = [step for step in page().funnel if not step.is_detail]
    assert steps[0].amount == sum((step.amount for step in steps[1:]), Amount()) == FUNNEL.listed
    assert sum(step.share_of_objects for step in steps[1:]) == pytest.approx(100)
    details = [step.amount for step in page().funnel if step.name in ("expired", "never_committed")]
    assert sum(details, Amount()) == steps[-1].amount


def test_the_next_step_follows_from_the_mark() -> None:
    assert page().next.headline == "Ready for approval; deletes from 2026-07-01 12:20 UTC at the earliest"
    assert "waits 20 min" in page().next.detail
    assert page(standing=LATER).next.headline == "Ready for approval"

    blocked = page(with_failed(with_failed(SAMPLE, "share_of_objects"), "live_objects_exist"), LATER).next
    assert blocked.headline == "Blocked by 2 failed checks: share_of_objects, live_objects_exist"
    (command,) = blocked.commands
    assert "--override share_of_objects --override live_objects_exist --why" in command
    warned = page(with_failed(SAMPLE, "server_list_is_complete", Severity.WARN), LATER)
    assert warned.next.headline == "Ready for approval"
    assert [row.result for row in warned.failed_checks] == ["warning"]

    needy = replace(SAMPLE, run=SAMPLE.run | {"needs_backup": True})
    assert page(needy, LATER).next.headline == "A backup is required first"
    assert page(needy, replace(LATER, backup=BackupState.complete)).next.headline == "Ready for approval"
    by_policy = replace(SAMPLE, run=SAMPLE.run | {"sweep_policy": "after", "sweep_delay_hours": 24.0})
    assert page(by_policy).next.headline == "The policy sweeps this mark from 2026-07-02 12:00 UTC"


@pytest.mark.parametrize(
    ("state", "headline"),
    [
        ("approved", "Approved by ada"),
        ("swept", "Swept: nothing to do"),
        ("incomplete", "The sweep is incomplete"),
        ("sweep failed", "The sweep is incomplete"),
        ("sweeping", "A sweep is running"),
        ("partly restored (3 of 55)", "Partly restored (3 of 55)"),
        ("superseded", "Superseded by a newer mark"),
        ("swept: only expired", "Ready for approval"),
    ],
)
def test_the_next_step_follows_from_what_happened(state: str, headline: str) -> None:
    standing = replace(LATER, state=state, approved_by="ada", superseded_by="m2" if state == "superseded" else "")
    assert page(standing=standing).next.headline == headline


def test_an_empty_mark_says_why() -> None:
    funnel = replace(FUNNEL, marked=Amount(), kept=Amount(), kept_because={}, not_lakefs=Amount())
    funnel = replace(funnel, listed=funnel.live + funnel.newer)
    empty = replace(MARK, checks=SAMPLE.checks)
    shown = mark_page(empty, replace(FACTS, funnel=funnel, paths=None))
    why = "0 marked: 60 of 116 objects are live, and 56 objects are newer than the cutoff (minimum age 24 h)."
    assert (shown.next.headline, shown.why_empty) == ("Nothing to approve: no object is marked", why)
    assert not shown.next.can_approve
    names = [table.name for table in tables(shown)]
    assert {"folders", "largest_prefixes", "files", "bytes_by_age"} & set(names) == set(), "no empty tables"
    assert why in as_text(shown)


def test_a_mark_without_facts_still_shows() -> None:
    """Marks of earlier versions, and of lakeFS's own client, which has no sizes and no checks."""
    shown = as_text(mark_page(SAMPLE, None, OVERVIEW, LATER))
    assert "expired" in shown
    client = replace(
        SAMPLE, made_by="lakeFS Spark client", candidate_bytes=None, counts={}, reasons={}, checks=(), run={}
    )
    assert "made by" in as_text(mark_page(client, None, OVERVIEW, LATER))


def test_every_rendering_has_the_same_tables() -> None:
    shown = page(with_failed(SAMPLE, "share_of_objects"))
    text = as_text(shown)
    for table in tables(shown):
        assert table.title in text
        for row in table.rows:
            for cell in filter(None, row):
                assert cell in text
                assert escaped(cell.strip()) in table_markdown(table)
    assert "no longer" not in text


def test_the_facts_for_programs_have_what_the_tables_have() -> None:
    facts = json.loads(json.dumps(page_facts(page())))
    assert facts["bytes_by_age"]["30 to 90 days"] == {"listed": 8_700, "marked": 5_500, "never_committed": 500}
    assert facts["compared_with"] == "mark m0 of 2026-06-24 12:00 UTC"
    compared = {row["name"]: (row["before"], row["now"]) for row in facts["comparison"]}
    assert compared == {
        "objects in the store": (170, 177),
        "marked objects": (40, 55),
        "marked bytes": (4_000, 5_500),
    }
    (folder,) = facts["folders"]
    assert (folder["committer"], folder["expired_on"]) == (HOSTILE, "2026-05-20")
    assert folder["committed_at"] == (NOW - timedelta(days=60)).isoformat()
    assert facts["sample"][0]["path"] == f"exports/{HOSTILE}/part-0.parquet"
    in_force = {fact["name"]: fact["value"] for fact in facts["in_force"]}
    assert in_force.keys() == {"retention rules", "minimum age", "protections", "backup"}
    assert facts["lowered_settings"] == [{"name": "safety.max_marked_share", "value": "0.9", "default": "0.5"}]
    assert facts["ready_at"] == (NOW + timedelta(minutes=20)).isoformat()


def test_the_sample_has_paths_ages_and_rules() -> None:
    """An expired object has a path and the rule that ended it, one that was never committed has only an age."""
    (sample,) = (table for table in tables(page()) if table.name == "sample")
    rows = [dict(zip(sample.columns, row, strict=True)) for row in sample.rows]
    assert [row["path"] for row in rows] == [f"exports/{HOSTILE}/part-0.parquet", "", ""]
    assert [row["age"] for row in rows] == ["61 d", "9 d", ""]
    assert [row["why"] for row in rows] == ["main: 14 days: expired on 2026-05-20", "never committed", ""]
    assert [row["last commit"] for row in rows] == ["abababababab", "", ""]
    in_ui = mark_metadata(Marked(SAMPLE, open_store(StoreLocation("file:///lake"))), page())["sample"].records
    assert [record.data["object"] for record in in_ui] == [rows[0]["path"], rows[1]["address"], rows[2]["address"]]


def test_keys_and_names_are_text_in_markdown() -> None:
    folders = next(table for table in tables(page()) if table.name == "folders")
    markdown = table_markdown(folders)
    assert HOSTILE not in markdown
    assert "<script>" not in markdown
    assert markdown.count("\n") == 2, "a key with a bar or a line feed makes no cell and no row"
    blocked = next_markdown(page(with_failed(SAMPLE, "share_of_objects")), "ops: {}\n")
    assert "```yaml\nops: {}\n```" in blocked
    assert "materialize" not in next_markdown(page(standing=replace(LATER, state="swept")), "ops: {}\n")


def test_each_check_has_a_meaning() -> None:
    assert MEANINGS.keys() == CHECKS.keys() | SWEEP_CHECKS.keys()


def test_numbers_in_words() -> None:
    assert [human_duration(seconds) for seconds in (0, 0.5, 9.33, 9.96, 45, 600, 7_500, 86_400, 180_000)] == [
        *("0 s", "0.5 s", "9.3 s", "10 s", "45 s", "10 min", "2 h 5 min", "24 h", "2 d 2 h")
    ]
    assert [percent(share) for share in (0, 0.01, 31.07, 99.99, 100)] == [
        *("0.0 %", "< 0.1 %", "31.1 %", "> 99.9 %", "100.0 %")
    ]
