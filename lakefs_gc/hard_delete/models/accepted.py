"""The accepted design: its readings, random schedules of many operations, and its description."""

from __future__ import annotations

from dataclasses import replace

from lakefs_gc.hard_delete.model import Bound, Design, Open, Operation, Part, Reading, Scenario, clock
from lakefs_gc.hard_delete.models import lake
from lakefs_gc.hard_delete.models.accepted_limits import LEFT, TAKEN_OUT
from lakefs_gc.hard_delete.models.accepted_operations import (
    ALL,
    SETTLE,
    STAGED_AT_Z,
    TODAY,
    A,
    B,
    collector,
    commit,
    copy,
    delete,
    delete_branch,
    expired,
    heads_only,
    link,
    rename,
    reset,
    revive_branch,
    scenario,
    upload,
    world,
)
from lakefs_gc.hard_delete.models.lake import part_branch_from_main
from lakefs_gc.hard_delete.models.offline_server import Ingredients


def _link(number: int, at_most_ticks: int) -> tuple[Operation, ...]:
    return link(ALL, f"data/s{TODAY}/L{number}", at_most_ticks=at_most_ticks)


def _reading(name: str, text: str, *, within: bool) -> Reading:
    """Return a reading. A tick is the minimum age, the lifetime of a link token, and the wait of a sweep."""
    upload_ticks, link_ticks, commit_ticks = (1, 0, 0) if within else (3, 3, 2)
    parts: tuple[Part, ...] = (
        Part("upload n", lambda n: (upload("n", f"data/s{TODAY}/N{n}", upload_ticks),)),
        Part("link n", lambda n: _link(n, link_ticks)),
        Part("copy z to a", lambda n: (copy(),)),
        Part("rename z to a", lambda n: (replace(rename("z", "a"), name="rename z to a"),)),
        Part("delete n", lambda n: (delete("n"),)),
        Part("delete z", lambda n: (delete("z"),)),
        Part("commit", lambda n: (commit(f"d{n}", f"u{n}", commit_ticks),)),
        Part("reset", lambda n: (reset(f"r{n}"),)),
        Part("delete branch", lambda n: (delete_branch(),)),
        part_branch_from_main(at_most_ticks=commit_ticks),
    )
    if not within:
        needed = ("upload n", "link n", "delete n", "commit")
        parts = tuple(part for part in parts if part.name in needed)
        parts += (Part("branch at expired commit", lambda n: (revive_branch(),)),)
    worlds = {
        "empty": world({}),
        "z staged": STAGED_AT_Z,
        "n staged": world({"n": A}),
        "z committed": heads_only(world({}, c1=("c0", {"z": A}))),
        "one commit expired": expired(),
    }
    if not within:
        worlds = {name: world for name, world in worlds.items() if not name.startswith("z ")}
    return Reading(
        name,
        text,
        worlds,
        parts,
        Bound(2, 2, 1 if within else 0),
        lake.view,
        SETTLE,
        (collector(waits_ticks=1), clock(3)),
    )


WITHIN = _reading(
    "within its limits",
    "An upload lasts less than the minimum age. A link request, a commit and the creation of a branch last less than "
    "the time between mark and sweep. No operation names an expired commit.",
    within=True,
)
BEYOND = _reading(
    "beyond its limits",
    "These requests last longer, and a branch is created at an expired commit.",
    within=False,
)

STORM_WALKS = 1000


def storms(with_: Ingredients = ALL) -> tuple[Scenario, ...]:
    """Return scenarios that are too large for a complete search, for random schedules."""
    storms = (
        scenario(
            "storm",
            "Uploads, a link, renames, a delete, a reset and two collectors on one branch. Each request may crash.",
            heads_only(world({"m": A, "z": B})),
            upload("m"),
            *link(with_, f"data/s{TODAY}/L"),
            rename("z", "a", "z", "b", with_=with_),
            rename("m", "y", with_=with_),
            delete("y"),
            reset(),
            collector(with_),
            collector(with_, name="other collector"),
            clock(4),
        ),
        scenario(
            "storm-commit",
            "As `storm`, with a commit, and collectors that wait for a day before the sweep.",
            heads_only(world({"m": A, "z": B})),
            upload("m", at_most_ticks=0),
            *link(with_, f"data/s{TODAY}/L"),
            rename("z", "a", "z", "b", with_=with_),
            rename("m", "y", with_=with_),
            delete("y", at_most_ticks=0),
            commit(at_most_ticks=0),
            reset(),
            collector(with_, waits_ticks=1),
            collector(with_, waits_ticks=1, name="other collector"),
            clock(4),
        ),
    )
    return tuple(
        replace(one, operations=tuple(_may_crash(operation) for operation in one.operations)) for one in storms
    )


def _may_crash(operation: Operation) -> Operation:
    """Return a request so that it may crash. Collectors, a client that prepares a link, and time do not."""
    lasting = operation.name in ("collector", "other collector", "time") or operation.name.startswith("client")
    return operation if lasting else operation.crashing()


DESIGN = Design(
    6,
    "Offline collection",
    "Nothing is deleted online. A collector lists the objects, then the staged entries, then the committed entries. "
    "After a second look it deletes the objects that are older than the cutoff and in neither list of entries.",
    (WITHIN, BEYOND),
    (*TAKEN_OUT, *LEFT),
    picture="""\
objects        --1--+
staged entries --2--+--> mark --> wait --> second look (2, 3 again) --> sweep: deletes
commits        --3--+             objects newer than the cutoff are never marked""",
    opens=(
        Open(
            "Skipping young slices", "lakeFS's design skips them. lakefs-gc lists them too, and marks the same objects."
        ),
        Open("The second look, and the wait for commits", "Modelled. lakefs-gc has them, lakeFS's design does not."),
        Open("The optimized run", "Out: it takes over old slices, so it marks a part of what a full listing marks."),
        Open("Further rounds of a sweep", "Out: the model has one second look. Another round only keeps more."),
    ),
    accepted=True,
)
