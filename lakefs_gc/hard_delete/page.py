"""The page about the designs, as Markdown, made from runs.

``lakefs-gc designs page`` prints it. It holds no times, so the same code makes the same page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakefs_gc.hard_delete.designs import DESIGNS, DesignOutcome, Outcome, run_design, run_storms, traces
from lakefs_gc.hard_delete.model import Kind
from lakefs_gc.hard_delete.models import accepted
from lakefs_gc.hard_delete.models.staged_on_store import KEY_VALUE_STORE, OBJECT_STORE
from lakefs_gc.hard_delete.story import tell

_INTRODUCTION = """\
# Why data are deleted offline

*This page is made by `lakefs-gc designs page` from runs of the models in `lakefs_gc/hard_delete`; a test holds it
to that.*

lakeFS does not delete an object when its last reference goes. Five ways to do so inside lakeFS were designed and
rejected (`design/rejected/hard-delete.md` in lakeFS's repository); what was accepted is a collector that works from
outside (`design/accepted/gc_plus/uncommitted-gc.md`). Here all six can be run.

Each design is a small program on a world with a key-value store, an object store, branches, staging tokens, commits
and a clock. Each operation stops at every atomic step. An explorer goes through **every** interleaving of a
scenario's operations, and crashes where the scenario has some, and looks after each step whether something is
broken; the traces below are the shortest there are. Where the document of a design is silent, the reading that is
kinder to the design was taken.

What holds for all models: a write goes to the branch's staging token and is repeated if the token was changed
meanwhile, as lakeFS does it; one step of the key-value store or of the object store is atomic, and everybody sees
it at once; a tick of the clock is longer than any request, unless a scenario says otherwise; retries end after two
or three times. "Nothing found" means: not with these operations, in any order.
"""
_PROPERTIES = {
    Kind.COMMITTED_LOST: "committed data stay",
    Kind.CHANGED: "and do not change",
    Kind.STAGED_LOST: "staged data stay",
    Kind.BLOCKED: "nobody is blocked",
    Kind.LEAKED: "garbage goes",
}


def render() -> str:
    """Run everything, and write the page."""
    return page([run_design(design) for design in DESIGNS], run_storms())


def page(outcomes: Sequence[DesignOutcome], storms: Sequence[Outcome]) -> str:
    """The page of these runs."""
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
        "A cell names a scenario in which the property breaks; ✓ means that none was found. The accepted design is "
        "counted with all its ingredients and within its bounds, which are listed with it.",
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
        lines += _story(one)
    return lines


def _accepted(outcome: DesignOutcome, storms: Sequence[Outcome]) -> list[str]:
    lines = _heading(outcome)
    survived = outcome.by_itself()
    taken_out = [o for o in outcome.outcomes if o.scenario.taken_out]
    left = [o for o in outcome.outcomes if o.scenario.bounded_by]
    lines += ["### What it survives", "", *_scenarios(survived)]
    lines += [
        f"With more than can be gone through, {accepted.STORM_WALKS:,} schedules at random:",
        "",
        *_scenarios(storms),
        "### What each ingredient is for",
        "",
        *_table(
            ("taken out", "then", "in", "steps of the shortest trace"),
            [
                (o.scenario.taken_out, _found(o), f"`{o.scenario.name}`", str(len(traces(o, o.found[:1])[0].events)))
                for o in taken_out
            ],
        ),
        "",
        "With the second look the order of the listings matters less: `without-order-twice` and "
        "`without-copies-last-twice` find nothing. lakeFS's own design has one look, and needs both.",
        "",
        "The wait is in no document. A mark that a person approves, or that is swept after a delay, has it; a sweep "
        "that follows its mark at once, as that of lakeFS's own client does, has not. lakefs-gc waits: it takes no "
        "look within `safety.longest_commit_minutes` of the mark.",
        "",
        "### What is left",
        "",
        "The second look is taken before the first delete, and again after every `sweep.objects_per_look` objects "
        "and every `sweep.max_look_age_minutes`; the model has one round. `revive-late` falls between a look and "
        "the last delete of its round. An object that is older than the cutoff and in no list can come back to "
        "life only through an expired commit (branch, revert, cherry-pick, merge) or through a request that was "
        "under way all the time: a copy is tracked, an upload or a link is young, a link token has run out, and "
        "StageObject takes no address of the repository.",
        "",
        *_table(
            ("what happens", "then", "what bounds it"),
            [(f"`{o.scenario.name}`: {o.scenario.question}", _found(o), o.scenario.bounded_by) for o in left],
        ),
        "",
    ]
    for one in (*taken_out, *left):
        lines += _story(one)
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
    return [*_table(("scenario", "what happens", "found", "in the document", "states"), rows), ""]


def _story(outcome: Outcome) -> list[str]:
    scenario = outcome.scenario
    if not outcome.found:
        return []
    lines = [f"### {scenario.name}", "", f"{scenario.question}  {scenario.moral}", "", "```text"]
    lines += tell(traces(outcome, outcome.found[:1])[0])
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
        f"Listing a branch, getting an object and committing all list what is staged. The document measured "
        f"{KEY_VALUE_STORE.objects:,} staged objects; in requests of {KEY_VALUE_STORE.page:,} objects, one after the "
        "other:",
        "",
        *_table(
            ("how", "measured", "requests", "a request", "of that waiting", "5 million objects"),
            rows,
        ),
        "",
        f"That is {factor:.1f} times as long. Most of the slower one was the client's own computing, though: without "
        f"it the store takes {waiting:.1f} times as long for a request.",
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
