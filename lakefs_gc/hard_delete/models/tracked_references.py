"""Design 3: the staging manager tracks which staging token references which address, and a background job deletes.

Keys: ``references/<address>/<staging token>``, with a ``Reference``. ``committed`` is written with Set. The other two
states are written with SetIf and never overwrite ``committed``. "Remove the reference of a tombstone" (Reset 2) is not
modelled, because a tombstone does not contain the address that it replaced.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from lakefs_gc.hard_delete.combinations import case
from lakefs_gc.hard_delete.model import Bound, Design, Kind, Open, Operation, Part, Reading, clock, kinds
from lakefs_gc.hard_delete.models import lake
from lakefs_gc.hard_delete.models.lake import (
    BRANCHES,
    COMMITS,
    STAGING,
    TOMBSTONE,
    Entry,
    branch_key,
    part,
    staged_key,
)
from lakefs_gc.hard_delete.steps import (
    OBJECTS,
    Drop,
    Get,
    Head,
    Now,
    Program,
    Put,
    Recap,
    Remove,
    Scan,
    Set,
    SetIf,
    Steps,
)
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


def upload(branch: str, path: str, address: str, content: str, *, only_existing: bool = True) -> Steps[None]:
    """Upload Object."""
    yield Put(address, content, text=f"Upload 1: writes object {address}")
    replaced: list[tuple[str, Entry]] = []
    attempts = itertools.count(1)

    def refer(token: str) -> Steps[None]:
        attempt = next(attempts)
        yield from mark(address, token, STAGED, "Upload 2")
        old = yield Get(staged_key(token, path), text=f"Upload 4: reads entry {path} in {token}")
        if isinstance(old, Entry) and old.address != address:
            replaced.append((token, old))
        yield Recap((address, attempt), (token, tuple(replaced)))

    if (yield from lake.write_entry(branch, path, Entry(address, content), refer)):
        for token, old in replaced[-1:]:
            yield from mark(old.address, token, DELETED, "Upload 4", only_existing=only_existing)


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
    if current is None:
        return
    entry = yield Get(staged_key(current.token, source), text=f"reads entry {source} in {current.token}")
    if isinstance(entry, Entry):
        yield from stage(branch, path, entry.address, entry.content)


def upload_and_link(branch: str, path: str, address: str, content: str) -> Steps[None]:
    """GetPhysicalAddress, an upload to the address, and LinkPhysicalAddress while the address is valid."""
    current = yield Get(branch_key(branch), text=f"reads branch {branch}")
    if current is None:
        return
    yield from mark(address, current.token, DELETED, "GetPhysicalAddress")
    yield Put(address, content, text=f"uploads to {address}")
    yield from stage(branch, path, address, content)


def delete(branch: str, path: str, *, only_existing: bool = True) -> Steps[None]:
    """Delete Object: first the reference, then the entry."""
    current = yield Get(branch_key(branch), text=f"reads branch {branch}")
    if current is None:
        return
    entry = yield Get(staged_key(current.token, path), text=f"Delete 1: reads entry {path} in {current.token}")
    if isinstance(entry, Entry):
        yield from mark(entry.address, current.token, DELETED, "Delete 1.1-1.2", only_existing=only_existing)
    yield Recap("marked", None)
    yield from lake.delete_path(branch, path)


def commit(branch: str, commit_id: str, token: str) -> Steps[None]:
    """Commit."""
    current = yield Get(branch_key(branch), text=f"reads branch {branch}")
    if current is None:
        return
    folder = f"{STAGING}{current.token}/"
    rows = yield Scan(folder, text=f"Commit 1: reads what is staged in {current.token}")
    for number, (_, entry) in enumerate(rows):
        yield Recap(f"{commit_id}: marks", (current.token, rows[number:]))
        if entry != TOMBSTONE:
            key = reference_key(entry.address, current.token)
            now = yield Now(text="reads the clock")
            yield Set(key, Reference(COMMITTED, now), text=f"Commit 1: marks {entry.address} as committed")
    yield Recap(f"{commit_id}: marked", None)
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
    addresses = sorted({key.split("/")[1] for key, _ in rows})
    for number, address in enumerate(addresses):
        yield Recap("address", tuple(addresses[number:]))
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


# -- combinations and scenarios

_TBD_TICKS = 1
_OLD = "a staged, old reference"
"""A world in which only ``min`` of the literal reading differs from "a staged"."""
_STAGED_AT_A = {"main": ("c0", "t1", {"a": "A"}), "dev": ("c0", "d1", {})}
_STAGED_REFERENCE = {reference_key("A", "t1"): Reference(STAGED)}


def _worlds() -> dict[str, World]:
    old = {**_STAGED_REFERENCE, reference_key("A", "t0"): Reference(DELETED, -10)}
    return {
        "empty": lake.lake({}, {"main": ("c0", "t1", {}), "dev": ("c0", "d1", {})}),
        "a staged": lake.lake({"A": "data"}, _STAGED_AT_A, more=_STAGED_REFERENCE),
        _OLD: lake.lake({"A": "data"}, _STAGED_AT_A, more=old),
    }


def _reading(name: str, text: str, bound: Bound, *, kind: bool) -> Reading:
    """Return a reading. A request lasts less than a tick, and TBD is a tick: longer than any two requests."""
    written = (OBJECTS, STAGING, REFERENCES)

    def run_job() -> Steps[None]:
        yield from job(_TBD_TICKS, by_latest=kind)

    def of(name: str, program: Callable[[int], Program], *more: str) -> Part:
        return part(name, program, *written, *more, at_most_ticks=0 if kind else None)

    parts = (
        of("upload a", lambda n: lambda: upload("main", "a", f"N{n}", f"data {n}", only_existing=kind)),
        of("link a", lambda n: lambda: upload_and_link("main", "a", f"L{n}", f"data {n}")),
        of("stage b as A", lambda n: lambda: stage_noted("main", "b", "A", "data")),
        of("copy a to b", lambda n: lambda: copy("main", "a", "main", "b")),
        of("copy a to dev", lambda n: lambda: copy("main", "a", "dev", "b")),
        of("delete a", lambda n: lambda: delete("main", "a", only_existing=kind)),
        of("commit", lambda n: lambda: commit("main", f"e{n}", f"u{n}"), BRANCHES, COMMITS),
        of("reset", lambda n: lambda: reset("main", f"r{n}"), BRANCHES),
        of("delete branch", lambda n: lambda: reset("main", None), BRANCHES),
    )
    background = (Operation("job", run_job, written), *((clock(1),) if kind else ()))
    worlds = {name: world for name, world in _worlds().items() if not (kind and name == _OLD)}
    return Reading(name, text, worlds, parts, bound, lake.view, (run_job, run_job), background)


KIND = _reading(
    "kinder",
    "A delete or an overwrite writes no missing reference. TBD counts from the latest change, and is "
    "longer than any two requests.",
    Bound(3, 2, 2),
    kind=True,
)
LITERAL = _reading(
    "literal",
    "A delete or an overwrite treats a missing reference as not committed. TBD counts from the oldest change (`min`), "
    "so it may be over at once.",
    Bound(2, 2, 2),
    kind=False,
)

DESIGN = Design(
    3,
    "References tracked in the staging manager",
    "A key for each address and staging token has the state staged, deleted or committed. A background job deletes an "
    "object if all its references have been deleted for some time. The document leaves this time TBD.",
    (KIND, LITERAL),
    (
        case(
            KIND,
            "empty",
            "upload a",
            "delete a",
            "commit",
            name="upload-delete-commit",
            question="A path is uploaded and deleted while its branch is committed.",
            expected=kinds(Kind.COMMITTED_LOST, Kind.LEAKED),
            moral="Commit 1 marks what is staged before Commit 2 seals it. An upload that is staged in between is "
            "committed without a mark, and its reference may be marked as deleted.",
            shown_by=(
                ("commit", "Commit 1: reads what is staged in t1"),
                ("upload a", "stages a = N1 in t1"),
                ("delete a", "Delete 1.1-1.2: marks N1 by t1 as deleted"),
                ("commit", "changes the staging token"),
                ("cleaning up", "Job 2.2: hard-deletes N1"),
            ),
        ),
        case(
            KIND,
            "a staged",
            "delete a",
            "commit",
            crashes="delete a",
            name="crashed-delete-commit",
            question="A delete crashes, and the branch is committed later.",
            expected=kinds(Kind.COMMITTED_LOST, Kind.STAGED_LOST, Kind.LEAKED),
            moral="The delete marks the reference before it removes the entry. The entry of a crashed delete stays, "
            "and the job deletes its object when TBD is over.",
            shown_by=(
                ("delete a", "Delete 1.1-1.2: marks A by t1 as deleted"),
                ("delete a", "crashes"),
                ("commit", "moves main"),
                ("job", "Job 2.2: hard-deletes A"),
            ),
        ),
        case(
            KIND,
            "a staged",
            "copy a to b",
            "delete a",
            name="same-token",
            question="A path is copied within its branch, and then deleted. This needs no race.",
            expected=kinds(Kind.STAGED_LOST),
            moral="Both paths share one key, because they share token and address. Deleting one path marks the object "
            "of the other.",
            shown_by=(
                ("copy a to b", "stages b = A in t1"),
                ("delete a", "Delete 1.1-1.2: marks A by t1 as deleted"),
                ("cleaning up", "Job 2.2: hard-deletes A"),
            ),
        ),
        case(
            LITERAL,
            "a staged, old reference",
            "copy a to dev",
            "delete a",
            name="job-copy",
            question="A path is copied to another branch and deleted while the job runs. The reference of a third "
            "token was deleted long ago.",
            expected=kinds(Kind.STAGED_LOST),
            documented="3, Background delete job, TBD",
            moral="min(last_modified) is the time of the oldest reference. A reference that was deleted long ago hides "
            "one that was deleted just now, so even a very long TBD does not protect the object.",
            shown_by=(("delete a", "Delete 1.1-1.2: marks A by t1 as deleted"), ("job", "Job 2.2: hard-deletes A")),
        ),
        case(
            LITERAL,
            "a staged",
            "delete a",
            "commit",
            name="commit-delete",
            question="A path is deleted while its branch is committed.",
            expected=kinds(Kind.COMMITTED_LOST, Kind.LEAKED),
            moral="After the job has deleted the references of a committed address, no key shows that it is committed. "
            "Read literally, Delete 1.2 then writes the only reference, with the state deleted.",
            shown_by=(
                ("job", "Job 2.1: deletes the committed reference of A"),
                ("delete a", "Delete 1.1-1.2: marks A by t1 as deleted"),
            ),
        ),
        case(
            KIND,
            "empty",
            "upload a",
            "upload a",
            name="overwrite",
            question="Two uploads to one path.",
            expected=kinds(Kind.LEAKED),
            documented="3, Upload Object, Open",
            moral="Both uploads see an empty path, so neither marks the object of the other as deleted.",
            shown_by=(
                ("upload a", "Upload 4: reads entry a in t1"),
                ("upload a (2)", "Upload 4: reads entry a in t1"),
                ("upload a (2)", "stages a = N2 in t1"),
            ),
        ),
        case(
            KIND,
            "empty",
            "upload a",
            "delete branch",
            name="upload-delete-branch",
            question="A branch is deleted while an object is uploaded to it.",
            expected=kinds(Kind.LEAKED),
            moral="The object is written before its reference. An upload that finds no branch writes no reference.",
            shown_by=(("upload a", "Upload 1: writes object N1"), ("delete branch", "deletes branch main")),
        ),
        case(
            KIND,
            "empty",
            "upload a",
            crashes="upload a",
            name="crash",
            question="An upload crashes.",
            expected=kinds(Kind.LEAKED),
            moral="After Upload 1 no key contains the address. After Upload 2 the address is staged forever.",
            shown_by=(("upload a", "Upload 1: writes object N1"), ("upload a", "crashes")),
        ),
    ),
    picture="""\
entry a in t1 ----> object A <---- references/A/t0 = deleted
                            <---- references/A/t1 = staged
                                       ^       upload, delete, commit, reset: write a state
job: all deleted, for longer than TBD -+-----> deletes A and its references""",
    opens=(
        Open("TBD", "Modelled: in the kinder reading it is longer than any two requests, in the literal one over."),
        Open("Efficiently deal with overrides", "Out: it is about speed. `overwrite` leaks whatever it costs."),
        Open("Whether a delete may write a missing reference", "Modelled in both readings."),
        Open("Removing the reference of a tombstone (Reset 2)", "Out: a tombstone contains no address."),
        Open("The lifetime of an address", "Modelled: a client links within it. Later it may not, so nothing is lost."),
        Open("Ingested data, and Stage Object outside the repository", "Out: base assumption 2."),
    ),
)
