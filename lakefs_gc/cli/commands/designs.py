"""The commands ``designs``: run the models of the designs for deleting data.

The models are in a checkout only, so each function imports what it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from lakefs_gc.cli.extras import require_checkout
from lakefs_gc.cli.options import OPTIONS, AsJSON
from lakefs_gc.terminal.output import Output

app = typer.Typer(
    help="Run the designs for deleting data that lakeFS rejected, and the one it accepted.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


_Operations = Annotated[
    int,
    typer.Option("--operations", min=1, help="Search the combinations with up to so many operations. 3: minutes."),
]


@app.callback(invoke_without_command=True)
def overview(context: typer.Context, json: AsJSON = False, operations: _Operations = 1) -> None:
    """List all designs with what small combinations of their operations break. Searches each of them: some seconds."""
    require_checkout()
    if context.invoked_subcommand is None:
        _show_all(OPTIONS.output(json), operations)


@app.command()
def show(
    design: Annotated[int, typer.Argument(help="Number of the design; 6 is the accepted one.")],
    scenario: Annotated[
        str, typer.Argument(help="Name of a scenario, or of a combination. Default: list all scenarios.")
    ] = "",
    json: AsJSON = False,
    operations: _Operations = 1,
) -> None:
    """Show the results of a design, or of one of its scenarios or combinations with the shortest traces."""
    if scenario:
        _show_scenario(OPTIONS.output(json), design, scenario)
    else:
        _show_design(OPTIONS.output(json), design, operations)


@app.command()
def page() -> None:
    """Print docs/designs.md, generated from searches of all combinations: some minutes."""
    from lakefs_gc.hard_delete.page import render

    typer.echo(render(), nl=False)


def _show_all(out: Output, operations: int) -> None:
    from lakefs_gc.hard_delete.designs import DESIGNS, search_design
    from lakefs_gc.hard_delete.page import row_name

    outcomes = []
    for design in DESIGNS:
        with out.progress(f"searching design {design.number}"):
            outcomes.append(search_design(design, operations))
    facts = {
        "operations": operations,
        "designs": [
            {
                "design": outcome.design.number,
                "name": outcome.design.name,
                "accepted": outcome.design.accepted,
                "readings": [_search_facts(search) for search in outcome.searches],
            }
            for outcome in outcomes
        ],
        "seconds": round(sum(outcome.seconds for outcome in outcomes), 3),
    }
    rows = [
        (row_name(outcome.design.number, search.reading), *_search_row(search))
        for outcome in outcomes
        for search in outcome.searches
    ]

    def show() -> None:
        _say_table(out, ("design", "combinations", "states", "time", "found"), rows)
        out.say(
            f"Combinations of up to {operations} operations. docs/designs.md has the results of larger ones.\n"
            "`lakefs-gc designs show NUMBER` lists the scenarios of a design, with a name the trace"
        )

    out.result(facts, show)


def _show_design(out: Output, number: int, operations: int) -> None:
    from lakefs_gc.hard_delete.designs import find_design, run, search_design
    from lakefs_gc.hard_delete.model import Kind

    design = find_design(number)
    with out.progress(f"running the scenarios of design {number}"):
        outcomes = [run(scenario) for scenario in design.scenarios]
    with out.progress(f"searching the combinations of design {number}"):
        searches = search_design(design, operations).searches
    facts = {
        "design": design.number,
        "name": design.name,
        "idea": design.idea,
        "scenarios": [_outcome_facts(one) for one in outcomes],
        "operations": operations,
        "readings": [_search_facts(search) for search in searches],
    }
    rows = [
        (
            o.scenario.name,
            f"{o.exploration.states:,}",
            f"{o.seconds:.2f} s",
            "; ".join(o.found) or "nothing found",
            o.scenario.documented
            or (f"without {o.scenario.taken_out}" if o.scenario.taken_out else "")
            or (f"bounded by {o.scenario.bounded_by}" if o.scenario.bounded_by else ""),
        )
        for o in outcomes
    ]
    smallest = [
        (str(kind), one.combination.name) for search in searches for kind in Kind for one in search.smallest(kind)
    ]

    def show() -> None:
        out.say(f"{design.number}. {design.name}: {design.idea}\n")
        _say_table(out, ("scenario", "states", "time", "found", "in the document"), rows)
        if smallest:
            out.say(f"\nThe smallest combinations with damage, of up to {operations} operations:\n")
            _say_table(out, ("found", "combination"), smallest)

    out.result(facts, show)


def _show_scenario(out: Output, number: int, name: str) -> None:
    from lakefs_gc.hard_delete import trace_text
    from lakefs_gc.hard_delete.designs import find_design, find_scenario, run, traces

    design = find_design(number)
    scenario = find_scenario(design, name)
    with out.progress(f"running {name}"):
        outcome = run(scenario)
        found = traces(scenario, outcome.found)
    facts = {
        "design": design.number,
        **_outcome_facts(outcome),
        "traces": [trace_text.trace_facts(trace) for trace in found],
    }

    def show() -> None:
        searched = f"{outcome.exploration.states:,} states in {outcome.seconds:.2f} s"
        out.say(f"{design.name}: {scenario.question}\n({searched})")
        for trace in found:
            out.say("\n" + "\n".join(trace_text.format_trace(trace)))
        if not found:
            out.say("\nnothing found: every schedule ends well")
        if scenario.moral:
            out.say("\n" + scenario.moral)
        if scenario.bounded_by:
            out.say(f"What bounds it: {scenario.bounded_by}")

    out.result(facts, show)


def _search_row(search: Any) -> tuple[str, ...]:
    from lakefs_gc.hard_delete.model import Kind

    found = [f"{kind} ({len(search.having(kind)):,})" for kind in Kind if search.having(kind)]
    effort = (f"{len(search.results):,}", f"{search.states:,}", f"{search.seconds:.1f} s")
    return (*effort, "; ".join(found) or "nothing found")


def _search_facts(search: Any) -> dict[str, Any]:
    from lakefs_gc.hard_delete.model import Kind

    return {
        "reading": search.reading.name,
        "combinations": len(search.results),
        "states": search.states,
        "seconds": round(search.seconds, 3),
        "found": {kind.name.lower(): len(search.having(kind)) for kind in Kind},
        "smallest": {kind.name.lower(): [one.combination.name for one in search.smallest(kind)] for kind in Kind},
    }


def _outcome_facts(outcome: Any) -> dict[str, Any]:
    scenario = outcome.scenario
    return {
        "scenario": scenario.name,
        "question": scenario.question,
        "found": [kind.name.lower() for kind in outcome.found],
        "states": outcome.exploration.states,
        "steps": outcome.exploration.steps,
        "seconds": round(outcome.seconds, 3),
        "documented": scenario.documented,
        "taken_out": scenario.taken_out,
        "bounded_by": scenario.bounded_by,
    }


def _say_table(out: Output, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    lines = [columns, *([str(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    for line in lines:
        out.say("  ".join(value.ljust(width) for value, width in zip(line, widths, strict=True)).rstrip())
