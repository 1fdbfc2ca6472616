"""The scenarios of each design have the expected damage, and their traces show what their texts state."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.hard_delete import trace_text
from lakefs_gc.hard_delete.designs import DESIGNS, Outcome, find_design, find_scenario, run, run_storm
from lakefs_gc.hard_delete.explorer import Explorer
from lakefs_gc.hard_delete.model import Kind, Scenario
from lakefs_gc.hard_delete.models import accepted, tracked_references
from lakefs_gc.hard_delete.models.accepted_operations import ALL
from lakefs_gc.hard_delete.models.staged_on_store import KEY_VALUE_STORE, OBJECT_STORE, requests

SCENARIOS = [
    pytest.param(scenario, id=f"{design.number}-{scenario.name}") for design in DESIGNS for scenario in design.scenarios
]
MUST_FIND = [
    (1, "write-after-commit", Kind.CHANGED),
    (2, "lost-update-aws", Kind.STAGED_LOST),
    (3, "job-copy", Kind.STAGED_LOST),
    (3, "overwrite", Kind.LEAKED),
    (4, "override", Kind.LEAKED),
    (5, "commit-move", Kind.COMMITTED_LOST),
    (5, "delete-move", Kind.STAGED_LOST),
    (5, "concurrent-move", Kind.STAGED_LOST),
    (5, "stale-lock", Kind.BLOCKED),
    (5, "timed-lock", Kind.STAGED_LOST),
]
MUST_NOT_FIND = [(2, "lost-update-azure"), (5, "delete-move-locked"), (5, "concurrent-move-locked")]


def missing_step(scenario: Scenario) -> str:
    """Return the first step that should show the moral and is not in the trace, or nothing."""
    worst = next(kind for kind in Kind if kind in scenario.expected)
    trace = Explorer(scenario).shortest(worst)
    assert trace is not None
    events = iter((*trace.events, *trace.afterwards))
    for operation, text in scenario.shown_by:
        if not any(event.operation == operation and event.text.startswith(text) for event in events):
            return f"{operation}: {text}"
    return ""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_scenario_has_exactly_the_expected_damage_and_its_trace_shows_the_moral(scenario: Scenario) -> None:
    assert run(scenario).exploration.found == scenario.expected
    assert scenario.moral
    if scenario.expected:
        assert scenario.shown_by
        assert missing_step(scenario) == ""


def test_a_moral_that_the_trace_does_not_show_is_noticed() -> None:
    scenario = find_scenario(find_design(3), "upload-delete-branch")
    wrong = (("upload a", "Upload 2: marks N1 by t1 as staged"),)
    assert missing_step(replace(scenario, shown_by=wrong)) == "upload a: Upload 2: marks N1 by t1 as staged"
    backwards = replace(scenario, shown_by=tuple(reversed(scenario.shown_by)))
    assert missing_step(backwards) == "upload a: Upload 1: writes object N1"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_only_the_named_operation_crashes(scenario: Scenario) -> None:
    """Say which operations may crash, in a scenario whose text names a crash, and in all others none."""
    crashing = {operation.name for operation in scenario.operations if operation.may_crash}
    words = {"crashes": "crash", "stops in the middle": "stop"}
    assert bool(crashing) == any(word in scenario.question for word in words)
    for name in crashing:
        assert name.split()[0] in scenario.question


@pytest.mark.parametrize(("number", "name", "kind"), MUST_FIND)
def test_documented_damage_is_found_with_a_trace_that_can_be_replayed(number: int, name: str, kind: Kind) -> None:
    scenario = find_scenario(find_design(number), name)
    assert scenario.documented
    trace = Explorer(scenario).shortest(kind)
    assert trace is not None
    lines = trace_text.format_trace(trace)
    assert lines[-1] == f"=> {kind}: {trace.detail}"
    # The same schedule, followed step by step, has the same result.
    schedule = [f"crash {event.operation}" if event.text == "crashes" else event.operation for event in trace.events]
    events, broken = Explorer(scenario).follow(schedule)
    assert tuple(events) == trace.events
    assert kind in broken or kind in (Kind.LEAKED, Kind.BLOCKED)


@pytest.mark.parametrize(("number", "name"), MUST_NOT_FIND)
def test_scenarios_that_the_document_calls_solved_have_no_damage(number: int, name: str) -> None:
    assert not run(find_scenario(find_design(number), name)).found


def test_no_schedule_is_shorter_than_the_shortest() -> None:
    scenario = find_scenario(find_design(5), "delete-move")
    trace = Explorer(scenario).shortest(Kind.STAGED_LOST)
    assert trace is not None
    schedule = [event.operation for event in trace.events]
    for missing in range(len(schedule)):
        _, broken = Explorer(scenario).follow(schedule[:missing])
        assert not broken


@pytest.mark.parametrize("tbd_ticks", [0, 1, 5, 9])
def test_no_tbd_protects_a_copy_if_it_counts_from_the_oldest_reference(tbd_ticks: int) -> None:
    documented = find_scenario(find_design(3), "job-copy")
    *others, job = documented.operations
    longer = replace(job, program=lambda: tracked_references.job(tbd_ticks))
    assert Kind.STAGED_LOST in run(replace(documented, operations=(*others, longer))).found


def test_each_ingredient_of_the_accepted_design_is_needed() -> None:
    needed = {scenario.taken_out for scenario in find_design(6).scenarios if scenario.expected} - {""}
    assert needed >= {
        "cutoff",
        "order of listings",
        "tracked copies",
        "copies read last",
        "token expiry",
        "second look",
        "wait between mark and sweep",
    }


@pytest.mark.of_ci
def test_random_schedules_of_the_accepted_design_find_no_damage(storms: tuple[Outcome, ...]) -> None:
    assert len(storms) == 2
    for storm in storms:
        assert storm.found == ()
        assert storm.exploration.states > 30_000


@pytest.mark.parametrize(
    ("storm", "missing", "kind"),
    [
        (0, "cutoff", Kind.STAGED_LOST),
        (0, "tracked_copies", Kind.STAGED_LOST),
        (1, "tracked_copies", Kind.STAGED_LOST),
        (1, "second_look", Kind.COMMITTED_LOST),
    ],
)
def test_random_schedules_find_damage_if_an_ingredient_is_missing(storm: int, missing: str, kind: Kind) -> None:
    assert run_storm(accepted.storms(ALL.without(missing))[storm]).found == (kind,)


def test_random_schedules_are_reproducible_by_seed() -> None:
    storm = accepted.storms()[0]
    assert run_storm(storm, walks=20, seed=1) == run_storm(storm, walks=20, seed=1)
    assert run_storm(storm, walks=20, seed=1) != run_storm(storm, walks=20, seed=2)


def test_listing_cost_equals_the_figures_of_the_document() -> None:
    assert requests(240_000, 1000) == KEY_VALUE_STORE.requests == OBJECT_STORE.requests == 240
    assert requests(0, 1000) == 1
    assert requests(1001, 1000) == 2
    assert round(KEY_VALUE_STORE.seconds_for(240_000)) == 16
    assert round(OBJECT_STORE.seconds_for(240_000)) == 80
    assert KEY_VALUE_STORE.waiting_ms_per_request < OBJECT_STORE.waiting_ms_per_request


@pytest.mark.parametrize(("number", "name"), [(7, ""), (5, "no-such")])
def test_an_unknown_design_or_scenario_is_an_error_that_lists_the_known_ones(number: int, name: str) -> None:
    with pytest.raises(ConfigurationError, match="Unknown") as refused:
        find_scenario(find_design(number), name)
    assert refused.value.remedy.startswith("Choose one of these: ")


def test_the_models_import_nothing_of_the_collector() -> None:
    script = (
        "import sys, lakefs_gc.hard_delete.page; "
        "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'dagster', 'numba', 'pyarrow') "
        "or m.startswith(('lakefs_gc.engine', 'lakefs_gc.sandbox', 'lakefs_gc.pipeline.assets'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
