"""Worlds and operations for the scenarios of the accepted design.

Objects that exist at the start are older than any cutoff, so the collector may delete each of them as soon as it is
unreferenced. One tick is a day.
"""

from __future__ import annotations

from lakefs_gc.hard_delete.model import Kind, Operation, Scenario, one_after_the_other
from lakefs_gc.hard_delete.models import lake, offline_server
from lakefs_gc.hard_delete.models.collector import APPROVAL, MARKS, collect
from lakefs_gc.hard_delete.models.lake import BRANCHES, COMMITS, HEADS_ONLY, RETENTION, STAGING
from lakefs_gc.hard_delete.models.offline_server import COPIES, LINKS, UPLOADS, Ingredients
from lakefs_gc.hard_delete.steps import OBJECTS, Await, Drop, Get, Program, Set, Steps
from lakefs_gc.hard_delete.world import World

ALL = Ingredients()
ONE_LOOK = ALL.without("second_look")
"""As in the document: a run marks and sweeps without a second look."""
TODAY = 10
A, B = "data/s0/A", "data/s0/B"
NEW = f"data/s{TODAY}/N"


def world(staged: dict[str, str], **commits: tuple[str, dict[str, str]]) -> World:
    """Return a world with branch main at the first of the commits."""
    addresses = {*staged.values(), *(a for _, paths in commits.values() for a in paths.values())}
    initial = lake.lake(
        {address: address[-1].lower() for address in sorted(addresses)},
        {"main": ([*commits, "c0"][0], "t1", staged)},
        commits,
    )
    return initial.at(TODAY)


def heads_only(world: World) -> World:
    """Return the world with a retention rule that keeps only the heads of branches."""
    return world.with_kv(world.kv.put(RETENTION, HEADS_ONLY))


def expired() -> World:
    """Return a world in which main is at c2, so commit c1 and its object A have expired."""
    return heads_only(world({}, c2=("c1", {"b": B}), c1=("c0", {"a": A})))


def identical() -> World:
    """Return a world in which path a is committed as A and staged as B, with the same content."""
    initial = lake.lake({A: "same", B: "same"}, {"main": ("c1", "t1", {"a": B})}, {"c1": ("c0", {"a": A})})
    return initial.at(TODAY)


# -- operations


def client(name: str, program: Program, *more: str, at_most_ticks: int | None = None) -> Operation:
    return Operation(name, program, (STAGING, *more), at_most_ticks)


def upload(path: str = "n", address: str = NEW, at_most_ticks: int = 1) -> Operation:
    return client(
        f"upload {path} as {address[-1]}",
        lambda: lake.upload("main", path, address, "new"),
        OBJECTS + address,
        at_most_ticks=at_most_ticks,
    )


def commit(commit_id: str = "c3", token: str = "t2", at_most_ticks: int | None = None) -> Operation:
    return client(
        "commit", lambda: lake.commit("main", commit_id, token), BRANCHES, COMMITS, at_most_ticks=at_most_ticks
    )


def reset(token: str = "t3") -> Operation:
    return client("reset", lambda: lake.reset("main", token), BRANCHES)


def delete_branch() -> Operation:
    return client("delete branch", lambda: lake.reset("main", None), BRANCHES)


def delete(path: str, at_most_ticks: int | None = None) -> Operation:
    return client(f"delete {path}", lambda: lake.delete_path("main", path), at_most_ticks=at_most_ticks)


def rename(source: str, *paths: str, with_: Ingredients = ALL) -> Operation:
    """Return consecutive renames, each path to the next."""
    steps = [
        (lambda old=old, new=new: offline_server.rename("main", old, new, with_))
        for old, new in zip((source, *paths), paths, strict=False)
    ]
    return client("rename " + " ".join((source, *paths)), one_after_the_other(*steps), COPIES)


def copy(with_: Ingredients = ALL) -> Operation:
    return client("copy z to a", lambda: offline_server.copy("main", "z", "a", with_), COPIES)


def link(with_: Ingredients, address: str = NEW, *, at_most_ticks: int = 0) -> tuple[Operation, Operation]:
    """Return a client that gets an address and uploads, and its link request, which may come at any later time."""

    def first() -> Steps[None]:
        yield from offline_server.upload_to_address(address, "new", expires=with_.token_expiry)

    def then() -> Steps[None]:
        yield from offline_server.link_uploaded("main", "n", address, "new")

    return (
        Operation(f"client of {address[-2:].lstrip('/')}", first, (LINKS, UPLOADS, OBJECTS + address), at_most_ticks=0),
        client("link n", then, LINKS, at_most_ticks=at_most_ticks),
    )


def collector(
    with_: Ingredients = ALL, *, name: str = "collector", waits_for_approval: bool = False, waits_ticks: int = 0
) -> Operation:
    return Operation(
        name,
        lambda: collect(with_, name=name, waits_for_approval=waits_for_approval, waits_ticks=waits_ticks),
        (OBJECTS, MARKS),
    )


def forget_copies() -> Steps[None]:
    """Clear the list of copies, as lakeFS does from time to time."""
    yield Drop(COPIES, text="forgets the tracked copies")


def revive_branch() -> Operation:
    return client("create branch old", _revive, BRANCHES)


def _revive() -> Steps[None]:
    if (yield Get(f"{COMMITS}c1", text="looks up commit c1")) is not None:
        yield from lake.create_branch("old", "c1", "o1")


def person() -> Operation:
    """Return a person who reads the mark, creates a branch at the expired commit, and approves the mark."""

    def revive_and_approve() -> Steps[None]:
        yield Await(f"{MARKS}collector", lambda mark: mark is not None, text="reads the mark")
        yield from lake.create_branch("old", "c1", "o1")
        yield Set(APPROVAL, "yes", text="approves the mark")

    return Operation("person", revive_and_approve, (BRANCHES, APPROVAL))


def scenario(
    name: str,
    question: str,
    world: World,
    *operations: Operation,
    expected: frozenset[Kind] = frozenset(),
    moral: str = "",
    shown_by: tuple[tuple[str, str], ...] = (),
    taken_out: str = "",
    bounded_by: str = "",
) -> Scenario:
    return Scenario(
        name,
        question,
        world,
        operations,
        lake.view,
        settle=SETTLE,
        expected=expected,
        moral=moral,
        shown_by=shown_by,
        taken_out=taken_out,
        bounded_by=bounded_by,
    )


SETTLE: tuple[Program, ...] = (forget_copies, lambda: collect(ALL))
STAGED_AT_Z = world({"z": A})
