"""Design 3: the staging manager tracks which staging token refers to which address, and a background job deletes.

Keys: ``references/<address>/<staging token>``, with a ``Reference``. ``committed`` is written with Set, the other two
states with SetIf over anything but ``committed``. In "remove the reference of a tombstone" (Reset 2) there is nothing
to model: a tombstone does not say which address it replaced.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakefs_gc.hard_delete.model import Design, Kind, Operation, Scenario, clock, kinds, one_after_the_other
from lakefs_gc.hard_delete.models import lake
from lakefs_gc.hard_delete.models.lake import (
    BRANCHES,
    COMMITS,
    STAGING,
    TOMBSTONE,
    Entry,
    branch_key,
    staged_key,
)
from lakefs_gc.hard_delete.steps import OBJECTS, Drop, Get, Head, Now, Program, Put, Remove, Scan, Set, SetIf, Steps
from lakefs_gc.hard_delete.world import World

REFERENCES = "references/"
STAGED, DELETED, COMMITTED = "staged", "deleted", "committed"
_TRIES = 2


@dataclass(frozen=True)
class Reference:
    """``last_modified`` in ticks."""

    state: str
    last_modified: int = 0

    def __str__(self) -> str:
        return self.state


def reference_key(address: str, token: str) -> str:
    return f"{REFERENCES}{address}/{token}"


def mark(address: str, token: str, state: str, number: str, *, only_if_there: bool = False) -> Steps[None]:
    """Write ``staged`` or ``deleted`` over anything but ``committed``.

    ``only_if_there``: a reference that is gone stays gone. The document does not say so.
    """
    key = reference_key(address, token)
    for _ in range(_TRIES):
        seen = yield Get(key, says=f"{number}: reads the reference of {address} by {token}")
        if (seen is None and only_if_there) or (seen is not None and seen.state == COMMITTED):
            return
        now = yield Now(says="looks at the clock")
        says = f"{number}: marks {address} by {token} as {state}, if nobody else changed it"
        if (yield SetIf(key, Reference(state, now), seen, says=says)):
            return


def upload(branch: str, path: str, address: str, content: str) -> Steps[None]:
    """Upload Object."""
    yield Put(address, content, says=f"Upload 1: writes object {address}")
    replaced: list[tuple[str, Entry]] = []

    def refer(token: str) -> Steps[None]:
        yield from mark(address, token, STAGED, "Upload 2")
        old = yield Get(staged_key(token, path), says=f"Upload 4: reads what {path} is in {token}")
        if isinstance(old, Entry) and old.address != address:
            replaced.append((token, old))

    if (yield from lake.write_entry(branch, path, Entry(address, content), refer)):
        for token, old in replaced[-1:]:
            yield from mark(old.address, token, DELETED, "Upload 4")


def stage(branch: str, path: str, address: str, content: str) -> Steps[None]:
    """Stage Object, for an address in the repository's namespace."""
    yield from lake.write_entry(
        branch, path, Entry(address, content), lambda token: mark(address, token, STAGED, "Stage 1.1")
    )


def stage_noted(branch: str, path: str, address: str, content: str) -> Steps[None]:
    """Stage Object by a client that noted an address some time ago, and makes sure that the object is there."""
    if (yield Head(address, says=f"sees that object {address} is there")) is not None:
        yield from stage(branch, path, address, content)


def copy(source_branch: str, source: str, branch: str, path: str) -> Steps[None]:
    """Read an entry, and stage its address at another path, of this branch or of another."""
    current = yield Get(branch_key(source_branch), says=f"reads branch {source_branch}")
    entry = yield Get(staged_key(current.token, source), says=f"reads entry {source} in {current.token}")
    if isinstance(entry, Entry):
        yield from stage(branch, path, entry.address, entry.content)


def get_physical_address(branch: str, address: str) -> Steps[None]:
    """GetPhysicalAddress: the new address is known, and refers to nothing yet."""
    current = yield Get(branch_key(branch), says=f"reads branch {branch}")
    yield from mark(address, current.token, DELETED, "GetPhysicalAddress")


def link(branch: str, path: str, address: str, content: str, *, valid_until: int) -> Steps[None]:
    """LinkPhysicalAddress, by a client that has uploaded to an address that it got before; ``valid_until`` in ticks."""
    yield Put(address, content, says=f"uploads to {address}")
    if (yield Now(says="Link: checks the time stamp of the address")) <= valid_until:
        yield from stage(branch, path, address, content)


def delete(branch: str, path: str, *, only_if_there: bool = True) -> Steps[None]:
    """Delete Object: the reference first, then the entry."""
    current = yield Get(branch_key(branch), says=f"reads branch {branch}")
    entry = yield Get(staged_key(current.token, path), says=f"Delete 1: reads entry {path} in {current.token}")
    if isinstance(entry, Entry):
        yield from mark(entry.address, current.token, DELETED, "Delete 1.1-1.2", only_if_there=only_if_there)
    yield from lake.delete_path(branch, path)


