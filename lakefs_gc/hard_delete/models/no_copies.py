"""Design 5: no two entries share an address, so the operation that removes an entry deletes its object.

Entries can be locked (SetIf). A lock protects its entry's object from deletion, and excludes other operations. A lock
never expires, or with ``lock_ticks`` expires after that time. An address is signed for one path and cannot be linked at
another path. A copy copies the data. A flow that reads and then deletes, deletes only entries of the branch's staging
token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lakefs_gc.hard_delete.combinations import case
from lakefs_gc.hard_delete.model import Bound, Design, Kind, Open, Part, Reading, clock, kinds
from lakefs_gc.hard_delete.models import lake
from lakefs_gc.hard_delete.models.lake import BRANCHES, COMMITS, STAGING, TOMBSTONE, Entry, branch_key, part, staged_key
from lakefs_gc.hard_delete.steps import (
    OBJECTS,
    Await,
    CopyData,
    Drop,
    DropIf,
    Get,
    Head,
    Now,
    Program,
    Put,
    Remove,
    Scan,
    Set,
    SetIf,
    Steps,
)

FOR_EVER = 10**9
_TRIES = 3


def _is_open(entry: Any) -> bool:
    return not isinstance(entry, Entry) or entry.locked_until is None


def get_open_entry(branch: str, path: str, number: str, *, timed: bool, waits: bool = True) -> Steps[tuple[str, Any]]:
    """Get an entry that is not locked. Reply: the staging token, and the entry.

    ``timed``: locks expire, so the operation reads the clock once, and gives up if the lock has not expired.
    ``waits=False``: ignore the locks of other operations.
    """
    current = yield Get(branch_key(branch), text=f"reads branch {branch}")
    if current is None:
        return "", None
    key, text = staged_key(current.token, path), f"{number}: gets entry {path}"
    if timed or not waits:
        entry = yield Get(key, text=text)
        if timed and not _is_open(entry) and (yield Now(text="reads the clock")) < entry.locked_until:
            return current.token, None
    else:
        entry = yield Await(key, _is_open, text=f"{text}, once it is not locked")
    return current.token, entry


def lock(token: str, path: str, entry: Entry, number: str, lock_ticks: int | None) -> Steps[Entry | None]:
    """Lock an entry. Reply: the locked entry, or None if the entry changed meanwhile."""
    until = FOR_EVER if lock_ticks is None else (yield Now(text="reads the clock")) + lock_ticks
    locked = replace(entry, locked_until=until)
    done = yield SetIf(staged_key(token, path), locked, entry, text=f'{number}: "locks" entry {path}')
    return locked if done else None


def move(
    branch: str, source: str, path: str, *, lock_ticks: int | None = None, checks_lock: bool = True
) -> Steps[None]:
    """Move operation. Without ``checks_lock`` it treats a lock that another move holds as its own."""
    token, entry = yield from get_open_entry(branch, source, "Move 1", timed=lock_ticks is not None, waits=checks_lock)
    if not isinstance(entry, Entry):
        return
    if checks_lock or entry.locked_until is None:
        locked = yield from lock(token, source, entry, "Move 2", lock_ticks)
        if locked is None:
            return
    else:
        locked = entry
    current = yield Get(branch_key(branch), text=f"reads branch {branch}")
    if current is None:
        return
    copied = f"Move 3: copies the entry to {path} in {current.token}"
    yield Set(staged_key(current.token, path), locked, text=copied)
    yield Set(
        staged_key(current.token, source), TOMBSTONE, text=f"Move 4: deletes old entry {source} in {current.token}"
    )
    opened = replace(entry, locked_until=None)
    yield SetIf(staged_key(current.token, path), opened, locked, text=f'Move 5: "unlocks" new entry {path}')


def upload(branch: str, path: str, address: str, content: str, *, lock_ticks: int | None = None) -> Steps[None]:
    """Upload Object."""
    token, entry = yield from get_open_entry(branch, path, "Upload 1", timed=lock_ticks is not None)
    if isinstance(entry, Entry):
        locked = yield from lock(token, path, entry, "Upload 2", lock_ticks)
        if locked is None:
            return
    yield Put(address, content, text=f"Upload 3: writes object {address}")
    staged = yield from lake.write_entry(branch, path, Entry(address, content))
    if staged and isinstance(entry, Entry):
        current = yield Get(branch_key(branch), text=f"Upload 5: checks whether {branch} still has {token}")
        if current is not None and current.token == token:
            yield Remove(entry.address, text=f"Upload 5: hard-deletes {entry.address}")


def delete(branch: str, path: str, *, locks: bool = True, lock_ticks: int | None = None) -> Steps[None]:
    """Delete Object. Without ``locks`` it only checks whether another operation has locked the entry."""
    token, entry = yield from get_open_entry(branch, path, "Delete 1", timed=lock_ticks is not None)
    if not isinstance(entry, Entry):
        return
    if locks:
        locked = yield from lock(token, path, entry, "Delete 2", lock_ticks)
        if locked is None:
            return
    key = staged_key(token, path)
    yield Set(key, TOMBSTONE, text=f"Delete 3: deletes staging entry {path} in {token}")
    current = yield Get(branch_key(branch), text=f"checks whether {branch} still has {token}")
    if current is not None and current.token == token:
        yield Remove(entry.address, text=f"Delete 4: hard-deletes {entry.address}")
    else:
        yield from lake.delete_path(branch, path)


def reset(branch: str, token: str | None) -> Steps[None]:
    """Reset a branch, or delete it if ``token`` is None: hard-delete the objects of entries that are not locked."""
    for dropped in (yield from lake.take_staging_away(branch, token)):
        folder = f"{STAGING}{dropped}/"
        for key, entry in (yield Scan(folder, text=f"reads what is staged in {dropped}")):
            if entry != TOMBSTONE and entry.locked_until is None:
                text = f"drops entry {key.removeprefix(folder)} of {dropped}, unless it was locked meanwhile"
                if (yield SetIf(key, TOMBSTONE, entry, text=text)):
                    yield Remove(entry.address, text=f"hard-deletes {entry.address}")
        yield Drop(folder, text=f"drops staging token {dropped}")


def revert(branch: str, path: str) -> Steps[None]:
    """Revert an object: drop its staged entry, and hard-delete its object unless the entry is locked."""
    current = yield Get(branch_key(branch), text=f"reads branch {branch}")
    if current is None:
        return
    key = staged_key(current.token, path)
    entry = yield Get(key, text=f"Revert: gets entry {path}")
    if isinstance(entry, Entry) and (
        yield DropIf(key, entry, text=f"Revert: drops entry {path}, if it did not change")
    ):
        again = yield Get(branch_key(branch), text=f"checks whether {branch} still has {current.token}")
        if again is not None and again.token == current.token and entry.locked_until is None:
            yield Remove(entry.address, text=f"Revert: hard-deletes {entry.address}")


def copy(branch: str, source: str, path: str, address: str, *, timed: bool = False) -> Steps[None]:
    """Copy through the S3 gateway: the store copies the data."""
    _, entry = yield from get_open_entry(branch, source, "Copy", timed=timed)
    if isinstance(entry, Entry):
        copied = yield CopyData(entry.address, address, text=f"copies object {entry.address} to {address}")
        if copied is not None:
            yield from lake.write_entry(branch, path, Entry(address, copied.content))


def link(branch: str, path: str, address: str, content: str) -> Steps[None]:
    """Link an uploaded object at the path that its address was signed for."""
    if (yield Head(address, text=f"Link: checks that object {address} exists")) is not None:
        yield from lake.write_entry(branch, path, Entry(address, content))


# -- combinations and scenarios

_STAGED = lake.lake({"A": "data"}, {"main": ("c0", "t1", {"a": "A"})})
_EMPTY = lake.lake({}, {"main": ("c0", "t1", {})})
Of = Callable[[int], Program]


def _reading(
    name: str,
    text: str,
    bound: Bound,
    *,
    lock_ticks: int | None = None,
    move_checks: bool = True,
    delete_locks: bool = True,
) -> Reading:
    def of(name: str, program: Of, *more: str) -> Part:
        return part(name, program, OBJECTS, STAGING, *more)

    def move_to(path: str) -> Of:
        return lambda n: lambda: move("main", "a", path, lock_ticks=lock_ticks, checks_lock=move_checks)

    def remove(path: str) -> Of:
        return lambda n: lambda: delete("main", path, locks=delete_locks, lock_ticks=lock_ticks)

    parts = (
        of("upload a", lambda n: lambda: upload("main", "a", f"N{n}", f"data {n}", lock_ticks=lock_ticks)),
        of("link a as A", lambda n: lambda: link("main", "a", "A", "data")),
        of("copy a to b", lambda n: lambda: copy("main", "a", "b", f"C{n}", timed=lock_ticks is not None)),
        of("move a to b", move_to("b")),
        of("move a to c", move_to("c")),
        of("delete a", remove("a")),
        of("delete b", remove("b")),
        of("revert a", lambda n: lambda: revert("main", "a")),
        of("commit", lambda n: lambda: lake.commit("main", f"d{n}", f"u{n}"), BRANCHES, COMMITS),
        of("reset", lambda n: lambda: reset("main", f"r{n}"), BRANCHES),
        of("delete branch", lambda n: lambda: reset("main", None), BRANCHES),
        lake.part_branch_from_main(),
    )
    background = () if lock_ticks is None else (clock(lock_ticks),)
    return Reading(name, text, {"empty": _EMPTY, "a staged": _STAGED}, parts, bound, lake.view, background=background)


FIXED = _reading("locks never expire", "Each operation takes the lock, and a lock never expires.", Bound(3, 3, 2))
TIMED = _reading(
    "timed locks", "A lock expires after some time, and an operation may take longer.", Bound(3, 3, 2), lock_ticks=1
)
UNLOCKED = _reading(
    "before the locks",
    "As in races 2 and 3: a delete does not take the lock, and a move ignores the lock of another move.",
    Bound(3, 3, 1),
    move_checks=False,
    delete_locks=False,
)

DESIGN = Design(
    5,
    "No copies",
    "No two entries share an address, so removing an entry also deletes its object. A move locks the entry.",
    (FIXED, TIMED, UNLOCKED),
    (
        case(
            FIXED,
            "a staged",
            "move a to b",
            "commit",
            "reset",
            name="commit-move",
            question="A path is moved while its branch is committed; then the branch is reset.",
            expected=kinds(Kind.COMMITTED_LOST, Kind.LEAKED),
            documented="5, Races and issues, 1",
            moral="The move writes an entry to the new staging token that the commit took from the old one. An "
            "uncommitted entry then points to a committed object, and the reset deletes that object.",
            shown_by=(
                ("move a to b", "Move 3: copies the entry to b in u2"),
                ("reset", "hard-deletes A"),
            ),
        ),
        case(
            UNLOCKED,
            "a staged",
            "move a to b",
            "delete a",
            name="delete-move",
            question="A path is moved and deleted at the same time. The delete reads the lock but does not take it.",
            expected=kinds(Kind.STAGED_LOST),
            documented="5, Races and issues, 2",
            moral="The move copies the entry between the delete's read of the lock and its hard delete.",
            shown_by=(
                ("delete a", "Delete 1: gets entry a"),
                ("move a to b", "Move 3: copies the entry to b"),
                ("delete a", "Delete 4: hard-deletes A"),
            ),
        ),
        case(
            FIXED,
            "a staged",
            "move a to b",
            "delete a",
            name="delete-move-locked",
            question="As `delete-move`, but the delete also takes the lock.",
            documented="5, Races and issues, 2",
            moral="Only one of the two operations gets the lock.",
        ),
        case(
            UNLOCKED,
            "a staged",
            "move a to b",
            "move a to c",
            "delete b",
            name="concurrent-move",
            question="A path is moved to two other paths at the same time, and one of these is deleted.",
            expected=kinds(Kind.STAGED_LOST),
            documented="5, Races and issues, 3",
            moral="Two entries point to one object, and the removal of one entry deletes it.",
            shown_by=(("move a to c", "Move 3"), ("delete b", "Delete 4: hard-deletes A")),
        ),
        case(
            FIXED,
            "a staged",
            "move a to b",
            "move a to c",
            "delete b",
            name="concurrent-move-locked",
            question="As `concurrent-move`, but a move begins only if the entry is not locked.",
            documented="5, Races and issues, 3",
            moral="The path no longer exists when the second move begins.",
        ),
        case(
            FIXED,
            "a staged",
            "move a to b",
            "delete a",
            crashes="move a to b",
            name="stale-lock",
            question="A move stops in the middle; then the path is deleted.",
            expected=kinds(Kind.BLOCKED),
            documented="5, Races and issues, 4",
            moral="No operation releases the lock, so all later operations wait for it.",
            shown_by=(("move a to b", 'Move 2: "locks" entry a'), ("move a to b", "crashes")),
        ),
        case(
            FIXED,
            "a staged",
            "move a to b",
            "move a to c",
            crashes="move a to b",
            name="stale-lock-move",
            question="A move stops in the middle; then the path is moved again.",
            expected=kinds(Kind.BLOCKED),
            documented="5, Races and issues, 3",
            moral="A permanently locked address can never be moved.",
            shown_by=(("move a to b", 'Move 2: "locks" entry a'), ("move a to b", "crashes")),
        ),
        case(
            FIXED,
            "a staged",
            "move a to b",
            "reset",
            crashes="move a to b",
            name="stale-lock-reset",
            question="A move stops in the middle; then the branch is reset.",
            expected=kinds(Kind.LEAKED),
            moral="The reset keeps the object of a locked entry, and drops the entry.",
            shown_by=(
                ("move a to b", 'Move 2: "locks" entry a'),
                ("move a to b", "crashes"),
                ("reset", "drops staging token t1"),
            ),
        ),
        case(
            TIMED,
            "a staged",
            "move a to b",
            "delete a",
            name="timed-lock",
            question="A lock expires during the move, and the path is deleted meanwhile.",
            expected=kinds(Kind.STAGED_LOST),
            documented="5, Races and issues, 4",
            moral="A lock that expires does not prove that no operation is running, so Delete-Move happens again.",
            shown_by=(
                ("move a to b", 'Move 2: "locks" entry a'),
                ("time", "time passes"),
                ("delete a", "Delete 4: hard-deletes A"),
            ),
        ),
        case(
            FIXED,
            "a staged",
            "upload a",
            "commit",
            name="upload-commit",
            question="A path is uploaded again while its branch is committed.",
            expected=kinds(Kind.LEAKED),
            documented="5, Upload",
            moral="As the document requires, the old object is kept if the staging token changed, because it may be "
            "committed. In this trace it is not.",
            shown_by=(("upload a", "Upload 5: checks whether main still has t1"),),
        ),
        case(
            FIXED,
            "a staged",
            "link a as A",
            "delete a",
            name="link-again",
            question="A client links an address again that it has linked before, while the path is deleted.",
            expected=kinds(Kind.STAGED_LOST),
            moral="The signature limits where an address may be used, but not how often.",
            shown_by=(("link a as A", "stages a = A"), ("delete a", "Delete 4: hard-deletes A")),
        ),
    ),
    picture="""\
entry a in t1 (locked) ----> object A <---- no other entry
      ^                         ^
move, upload, delete: lock      +-- upload, delete, revert, reset: delete A with its entry""",
    opens=(
        Open(
            "Object revert", "Modelled (`revert a`): the entry is dropped, and its object deleted unless it is locked."
        ),
        Open("Prefix revert", "Out: the same for each entry of the prefix, so it adds no new order of steps."),
        Open("Deleting a repository", "Out: its branches are deleted (modelled), and no user sees what follows."),
        Open("Copies in the S3 gateway", "Modelled as copies of the data. Base assumption 1 is not needed."),
        Open("Signed addresses", "Modelled: an address is linked at its own path only, but more than once."),
        Open("Time based locks", "Modelled as a reading of its own."),
    ),
)
