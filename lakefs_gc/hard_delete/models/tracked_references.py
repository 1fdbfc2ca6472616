"""Design 3: the staging manager tracks which staging token references which address, and a background job deletes.

Keys: ``references/<address>/<staging token>``, with a ``Reference``. ``committed`` is written with Set. The other two
states are written with SetIf and never overwrite ``committed``. "Remove the reference of a tombstone" (Reset 2) is not
modelled, because a tombstone does not contain the address that it replaced.
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
    """The state of one reference. ``last_modified`` in ticks."""

    state: str
    last_modified: int = 0

    def __str__(self) -> str:
        return self.state


def reference_key(address: str, token: str) -> str:
    return f"{REFERENCES}{address}/{token}"


def mark(address: str, token: str, state: str, number: str, *, only_existing: bool = False) -> Steps[None]:
    """Write ``staged`` or ``deleted``, but never over ``committed``.

    ``only_existing``: do not create a missing reference. The document leaves this open.
    """
    key = reference_key(address, token)
    for _ in range(_TRIES):
        seen = yield Get(key, text=f"{number}: reads the reference of {address} by {token}")
        if (seen is None and only_existing) or (seen is not None and seen.state == COMMITTED):
            return
        now = yield Now(text="reads the clock")
        text = f"{number}: marks {address} by {token} as {state}, if it did not change"
        if (yield SetIf(key, Reference(state, now), seen, text=text)):
            return


def upload(branch: str, path: str, address: str, content: str) -> Steps[None]:
    """Upload Object."""
    yield Put(address, content, text=f"Upload 1: writes object {address}")
    replaced: list[tuple[str, Entry]] = []

    def refer(token: str) -> Steps[None]:
        yield from mark(address, token, STAGED, "Upload 2")
        old = yield Get(staged_key(token, path), text=f"Upload 4: reads entry {path} in {token}")
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
    """Stage Object by a client that noted an address some time ago, and checks that the object exists."""
    if (yield Head(address, text=f"checks that object {address} exists")) is not None:
        yield from stage(branch, path, address, content)


def copy(source_branch: str, source: str, branch: str, path: str) -> Steps[None]:
    """Read an entry, and stage its address at another path of this branch or of another branch."""
    current = yield Get(branch_key(source_branch), text=f"reads branch {source_branch}")
    entry = yield Get(staged_key(current.token, source), text=f"reads entry {source} in {current.token}")
    if isinstance(entry, Entry):
        yield from stage(branch, path, entry.address, entry.content)


def get_physical_address(branch: str, address: str) -> Steps[None]:
    """GetPhysicalAddress: record the new address, which nothing references yet."""
    current = yield Get(branch_key(branch), text=f"reads branch {branch}")
    yield from mark(address, current.token, DELETED, "GetPhysicalAddress")


def link(branch: str, path: str, address: str, content: str, *, valid_until: int) -> Steps[None]:
    """LinkPhysicalAddress by a client that uploads to an address that it got before. ``valid_until`` in ticks."""
    yield Put(address, content, text=f"uploads to {address}")
    if (yield Now(text="Link: checks the time stamp of the address")) <= valid_until:
        yield from stage(branch, path, address, content)


def delete(branch: str, path: str, *, only_existing: bool = True) -> Steps[None]:
    """Delete Object: first the reference, then the entry."""
    current = yield Get(branch_key(branch), text=f"reads branch {branch}")
    entry = yield Get(staged_key(current.token, path), text=f"Delete 1: reads entry {path} in {current.token}")
    if isinstance(entry, Entry):
        yield from mark(entry.address, current.token, DELETED, "Delete 1.1-1.2", only_existing=only_existing)
    yield from lake.delete_path(branch, path)


def commit(branch: str, commit_id: str, token: str) -> Steps[None]:
    """Commit."""
    current = yield Get(branch_key(branch), text=f"reads branch {branch}")
    folder = f"{STAGING}{current.token}/"
    for _, entry in (yield Scan(folder, text=f"Commit 1: reads what is staged in {current.token}")):
        if entry != TOMBSTONE:
            key = reference_key(entry.address, current.token)
            now = yield Now(text="reads the clock")
            yield Set(key, Reference(COMMITTED, now), text=f"Commit 1: marks {entry.address} as committed")
    yield from lake.commit(branch, commit_id, token)


def reset(branch: str, token: str | None) -> Steps[None]:
    """Reset a branch, or delete it if ``token`` is None."""
    for dropped in (yield from lake.take_staging_away(branch, token)):
        folder = f"{STAGING}{dropped}/"
        for _, entry in (yield Scan(folder, text=f"Reset 1: reads what is staged in {dropped}")):
            if entry != TOMBSTONE:
                yield from mark(entry.address, dropped, DELETED, "Reset 3", only_existing=True)
        yield Drop(folder, text=f"drops staging token {dropped}")


def job(tbd_ticks: int, *, by_latest: bool = False) -> Steps[None]:
    """One pass of the background delete job over all references.

    ``tbd_ticks``: the time that the document leaves open (TBD). It counts from the oldest change of an address's
    references, as in the document, or with ``by_latest`` from the latest change.
    """
    rows = yield Scan(REFERENCES, text="Job 1: scans the references")
    for address in sorted({key.split("/")[1] for key, _ in rows}):
        folder = f"{REFERENCES}{address}/"
        now = yield Now(text="reads the clock")
        references = yield Scan(folder, text=f"Job 2: reads the references of {address}")
        states = {reference.state for _, reference in references}
        if COMMITTED in states:
            for state in (DELETED, STAGED, COMMITTED):
                for key, reference in references:
                    if reference.state == state:
                        yield Drop(key, text=f"Job 2.1: deletes the {state} reference of {address}")
        elif states == {DELETED}:
            times = [reference.last_modified for _, reference in references]
            if now - (max(times) if by_latest else min(times)) >= tbd_ticks:
                yield Remove(address, text=f"Job 2.2: hard-deletes {address}")
                yield Drop(folder, text=f"Job 2.2: deletes the references of {address}")


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
    """Return a world in which path a of main is staged as A in t1. ``references``: all references of A, by token."""
    more = {reference_key("A", token): reference for token, reference in references.items()}
    return lake.lake({"A": "data"}, {"main": ("c0", "t1", {"a": "A"}), "dev": ("c0", "d1", {})}, more=more)


_OLD_REFERENCE = _world(t0=Reference(DELETED, -10), t1=Reference(STAGED))
_ONE_REFERENCE = _world(t1=Reference(STAGED))

DESIGN = Design(
    3,
    "References tracked in the staging manager",
    "A key for each address and staging token has the state staged, deleted or committed. A background job deletes an "
    "object if all its references have been deleted for some time. The document leaves this time TBD.",
    (
        Scenario(
            "job-copy",
            "A path is copied to another branch and deleted while the job runs. The reference of a third token was "
            "deleted long ago.",
            _OLD_REFERENCE,
            (_copy(1), _delete(), _job()),
            lake.view,
            _settled(),
            expected=kinds(Kind.STAGED_LOST),
            documented="3, Background delete job, TBD",
            moral="min(last_modified) is the time of the oldest reference. A reference that was deleted long ago hides "
            "one that was deleted just now, so even a very long TBD does not protect the running copy.",
        ),
        Scenario(
            "job-copy-latest",
            "As `job-copy`, but TBD counts from the latest reference, and is longer than two operations.",
            _OLD_REFERENCE,
            (_copy(1), _delete(), _job(by_latest=True), clock(4)),
            lake.view,
            (lambda: job(_TBD_TICKS, by_latest=True),),
            documented="3, Background delete job, TBD",
            moral="TBD must be longer than two consecutive operations, counted from the latest change. The delete "
            "marks the reference before it removes the entry, and a copy may begin in between.",
        ),
        Scenario(
            "job-slow-copy",
            "As `job-copy-latest`, with a copy that may last longer than TBD.",
            _OLD_REFERENCE,
            (_copy(4), _delete(), _job(by_latest=True), clock(4)),
            lake.view,
            (lambda: job(_TBD_TICKS, by_latest=True),),
            expected=kinds(Kind.STAGED_LOST),
            moral="TBD must be an upper bound for the duration of every request, which no server guarantees.",
        ),
        Scenario(
            "job-stage",
            "A client stages an address that it noted, after the job has read that all references are deleted.",
            lake.lake(
                {"A": "data"}, {"main": ("c0", "t1", {})}, more={reference_key("A", "t0"): Reference(DELETED, -10)}
            ),
            (
                _operation("stage b", lambda: stage_noted("main", "b", "A", "data"), at_most_ticks=1),
                _job(by_latest=True),
            ),
            lake.view,
            (lambda: job(_TBD_TICKS, by_latest=True),),
            expected=kinds(Kind.STAGED_LOST),
            moral="The job reads and then deletes, which is not one atomic step. A staged address may be as old as the "
            "client's notes, so no TBD helps.",
        ),
        Scenario(
            "overwrite",
            "Two uploads to one path.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (
                _operation("upload a1", lambda: upload("main", "a", "A1", "first")),
                _operation("upload a2", lambda: upload("main", "a", "A2", "second")),
            ),
            lake.view,
            _settled(),
            expected=kinds(Kind.LEAKED),
            documented="3, Upload Object, Open",
            moral="Both uploads see an empty path, so neither marks the object of the other as deleted.",
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
            lake.view,
            _settled(),
        ),
        Scenario(
            "same-token",
            "A path is copied within its branch, and then deleted, without a race.",
            _ONE_REFERENCE,
            (
                _operation(
                    "client", one_after_the_other(lambda: copy("main", "a", "main", "b"), lambda: delete("main", "a"))
                ),
                _job(),
                clock(3),
            ),
            lake.view,
            _settled(),
            expected=kinds(Kind.STAGED_LOST),
            moral="Both paths share one key, because they share token and address. Deleting one path marks the object "
            "of the other.",
        ),
        Scenario(
            "commit-delete",
            "A path is deleted while its branch is committed.",
            _ONE_REFERENCE,
            (_delete(), _commit()),
            lake.view,
            _settled(),
            expected=kinds(Kind.LEAKED),
            moral="Commit 1 marks the staged entries before Commit 2 seals them. The job treats an entry that is "
            "deleted in between as committed, and forgets it, but no commit contains it.",
        ),
        Scenario(
            "commit-delete-job",
            "As `commit-delete`, with the job, and a delete that treats a missing reference as not committed.",
            _ONE_REFERENCE,
            (
                _operation("delete a", lambda: delete("main", "a", only_existing=False)),
                _commit(),
                _job(),
            ),
            lake.view,
            _settled(),
            expected=kinds(Kind.COMMITTED_LOST, Kind.LEAKED),
            moral="After the job has deleted the references of a committed address, no key shows that it is committed. "
            "Read literally, Delete 1.2 then writes the only reference, with the state deleted.",
        ),
        Scenario(
            "link",
            "A client gets an address, uploads to it and links it within its lifetime, while the job runs.",
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
            lake.view,
            _settled(),
            moral="This holds while TBD is longer than the lifetime of an address.",
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
            lake.view,
            _settled(),
            moral="Each token has its own reference, which protects the second attempt of the upload.",
        ),
        Scenario(
            "upload-delete-branch",
            "A branch is deleted while an object is uploaded to it.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (
                _operation("upload a", lambda: upload("main", "a", "A", "data")),
                _operation("delete branch", lambda: reset("main", None), BRANCHES),
            ),
            lake.view,
            _settled(),
            expected=kinds(Kind.LEAKED),
            moral="The reference is staged under a token that no operation drops again.",
        ),
        Scenario(
            "crash",
            "An upload crashes.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (_operation("upload a", lambda: upload("main", "a", "A", "data")),),
            lake.view,
            _settled(),
            crashes=1,
            expected=kinds(Kind.LEAKED),
            moral="After Upload 1 no key contains the address. After Upload 2 the address is staged forever.",
        ),
    ),
)