def commit(branch: str, commit_id: str, token: str) -> Steps[None]:
    """Commit."""
    current = yield Get(branch_key(branch), says=f"reads branch {branch}")
    folder = f"{STAGING}{current.token}/"
    for _, entry in (yield Scan(folder, says=f"Commit 1: reads what is staged in {current.token}")):
        if entry != TOMBSTONE:
            key = reference_key(entry.address, current.token)
            now = yield Now(says="looks at the clock")
            yield Set(key, Reference(COMMITTED, now), says=f"Commit 1: marks {entry.address} as committed")
    yield from lake.commit(branch, commit_id, token)


def reset(branch: str, token: str | None) -> Steps[None]:
    """Reset, or with None delete, a branch."""
    for dropped in (yield from lake.take_staging_away(branch, token)):
        folder = f"{STAGING}{dropped}/"
        for _, entry in (yield Scan(folder, says=f"Reset 1: reads what is staged in {dropped}")):
            if entry != TOMBSTONE:
                yield from mark(entry.address, dropped, DELETED, "Reset 3", only_if_there=True)
        yield Drop(folder, says=f"drops staging token {dropped}")


def job(tbd_ticks: int, *, by_latest: bool = False) -> Steps[None]:
    """The background delete job, once through all references.

    ``tbd_ticks``: the time that the document leaves open. It is counted from the oldest change of an address's
    references, as the document has it, or with ``by_latest`` from the latest.
    """
    rows = yield Scan(REFERENCES, says="Job 1: scans the references")
    for address in sorted({key.split("/")[1] for key, _ in rows}):
        folder = f"{REFERENCES}{address}/"
        now = yield Now(says="looks at the clock")
        references = yield Scan(folder, says=f"Job 2: reads the references of {address}")
        states = {reference.state for _, reference in references}
        if COMMITTED in states:
            for state in (DELETED, STAGED, COMMITTED):
                for key, reference in references:
                    if reference.state == state:
                        yield Drop(key, says=f"Job 2.1: deletes the {state} reference of {address}")
        elif states == {DELETED}:
            times = [reference.last_modified for _, reference in references]
            if now - (max(times) if by_latest else min(times)) >= tbd_ticks:
                yield Remove(address, says=f"Job 2.2: hard-deletes {address}")
                yield Drop(folder, says=f"Job 2.2: deletes the references of {address}")


# -- scenarios

_WRITES = (OBJECTS, STAGING, REFERENCES)
_TBD_TICKS = 3


def _operation(name: str, program: Program, *more: str, at_most_ticks: int | None = None) -> Operation:
    return Operation(name, program, (*_WRITES, *more), at_most_ticks)


def _commit() -> Operation:
    return _operation("commit", lambda: commit("main", "c1", "t2"), BRANCHES, COMMITS)


def _delete() -> Operation:
    return _operation("delete a", lambda: delete("main", "a"), at_most_ticks=1)


def _copy(at_most_ticks: int) -> Operation:
    return _operation("copy a to dev", lambda: copy("main", "a", "dev", "b"), at_most_ticks=at_most_ticks)


def _job(tbd_ticks: int = _TBD_TICKS, *, by_latest: bool = False) -> Operation:
    return _operation("job", lambda: job(tbd_ticks, by_latest=by_latest))


def _settled() -> tuple[Program, ...]:
    return (lambda: job(_TBD_TICKS), lambda: job(_TBD_TICKS))


def _world(**references: Reference) -> World:
    """Path a of main is staged as A in t1; A has further references, by token."""
    more = {reference_key("A", token): reference for token, reference in references.items()}
    return lake.lake({"A": "data"}, {"main": ("c0", "t1", {"a": "A"}), "dev": ("c0", "d1", {})}, more=more)


_OLD_REFERENCE = _world(t0=Reference(DELETED, -10), t1=Reference(STAGED))
_ONE_REFERENCE = _world(t1=Reference(STAGED))

