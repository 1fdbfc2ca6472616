"""Write the page about the designs, as Markdown, from runs of the models.

``lakefs-gc designs page`` prints it. It contains no durations, so the same code writes the same page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakefs_gc.hard_delete.designs import DESIGNS, DesignOutcome, Outcome, run_design, run_storms, traces
from lakefs_gc.hard_delete.model import Kind
from lakefs_gc.hard_delete.models import accepted
from lakefs_gc.hard_delete.models.staged_on_store import KEY_VALUE_STORE, OBJECT_STORE
from lakefs_gc.hard_delete.trace_text import format_trace

_INTRODUCTION = """\
# Why data is deleted offline

*`lakefs-gc designs page` generates this page from runs of the models in `lakefs_gc/hard_delete`. A test fails if the
page is out of date.*

lakeFS does not delete an object when its last reference is removed. Five designs that do so inside lakeFS were
rejected (`design/rejected/hard-delete.md` in lakeFS's repository). The accepted design is a collector outside lakeFS
(`design/accepted/gc_plus/uncommitted-gc.md`). All six can be run here.

Each design is a small program on a world with a key-value store, an object store, branches, staging tokens, commits
and a clock. Each operation stops at every atomic step. An explorer tries **every** interleaving of a scenario's
operations, with crashes if the scenario has them, and checks after each step whether something is broken. The traces
below are the shortest ones. If the document of a design leaves a question open, the model uses the answer that favours
the design.

All models have these rules. A write goes to the branch's staging token, and is repeated if the token changed meanwhile,
as in lakeFS. One step of the key-value store or of the object store is atomic, and visible to all operations at once.
A tick of the clock is longer than any request, unless a scenario specifies otherwise. Two or three attempts are made.
"Nothing found" means: no damage with these operations, in any order.
"""
_PROPERTIES = {
    Kind.COMMITTED_LOST: "committed data is kept",
    Kind.CHANGED: "committed data does not change",
    Kind.STAGED_LOST: "staged data is kept",
    Kind.BLOCKED: "no operation is blocked",
    Kind.LEAKED: "garbage is deleted",
}


def render() -> str:
    """Run all designs, and return the page."""
    return page([run_design(design) for design in DESIGNS], run_storms())


def page(outcomes: Sequence[DesignOutcome], storms: Sequence[Outcome]) -> str:
    """Return the page of these runs."""
    lines = [_INTRODUCTION, "## All designs", ""]
    lines += _table(
        ("design", *_PROPERTIES.values(), "scenarios", "states"),
        [
            (
                f"[{o.design.number}. {o.design.name}](#{_anchor(o)})",
                *(_cell(o, kind) for kind in _PROPERTIES),
                str(len(o.outcomes)),
                f"{o.states:,}",
            )
            for o in outcomes
        ],
    )
    lines += [
        "",
        "A cell names a scenario in which the property breaks; ✓ means that no such scenario was found. The row of the "
        "accepted design is about the complete design within its bounds, which its section lists.",
        "",
    ]
    for outcome in outcomes:
        lines += _accepted(outcome, storms) if outcome.design.accepted else _rejected(outcome)
    return "\n".join(lines).rstrip() + "\n"


def _rejected(outcome: DesignOutcome) -> list[str]:
    lines = _heading(outcome)
    lines += _scenarios(outcome.outcomes)
    if outcome.design.number == 1:
        lines += _listing_cost()
    for one in outcome.outcomes:
        lines += _trace_section(one)
    return lines


def _accepted(outcome: DesignOutcome, storms: Sequence[Outcome]) -> list[str]:
    lines = _heading(outcome)
    survived = outcome.by_itself()
    taken_out = [o for o in outcome.outcomes if o.scenario.taken_out]
    left = [o for o in outcome.outcomes if o.scenario.bounded_by]
    lines += ["### What it survives", "", *_scenarios(survived)]
    lines += [
        f"Scenarios that are too large for a complete search, with {accepted.STORM_WALKS:,} random schedules:",
        "",
        *_scenarios(storms),
        "### What each ingredient is for",
        "",
        *_table(
            ("removed ingredient", "damage", "scenario", "steps of the shortest trace"),
            [
                (o.scenario.taken_out, _found(o), f"`{o.scenario.name}`", str(len(traces(o, o.found[:1])[0].events)))
                for o in taken_out
            ],
        ),
        "",
        "With the second look, the order of the listings matters less: `without-order-twice` and "
        "`without-copies-last-twice` find nothing. lakeFS's own design has one look, and needs both ingredients.",
        "",
        "The wait is not in lakeFS's document. A mark that a person approves, or that is swept after a delay, has it. "
        "A sweep that follows its mark at once, as in lakeFS's own client, does not have it. lakefs-gc waits: it takes "
        "no second look within `safety.longest_commit_minutes` of the mark.",
        "",
        "### Remaining risks",
        "",
        "The second look is taken before the first delete, and again after every `sweep.objects_per_look` objects "
        "and every `sweep.max_look_age_minutes`; the model has one round. `revive-late` happens between a second look "
        "and the last delete of its round. An object that is older than the cutoff and in no list can become "
        "referenced again in two ways only. One is an expired commit (branch, revert, cherry-pick, merge). The other "
        "is a request that was in progress all the time: copies are tracked, uploads and links are newer than the "
        "cutoff, old link tokens have expired, and StageObject accepts no address inside the repository.",
        "",
        *_table(
            ("scenario", "damage", "limit"),
            [(f"`{o.scenario.name}`: {o.scenario.question}", _found(o), o.scenario.bounded_by) for o in left],
        ),
        "",
    ]
    for one in (*taken_out, *left):
        lines += _trace_section(one)
    return lines


def _heading(outcome: DesignOutcome) -> list[str]:
    design = outcome.design
    return [f"## {design.number}. {design.name}", "", design.idea, ""]


def _scenarios(outcomes: Iterable[Outcome]) -> list[str]:
    rows = [
        (
            f"`{o.scenario.name}`",
            o.scenario.question,
            _found(o),
            o.scenario.documented,
            f"{o.exploration.states:,}",
        )
        for o in outcomes
    ]
    return [*_table(("scenario", "description", "damage", "in the document", "states"), rows), ""]


def _trace_section(outcome: Outcome) -> list[str]:
    scenario = outcome.scenario
    if not outcome.found:
        return []
    lines = [f"### {scenario.name}", "", f"{scenario.question} {scenario.moral}".strip(), "", "```text"]
    lines += format_trace(traces(outcome, outcome.found[:1])[0])
    return [*lines, "```", ""]


def _listing_cost() -> list[str]:
    rows = [
        (
            cost.how,
            f"{cost.seconds:.1f} s",
            f"{cost.requests:,}",
            f"{cost.ms_per_request:.0f} ms",
            f"{cost.waiting_ms_per_request:.0f} ms",
            f"{cost.seconds_for(5_000_000) / 60:.0f} min",
        )
        for cost in (KEY_VALUE_STORE, OBJECT_STORE)
    ]
    factor = OBJECT_STORE.seconds / KEY_VALUE_STORE.seconds
    waiting = OBJECT_STORE.waiting_ms_per_request / KEY_VALUE_STORE.waiting_ms_per_request
    return [
        "### listing",
        "",
        f"Listing a branch, reading an object and committing all list the staged objects. The document measured "
        f"{KEY_VALUE_STORE.objects:,} staged objects, in consecutive requests of {KEY_VALUE_STORE.page:,} objects:",
        "",
        *_table(
            ("store", "measured", "requests", "time per request", "of that waiting", "5 million objects"),
            rows,
        ),
        "",
        f"The object store takes {factor:.1f} times as long. Most of that is the client's own computing: without it, a "
        f"request takes {waiting:.1f} times as long.",
        "",
    ]


def _found(outcome: Outcome) -> str:
    return "; ".join(outcome.found) or "nothing"


def _cell(outcome: DesignOutcome, kind: Kind) -> str:
    where = outcome.broken().get(kind, [])
    return (
        " ".join(f"`{o.scenario.name}`" for o in where[:2]) + (f" +{len(where) - 2}" if len(where) > 2 else "") or "✓"
    )


def _anchor(outcome: DesignOutcome) -> str:
    return f"{outcome.design.number}-{outcome.design.name.lower().replace(' ', '-')}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows),
    ]
