"""Scenarios that the accepted design survives.

The schedules are those that the rejected designs fail on, with a collector that runs at the same time.
"""

from __future__ import annotations

from lakefs_gc.hard_delete.model import Design, Scenario, clock
from lakefs_gc.hard_delete.models.accepted_limits import LEFT, TAKEN_OUT
from lakefs_gc.hard_delete.models.accepted_operations import (
    ALL,
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
    person,
    rename,
    reset,
    scenario,
    upload,
    world,
)
from lakefs_gc.hard_delete.models.offline_server import Ingredients

_SURVIVED = (
    scenario(
        "upload-commit",
        "An object is uploaded while its branch is committed (design 1, blocker 1).",
        world({"a": A}),
        upload(),
        commit(),
        collector(),
        clock(2),
        moral="An upload writes to a new address, so nothing that is committed changes.",
    ),
    scenario(
        "overwrite",
        "Two uploads to one path (design 3, Open; design 4, key override).",
        world({"a": A}),
        upload("a"),
        upload("a", f"data/s{TODAY}/M"),
        collector(),
        clock(2),
        moral="The overwritten object is listed and unreferenced, so it is collected.",
    ),
    scenario(
        "copy-delete",
        "A path is copied and deleted at the same time (design 2, lost update; design 5, Delete-Move).",
        STAGED_AT_Z,
        copy(),
        delete("z"),
        collector(),
    ),
    scenario(
        "copy-reset",
        "A path is copied while its branch is reset (design 4).",
        STAGED_AT_Z,
        copy(),
        reset(),
        collector(),
    ),
    scenario(
        "commit-move",
        "A path is renamed while its branch is committed and reset (design 5, Commit-Move).",
        STAGED_AT_Z,
        rename("z", "a"),
        commit(),
        reset(),
        collector(),
        moral="A reset deletes no objects.",
    ),
    scenario(
        "concurrent-move",
        "A path is renamed to two paths at the same time (design 5, Concurrent Move).",
        STAGED_AT_Z,
        rename("z", "a"),
        rename("z", "b"),
        collector(),
        moral="Two entries may share an object.",
    ),
    scenario(
        "move-to-and-fro",
        "A path is renamed back and forth.",
        STAGED_AT_Z,
        rename("z", "a", "z", "b"),
        collector(),
    ),
    scenario(
        "upload-reset",
        "An object is uploaded while its branch is reset (designs 2 and 4).",
        world({"a": A}),
        upload(),
        reset(),
        collector(),
        clock(2),
    ),
    scenario(
        "upload-delete-branch",
        "A branch is deleted while an object is uploaded to it (designs 1 to 5).",
        world({"a": A}),
        upload(),
        delete_branch(),
        collector(),
        clock(2),
    ),
    scenario(
        "link",
        "An object is uploaded to an address, and linked at any later time.",
        world({}),
        *link(ALL),
        collector(),
        clock(3),
        moral="When the object is old enough to be a candidate, its address can no longer be linked.",
    ),
    scenario(
        "commit-delete",
        "A path is deleted while its branch is committed (design 3). The sweep waits for a day, and no request takes "
        "that long.",
        world({"n": A}),
        delete("n", at_most_ticks=0),
        commit(at_most_ticks=0),
        collector(waits_ticks=1),
        clock(1),
        moral="A commit that was in progress at the mark has ended when the second look reads the commits.",
    ),
    scenario(
        "commit-overwrite",
        "As `commit-delete`, with a path that is uploaded again.",
        world({"n": A}),
        upload("n", at_most_ticks=0),
        commit(at_most_ticks=0),
        collector(waits_ticks=1),
        clock(1),
    ),
    scenario(
        "crash",
        "A rename and an upload crash (design 5, stale lock).",
        STAGED_AT_Z,
        rename("z", "a"),
        upload(),
        collector(),
        crashes=2,
        moral="Nothing is locked, and leftover objects are collected.",
    ),
    scenario(
        "crash-commit",
        "A commit or a reset crashes.",
        heads_only(STAGED_AT_Z),
        commit(),
        reset(),
        collector(),
        crashes=2,
    ),
    scenario(
        "two-collectors",
        "Two collectors run at the same time while a path is renamed.",
        STAGED_AT_Z,
        rename("z", "a"),
        collector(),
        collector(name="other collector"),
        moral="Two sweeps do no harm.",
    ),
    scenario(
        "revive",
        "A branch is created at an expired commit while the mark waits for its approval.",
        expired(),
        person(),
        collector(waits_for_approval=True),
        moral="The second look sees the branch.",
    ),
)

STORM_WALKS = 1000


def storms(with_: Ingredients = ALL) -> tuple[Scenario, ...]:
    """Return scenarios that are too large for a complete search, for random schedules."""
    return (
        scenario(
            "storm",
            "Uploads, a link, renames, a delete, a reset and two collectors on one branch, with two crashes.",
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
            crashes=2,
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
            crashes=2,
        ),
    )


DESIGN = Design(
    6,
    "Offline collection",
    "Nothing is deleted online. A collector lists the objects, then the staged entries, then the committed entries. "
    "After a second look it deletes the objects that are older than the cutoff and in neither list of entries.",
    (*_SURVIVED, *TAKEN_OUT, *LEFT),
    accepted=True,
)
