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


@app.callback(invoke_without_command=True)
def overview(context: typer.Context, json: AsJSON = False) -> None:
    """List all designs with their verdicts. Runs each of them: some seconds."""
    require_checkout()
    if context.invoked_subcommand is None:
        _show_all(OPTIONS.output(json))


@app.command()
def show(
    design: Annotated[int, typer.Argument(help="Number of the design; 6 is the accepted one.")],
    scenario: Annotated[str, typer.Argument(help="Name of a scenario. Default: list all scenarios.")] = "",
    json: AsJSON = False,
) -> None:
    """Show the results of a design, or of one of its scenarios with the shortest trace."""
    if scenario:
        _show_scenario(OPTIONS.output(json), design, scenario)
    else:
        _show_design(OPTIONS.output(json), design)


@app.command()
def page() -> None:
    """Print docs/designs.md, generated from runs."""
    from lakefs_gc.hard_delete.page import render

    typer.echo(render(), nl=False)


def _show_all(out: Output) -> None:
    from lakefs_gc.hard_delete.designs import DESIGNS, run_design, run_storms

    outcomes = []
    for design in DESIGNS:
        with out.progress(f"running design {design.number}"):
            outcomes.append(run_design(design))
    with out.progress("schedules at random"):
        storms = run_storms()
    seconds = sum(outcome.seconds for outcome in outcomes) + sum(storm.seconds for storm in storms)
    facts = {
        "designs": [
            {
                "design": outcome.design.number,
                "name": outcome.design.name,
                "accepted": outcome.design.accepted,
                "verdict": outcome.verdict,
                "broken": {k.name.lower(): [o.scenario.name for o in w] for k, w in outcome.broken().items()},
                "scenarios": len(outcome.outcomes),
                "states": outcome.states,
                "seconds": round(outcome.seconds, 3),
            }
            for outcome in outcomes
        ],
        "storms": [_outcome_facts(storm) for storm in storms],
        "seconds": round(seconds, 3),
    }
    rows = [
        (
            f"{o.design.number}",
            o.design.name,
            "accepted" if o.design.accepted else "rejected",
            len(o.outcomes),
            f"{o.states:,}",
            f"{o.seconds:.1f} s",
            o.verdict,
        )
        for o in outcomes
    ]
    rows += [
        ("6", "at random", storm.scenario.name, 1, *_effort(storm), "; ".join(storm.found) or "nothing found")
        for storm in storms
    ]

    def show() -> None:
        _say_table(out, ("", "design", "", "scenarios", "states", "time", "verdict"), rows)
        out.say("`lakefs-gc designs show NUMBER` lists the scenarios of a design, with a name the trace")

    out.result(facts, show)


def _show_design(out: Output, number: int) -> None:
    from lakefs_gc.hard_delete.designs import find_design, run_design

    design = find_design(number)
    with out.progress(f"running design {number}"):
        outcome = run_design(design)
    facts = {
        "design": design.number,
        "name": design.name,
        "idea": design.idea,
        "verdict": outcome.verdict,
        "scenarios": [_outcome_facts(one) for one in outcome.outcomes],
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
        for o in outcome.outcomes
    ]

    def show() -> None:
        out.say(f"{design.number}. {design.name}: {design.idea}\n")
        _say_table(out, ("scenario", "states", "time", "found", "in the document"), rows)

    out.result(facts, show)


def _show_scenario(out: Output, number: int, name: str) -> None:
    from lakefs_gc.hard_delete import trace_text
    from lakefs_gc.hard_delete.designs import find_design, find_scenario, run, traces

    design = find_design(number)
    scenario = find_scenario(design, name)
    with out.progress(f"running {name}"):
        outcome = run(scenario)
        found = traces(outcome)
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


def _effort(outcome: Any) -> tuple[str, str]:
    return f"{outcome.exploration.states:,}", f"{outcome.seconds:.1f} s"


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
