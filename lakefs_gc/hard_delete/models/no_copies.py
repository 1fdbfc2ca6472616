"""Design 5: no two entries share an address, so whoever removes an entry deletes its object.

Entries can be locked (SetIf): a lock keeps its entry's object from being deleted, and others away. A lock is for ever,
or with ``lock_ticks`` until its time is up. Addresses are signed for one path, so that nobody can link them elsewhere;
a copy copies the data. Where a flow reads and then deletes, it deletes only what was in the branch's staging token.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
from lakefs_gc.hard_delete.steps import (
    OBJECTS,
    Await,
    CopyData,
    Drop,
    Get,
    Now,
    Program,
    Put,
    Remove,
    Scan,
    Set,
    SetIf,
    Steps,
)
from lakefs_gc.hard_delete.world import World

FOR_EVER = 10**9
_TRIES = 3


def _is_open(entry: Any) -> bool:
    return not isinstance(entry, Entry) or entry.locked_until is None


def get_open_entry(branch: str, path: str, number: str, *, timed: bool, waits: bool = True) -> Steps[tuple[str, Any]]:
    """Get an entry that nobody has locked. Reply: the staging token, and the entry.

    ``timed``: locks end, so what the clock says is asked, once; an operation that meets a lock before that gives up.
    ``waits``: without, locks of others are not looked at.
    """
    current = yield Get(branch_key(branch), says=f"reads branch {branch}")
    if current is None:
        return "", None
    key, says = staged_key(current.token, path), f"{number}: gets entry {path}"
    if timed or not waits:
        entry = yield Get(key, says=says)
        if timed and not _is_open(entry) and (yield Now(says="looks at the clock")) < entry.locked_until:
            return current.token, None
    else:
        entry = yield Await(key, _is_open, says=f"{says}, once it is not locked")
    return current.token, entry


def lock(token: str, path: str, entry: Entry, number: str, lock_ticks: int | None) -> Steps[Entry | None]:
    """Lock an entry. Reply: the locked entry, or None if it was changed meanwhile."""
    until = FOR_EVER if lock_ticks is None else (yield Now(says="looks at the clock")) + lock_ticks
    locked = replace(entry, locked_until=until)
    done = yield SetIf(staged_key(token, path), locked, entry, says=f'{number}: "locks" entry {path}')
    return locked if done else None


def move(
    branch: str, source: str, path: str, *, lock_ticks: int | None = None, checks_lock: bool = True
) -> Steps[None]:
    """Move operation. Without ``checks_lock`` it takes a lock that another move holds for its own."""
    token, entry = yield from get_open_entry(branch, source, "Move 1", timed=lock_ticks is not None, waits=checks_lock)
    if not isinstance(entry, Entry):
        return
    if checks_lock or entry.locked_until is None:
        locked = yield from lock(token, source, entry, "Move 2", lock_ticks)
        if locked is None:
            return
    else:
        locked = entry
    current = yield Get(branch_key(branch), says=f"reads branch {branch}")
    copied = f"Move 3: copies the entry to {path} in {current.token}"
    yield Set(staged_key(current.token, path), locked, says=copied)
    yield Set(
        staged_key(current.token, source), TOMBSTONE, says=f"Move 4: deletes old entry {source} in {current.token}"
    )
    opened = replace(entry, locked_until=None)
    yield SetIf(staged_key(current.token, path), opened, locked, says=f'Move 5: "unlocks" new entry {path}')


def upload(branch: str, path: str, address: str, content: str, *, lock_ticks: int | None = None) -> Steps[None]:
    """Upload Object."""
    token, entry = yield from get_open_entry(branch, path, "Upload 1", timed=lock_ticks is not None)
    if isinstance(entry, Entry):
        locked = yield from lock(token, path, entry, "Upload 2", lock_ticks)
        if locked is None:
            return
    yield Put(address, content, says=f"Upload 3: writes object {address}")
    staged = yield from lake.write_entry(branch, path, Entry(address, content))
    if staged and isinstance(entry, Entry):
        current = yield Get(branch_key(branch), says=f"Upload 5: looks whether {branch} still has {token}")
        if current is not None and current.token == token:
            yield Remove(entry.address, says=f"Upload 5: hard-deletes {entry.address}")


def delete(branch: str, path: str, *, locks: bool = True, lock_ticks: int | None = None) -> Steps[None]:
    """Delete Object. Without ``locks`` it only looks whether somebody else has locked the entry."""
    token, entry = yield from get_open_entry(branch, path, "Delete 1", timed=lock_ticks is not None)
    if not isinstance(entry, Entry):
        return
    if locks:
        locked = yield from lock(token, path, entry, "Delete 2", lock_ticks)
        if locked is None:
            return
    key = staged_key(token, path)
    yield Set(key, TOMBSTONE, says=f"Delete 3: deletes staging entry {path} in {token}")
    current = yield Get(branch_key(branch), says=f"looks whether {branch} still has {token}")
    if current is not None and current.token == token:
        yield Remove(entry.address, says=f"Delete 4: hard-deletes {entry.address}")
    else:
        yield from lake.delete_path(branch, path)


def reset(branch: str, token: str | None) -> Steps[None]:
    """Reset, or with None delete, a branch: what is not locked is hard-deleted."""
    for dropped in (yield from lake.take_staging_away(branch, token)):
        folder = f"{STAGING}{dropped}/"
        for key, entry in (yield Scan(folder, says=f"reads what is staged in {dropped}")):
            if entry != TOMBSTONE and entry.locked_until is None:
                says = f"drops entry {key.removeprefix(folder)} of {dropped}, if nobody locked it meanwhile"
                if (yield SetIf(key, TOMBSTONE, entry, says=says)):
                    yield Remove(entry.address, says=f"hard-deletes {entry.address}")
        yield Drop(folder, says=f"drops staging token {dropped}")


def copy(branch: str, source: str, path: str, address: str) -> Steps[None]:
    """A copy by the S3 gateway: the store copies the data."""
    _, entry = yield from get_open_entry(branch, source, "Copy", timed=False)
    if isinstance(entry, Entry):
        made = yield CopyData(entry.address, address, says=f"copies object {entry.address} to {address}")
        if made is not None:
            yield from lake.write_entry(branch, path, Entry(address, made.content))


def link(branch: str, path: str, address: str, content: str, *, signed_for: str) -> Steps[None]:
    """Link an uploaded object: only at the path that its address was signed for."""
    if path == signed_for:
        yield from lake.write_entry(branch, path, Entry(address, content))


# -- scenarios

_WRITES = (OBJECTS, STAGING)


def _operation(name: str, program: Program, *more: str, at_most_ticks: int | None = None) -> Operation:
    return Operation(name, program, (*_WRITES, *more), at_most_ticks)


def _move(path: str = "b", *, lock_ticks: int | None = None, checks_lock: bool = True) -> Operation:
    return _operation(
        f"move a to {path}", lambda: move("main", "a", path, lock_ticks=lock_ticks, checks_lock=checks_lock)
    )


def _delete(path: str = "a", *, locks: bool = True, lock_ticks: int | None = None) -> Operation:
    return _operation(f"delete {path}", lambda: delete("main", path, locks=locks, lock_ticks=lock_ticks))


def _commit() -> Operation:
    return _operation("commit", lambda: lake.commit("main", "c1", "t2"), BRANCHES, COMMITS)


def _reset() -> Operation:
    return _operation("reset", lambda: reset("main", "t3"), BRANCHES)


_STAGED: World = lake.lake({"A": "data"}, {"main": ("c0", "t1", {"a": "A"})})
DESIGN = Design(
    5,
    "No copies",
    "No two entries share an address, so that an entry that goes takes its object along; a move locks the entry.",
    (
        Scenario(
            "commit-move",
            "A path is moved while its branch is committed; then the branch is reset.",
            _STAGED,
            (_move(), _commit(), _reset()),
            lake.look,
            expected=kinds(Kind.COMMITTED_LOST, Kind.LEAKED),
            documented="5, Races and issues, 1",
            moral="The move writes to the new staging token what the commit took from the old one: an uncommitted "
            "entry points to a committed object, and the reset deletes it.",
        ),
        Scenario(
            "delete-move",
            "A path is moved and deleted at once; the delete only looks at the lock.",
            _STAGED,
            (_delete(locks=False), _move()),
            lake.look,
            expected=kinds(Kind.STAGED_LOST),
            documented="5, Races and issues, 2",
            moral="Between the look and the delete there is time for a whole move.",
        ),
        Scenario(
            "delete-move-locked",
            "The same, and the delete locks too.",
            _STAGED,
            (_delete(), _move()),
            lake.look,
            documented="5, Races and issues, 2",
            moral="One of the two gets the lock.",
        ),
        Scenario(
            "concurrent-move",
            "A path is moved to two places at once, and one of them is deleted.",
            _STAGED,
            (_move("b", checks_lock=False), _move("c", checks_lock=False), _delete("b")),
            lake.look,
            expected=kinds(Kind.STAGED_LOST),
            documented="5, Races and issues, 3",
            moral="Two entries point to one object, and one of them takes it along.",
        ),
        Scenario(
            "concurrent-move-locked",
            "The same, and a move begins only without a lock.",
            _STAGED,
            (_move("b"), _move("c"), _delete("b")),
            lake.look,
            documented="5, Races and issues, 3",
            moral="The second move finds the path gone.",
        ),
        Scenario(
            "stale-lock",
            "A move stops in the middle; then the path is deleted.",
            _STAGED,
            (_move(), _delete()),
            lake.look,
            crashes=1,
            expected=kinds(Kind.BLOCKED, Kind.LEAKED),
            documented="5, Races and issues, 4",
            moral="Nobody opens the lock, and everybody waits for it.",
        ),
        Scenario(
            "stale-lock-reset",
            "A move stops in the middle; then the branch is reset.",
            _STAGED,
            (_move(), _reset()),
            lake.look,
            crashes=1,
            expected=kinds(Kind.LEAKED),
            moral="The reset leaves a locked entry's object alone, and drops the entry.",
        ),
        Scenario(
            "timed-lock",
            "The lock ends after a day, and the move is slower than that; the path is deleted meanwhile.",
            _STAGED,
            (_move(lock_ticks=1), _delete(lock_ticks=1), clock(2)),
            lake.look,
            expected=kinds(Kind.STAGED_LOST),
            documented="5, Races and issues, 4",
            moral="A lock that ends by itself no longer proves that nobody is at work: Delete-Move is back.",
        ),
        Scenario(
            "timed-lock-crash",
            "The lock ends after a day; the move stops in the middle.",
            _STAGED,
            (replace(_move(lock_ticks=1), at_most_ticks=0), replace(_delete(lock_ticks=1), at_most_ticks=0), clock(2)),
            lake.look,
            crashes=1,
            expected=kinds(Kind.STAGED_LOST, Kind.LEAKED),
            documented="5, Races and issues, 4",
            moral="The delete is not blocked any more. But the move had made its second entry when it stopped, and "
            "the delete takes the object of both.",
        ),
        Scenario(
            "upload-delete",
            "A path is uploaded again and deleted at once.",
            _STAGED,
            (_operation("upload a", lambda: upload("main", "a", "B", "new data")), _delete()),
            lake.look,
        ),
        Scenario(
            "upload-commit",
            "A path is uploaded again while its branch is committed.",
            _STAGED,
            (_operation("upload a", lambda: upload("main", "a", "B", "new data")), _commit()),
            lake.look,
            expected=kinds(Kind.LEAKED),
            documented="5, Upload",
            moral="The old object is left alone when the staging token was changed, as the document has it: it may be "
            "committed. Here it is not.",
        ),
        Scenario(
            "upload-delete-branch",
            "A branch is deleted while an object is uploaded to it.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (
                _operation("upload a", lambda: upload("main", "a", "B", "new data")),
                _operation("delete branch", lambda: reset("main", None), BRANCHES),
            ),
            lake.look,
            expected=kinds(Kind.LEAKED),
            moral="The object is there before its entry.",
        ),
        Scenario(
            "copy-delete",
            "A path is copied and deleted at once.",
            _STAGED,
            (_operation("copy a to b", lambda: copy("main", "a", "b", "B")), _delete()),
            lake.look,
        ),
        Scenario(
            "link-again",
            "A client links its object, deletes the path, and links the object once more.",
            lake.lake({"A": "data"}, {"main": ("c0", "t1", {})}),
            (
                _operation(
                    "client",
                    one_after_the_other(
                        lambda: link("main", "a", "A", "data", signed_for="a"),
                        lambda: delete("main", "a"),
                        lambda: link("main", "a", "A", "data", signed_for="a"),
                    ),
                ),
            ),
            lake.look,
            expected=kinds(Kind.STAGED_LOST),
            moral="The signature says where an address may be used, and not how often.",
        ),
    ),
)
