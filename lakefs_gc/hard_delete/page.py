"""Write the page about the designs, as Markdown, from searches of the models.

``lakefs-gc designs page`` prints it. It contains no durations, so the same code writes the same page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakefs_gc.hard_delete.combinations import Found, Search
from lakefs_gc.hard_delete.designs import (
    DESIGNS,
    DesignOutcome,
    Outcome,
    find_design,
    run_storms,
    search_design,
    traces,
)
from lakefs_gc.hard_delete.model import Bound, Kind, Reading, Scenario
from lakefs_gc.hard_delete.models import accepted
from lakefs_gc.hard_delete.models.staged_on_store import KEY_VALUE_STORE, OBJECT_STORE
from lakefs_gc.hard_delete.trace_text import format_trace

MAX_TRACE_LINES = 12
"""A longer trace is not on the page: the page names the command that shows it."""
_INTRODUCTION = """\
# Why data is deleted offline

*`lakefs-gc designs page` generates this page from searches of the models in `lakefs_gc/hard_delete`.*

lakeFS does not delete an object when its last reference is removed. Five designs that do so inside lakeFS were rejected
(`design/rejected/hard-delete.md` in lakeFS's repository). The accepted design is a collector outside lakeFS
(`design/accepted/gc_plus/uncommitted-gc.md`).

**The models.** Each design is a small program on a world with a key-value store, an object store, branches, staging
tokens, commits and a clock. Each operation stops at every atomic step. A write goes to the branch's staging token, and
is repeated if the token changed meanwhile, as in lakeFS. Each operation makes two or three attempts.

**The combinations.** A generator makes every combination of a design's operations in each start world, up to a bound:
so many operations at the same time, some of them beside the design's job, and one of them crashing. Two runs of one
operation are only in combinations of two. An explorer tries every interleaving of each combination, and looks for
damage after each step. The design's own cleanup runs at the end. Clients with several operations need no combinations
of their own: their schedules are among those of as many clients with one operation each.

`lakefs-gc designs show NUMBER NAME` prints the traces of a scenario or of a combination, which has its start world and
its operations as its name. Long traces are only there. Parentheses name the document's section.

**The base assumptions of the document.**

1. Copies are full copies, except in design 3. Designs 1, 2 and 5 are modelled so. Design 4's flow shares objects.
2. lakeFS does not retain data outside the repository's path, such as ingested data. No model has such objects.
3. An online solution needs an external one for edge cases and for existing garbage. So a leak alone does not rule a
   design out. A lost object does.

## All designs

✓: not found in any of the combinations in this row. ✗ and a number: the number of combinations in which it was found;
the section of the design has the smallest one with its shortest trace. If a document can be read in several ways, each
reading has a row. "3; 2 with job; 2 with crash" is a bound: up to three operations, up to two beside the job, and up to
two if one may crash.
"""
_PROPERTIES = {
    Kind.COMMITTED_LOST: "committed data is kept",
    Kind.CHANGED: "and does not change",
    Kind.STAGED_LOST: "staged data is kept",
    Kind.BLOCKED: "no operation is blocked",
    Kind.LEAKED: "garbage is deleted",
}


def render() -> str:
    """Search all designs, and return the page."""
    return page([search_design(design) for design in DESIGNS], run_storms())


def page(outcomes: Sequence[DesignOutcome], storms: Sequence[Outcome]) -> str:
    """Return the page of these searches."""
    rows = [(row_name(one.design.number, search.reading), *row(search)) for one in outcomes for search in one.searches]
    header = ("design and reading", *_PROPERTIES.values(), "operations", "combinations", "states")
    lines = [_INTRODUCTION, *_table(header, rows), ""]
    for outcome in outcomes:
        design = outcome.design
        lines += [f"## {design.number}. {design.name}", "", design.idea, "", "```text", design.picture, "```", ""]
        lines += [f"- *{r.name}*: {r.text}" for r in design.readings if r.text]
        lines += _verdict(outcome)
        lines += _damage(outcome)
        if design.number == 1:
            lines += _listing_cost()
        lines += _scenarios(design.scenarios)
        if design.accepted:
            lines += _storms(storms)
        lines += ["**Opens.**", "", *(f"- {one.topic}: {one.answer}" for one in design.opens), ""]
    return "\n".join(lines).rstrip() + "\n"


def row_name(number: int, reading: Reading) -> str:
    """Return the first cell of a row of the table."""
    return f"{number}. {reading.name or find_design(number).name}"


def row(search: Search) -> tuple[str, ...]:
    """Return the other cells of a row of the table."""
    return (
        *(_cell(search, kind) for kind in _PROPERTIES),
        _bound(search.bound, search.reading),
        f"{len(search.results):,}",
        f"{search.states:,}",
    )


def _cell(search: Search, kind: Kind) -> str:
    found = len(search.having(kind))
    return f"✗ {found:,}" if found else "✓"


def _bound(bound: Bound, reading: Reading) -> str:
    job = f"; {bound.beside} with job" if reading.background and bound.beside < bound.operations else ""
    return f"{bound.operations}{job}; {bound.with_crash or 'none'} with crash"


def _verdict(outcome: DesignOutcome) -> list[str]:
    """Return which of several readings lose committed or staged data."""
    if len(outcome.searches) < 2:
        return []
    parts = []
    for kind, what in ((Kind.COMMITTED_LOST, "committed data"), (Kind.STAGED_LOST, "staged data")):
        losing = [search.reading.name for search in outcome.searches if search.having(kind)]
        if losing:
            which = "All readings lose" if len(losing) == len(outcome.searches) else f"Lost in *{'*, *'.join(losing)}*:"
            parts.append(f"{which} {what}.")
    return ["", " ".join(parts) if parts else "No reading loses data.", ""]


def _damage(outcome: DesignOutcome) -> list[str]:
    """Return, for each kind of damage, the smallest combination with its shortest trace."""
    lines: list[str] = []
    for kind in _PROPERTIES:
        found = _smallest(outcome.searches, kind)
        if found is not None:
            lines += [f"**{kind[0].upper()}{kind[1:]}**: `{found.combination.name}`", ""]
            lines += _trace(outcome.design.number, found, kind)
    return lines


def _smallest(searches: Iterable[Search], kind: Kind) -> Found | None:
    """Return the smallest combination with a kind of damage, of the first reading that has it."""
    return next((found[0] for search in searches if (found := search.having(kind))), None)


def _trace(number: int, found: Found, kind: Kind) -> list[str]:
    (trace,) = traces(found.combination.scenario(), [kind])
    # The cleanup of a leak only shows that nothing happens.
    text = format_trace(trace, afterwards=kind is not Kind.LEAKED)
    if len(text) <= MAX_TRACE_LINES:
        return ["```text", *text, "```", ""]
    return [f"{len(text) - 1} steps, in `designs show {number}`: {trace.detail}.", ""]


def _scenarios(scenarios: Iterable[Scenario]) -> list[str]:
    lines = ["**Scenarios.**", ""]
    for one in scenarios:
        label = f" ({one.documented})" if one.documented else ""
        effect = "" if one.expected else "Nothing is found. "
        limit = f" Limit: {one.bounded_by}." if one.bounded_by else ""
        lines.append(f"- `{one.name}`{label}: {effect}{one.moral}{limit}")
    return [*lines, ""]


def _storms(storms: Sequence[Outcome]) -> list[str]:
    names = " and ".join(f"`{one.scenario.name}`" for one in storms)
    found = "; ".join(sorted({kind for one in storms for kind in one.found})) or "nothing"
    return [
        f"Larger mixtures ({names}: up to 12 operations, two collectors, every request may crash) were tried with "
        f"{accepted.STORM_WALKS:,} random schedules: {found} found.",
        "",
    ]


def _listing_cost() -> list[str]:
    slow, quick = OBJECT_STORE, KEY_VALUE_STORE
    return [
        f"**Listing is slow.** The document measured {quick.objects:,} staged objects: {quick.seconds:.1f} s from the "
        f"key-value store, {slow.seconds:.1f} s from the object store, in {quick.requests:,} consecutive requests. "
        f"That is {slow.seconds / quick.seconds:.1f} times as long, and "
        f"{slow.waiting_ms_per_request / quick.waiting_ms_per_request:.1f} times without the client's own computing.",
        "",
    ]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows),
    ]