DESIGN = Design(
    3,
    "References tracked in the staging manager",
    "A key for each address and staging token says staged, deleted or committed; a background job deletes the objects "
    "whose references have all been deleted for some time, which the document leaves TBD.",
    (
        Scenario(
            "job-copy",
            "A path is copied to another branch and deleted while the job runs; a third token's reference was deleted "
            "long ago.",
            _OLD_REFERENCE,
            (_copy(1), _delete(), _job()),
            lake.look,
            _settled(),
            expected=kinds(Kind.STAGED_LOST),
            documented="3, Background delete job, TBD",
            moral="min(last_modified) asks the oldest reference. One that was deleted long ago speaks for one that "
            "was deleted this moment, so no TBD, however long, protects the copy that is under way.",
        ),
        Scenario(
            "job-copy-latest",
            "The same with the latest reference asked, and a TBD longer than two operations.",
            _OLD_REFERENCE,
            (_copy(1), _delete(), _job(by_latest=True), clock(4)),
            lake.look,
            (lambda: job(_TBD_TICKS, by_latest=True),),
            documented="3, Background delete job, TBD",
            moral="TBD has to be longer than two operations, one after the other (the delete marks before the entry is "
            "gone, and a copy may begin in between), counted from the latest change.",
        ),
        Scenario(
            "job-slow-copy",
            "The same with a copy that may last longer than TBD.",
            _OLD_REFERENCE,
            (_copy(4), _delete(), _job(by_latest=True), clock(4)),
            lake.look,
            (lambda: job(_TBD_TICKS, by_latest=True),),
            expected=kinds(Kind.STAGED_LOST),
            moral="What TBD has to be is what no server promises: an upper bound for every request.",
        ),
        Scenario(
            "job-stage",
            "A client stages an address that it noted, and the job has read that all references are deleted.",
            lake.lake(
                {"A": "data"}, {"main": ("c0", "t1", {})}, more={reference_key("A", "t0"): Reference(DELETED, -10)}
            ),
            (
                _operation("stage b", lambda: stage_noted("main", "b", "A", "data"), at_most_ticks=1),
                _job(by_latest=True),
            ),
            lake.look,
            (lambda: job(_TBD_TICKS, by_latest=True),),
            expected=kinds(Kind.STAGED_LOST),
            moral="The job reads and then deletes; nothing makes the two one step. A staged address may be as old as "
            "the client's notes, so no TBD helps.",
        ),
        Scenario(
            "overwrite",
            "Two uploads to one path.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (
                _operation("upload a1", lambda: upload("main", "a", "A1", "first")),
                _operation("upload a2", lambda: upload("main", "a", "A2", "second")),
            ),
            lake.look,
            _settled(),
            expected=kinds(Kind.LEAKED),
            documented="3, Upload Object, Open",
            moral="Both see an empty path, so neither marks the other's object as deleted.",
        ),
        Scenario(
            "overwrite-in-turn",
            "Two uploads to one path, one after the other.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (
                _operation(
                    "client",
                    one_after_the_other(
                        lambda: upload("main", "a", "A1", "first"), lambda: upload("main", "a", "A2", "second")
                    ),
                ),
                _job(),
            ),
            lake.look,
            _settled(),
        ),
        Scenario(
            "same-token",
            "A path is copied within its branch, and then deleted: no race at all.",
            _ONE_REFERENCE,
            (
                _operation(
                    "client", one_after_the_other(lambda: copy("main", "a", "main", "b"), lambda: delete("main", "a"))
                ),
                _job(),
                clock(3),
            ),
            lake.look,
            _settled(),
            expected=kinds(Kind.STAGED_LOST),
            moral="Both paths share one key, because they share token and address: deleting one path marks the other's "
            "object.",
        ),
        Scenario(
            "commit-delete",
            "A path is deleted while its branch is committed.",
            _ONE_REFERENCE,
            (_delete(), _commit()),
            lake.look,
            _settled(),
            expected=kinds(Kind.LEAKED),
            moral="Commit 1 marks what is staged before Commit 2 makes it fast. What is deleted in between is "
            "committed for the job, which forgets it, and for nobody else.",
        ),
        Scenario(
            "commit-delete-job",
            "The same with the job, and a delete that takes a missing reference for one that is not committed.",
            _ONE_REFERENCE,
            (
                _operation("delete a", lambda: delete("main", "a", only_if_there=False)),
                _commit(),
                _job(),
            ),
            lake.look,
            _settled(),
            expected=kinds(Kind.COMMITTED_LOST, Kind.LEAKED),
            moral="After the job has deleted the references of a committed address, nothing is left to say that it is "
            "committed. Read literally, Delete 1.2 then writes the only reference there is: deleted.",
        ),
        Scenario(
            "link",
            "An address is asked for, uploaded to, and linked within its time, while the job runs.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (
                _operation(
                    "client",
                    one_after_the_other(
                        lambda: get_physical_address("main", "A"), lambda: link("main", "a", "A", "data", valid_until=1)
                    ),
                    at_most_ticks=1,
                ),
                _job(),
                clock(3),
            ),
            lake.look,
            _settled(),
            moral="As long as TBD is longer than an address is valid.",
        ),
        Scenario(
            "upload-reset",
            "A branch is reset while an object is uploaded to it, and the job runs.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (
                _operation("upload a", lambda: upload("main", "a", "A", "data"), at_most_ticks=1),
                _operation("reset", lambda: reset("main", "t2"), BRANCHES),
                _job(),
                clock(2),
            ),
            lake.look,
            _settled(),
            moral="Each token has a reference of its own, so the upload's second try is protected.",
        ),
        Scenario(
            "upload-delete-branch",
            "A branch is deleted while an object is uploaded to it.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (
                _operation("upload a", lambda: upload("main", "a", "A", "data")),
                _operation("delete branch", lambda: reset("main", None), BRANCHES),
            ),
            lake.look,
            _settled(),
            expected=kinds(Kind.LEAKED),
            moral="The reference is staged, under a token that nobody will drop again.",
        ),
        Scenario(
            "crash",
            "An upload stops in the middle.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (_operation("upload a", lambda: upload("main", "a", "A", "data")),),
            lake.look,
            _settled(),
            crashes=1,
            expected=kinds(Kind.LEAKED),
            moral="After Upload 1 nothing knows the address; after Upload 2 it is staged for ever.",
        ),
    ),
)
