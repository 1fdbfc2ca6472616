"""Design 5: no two entries share an address, so the operation that removes an entry deletes its object.

Entries can be locked (SetIf). A lock protects its entry's object from deletion, and excludes other operations. A lock
never expires, or with ``lock_ticks`` expires after that time. An address is signed for one path and cannot be linked at
another path. A copy copies the data. A flow that reads and then deletes, deletes only entries of the branch's staging
token.
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


def copy(branch: str, source: str, path: str, address: str) -> Steps[None]:
    """Copy through the S3 gateway: the store copies the data."""
    _, entry = yield from get_open_entry(branch, source, "Copy", timed=False)
    if isinstance(entry, Entry):
        copied = yield CopyData(entry.address, address, text=f"copies object {entry.address} to {address}")
        if copied is not None:
            yield from lake.write_entry(branch, path, Entry(address, copied.content))


def link(branch: str, path: str, address: str, content: str, *, signed_for: str) -> Steps[None]:
    """Link an uploaded object, only at the path that its address was signed for."""
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
    "No two entries share an address, so removing an entry also deletes its object. A move locks the entry.",
    (
        Scenario(
            "commit-move",
            "A path is moved while its branch is committed; then the branch is reset.",
            _STAGED,
            (_move(), _commit(), _reset()),
            lake.view,
            expected=kinds(Kind.COMMITTED_LOST, Kind.LEAKED),
            documented="5, Races and issues, 1",
            moral="The move writes an entry to the new staging token that the commit took from the old one. An "
            "uncommitted entry then points to a committed object, and the reset deletes that object.",
        ),
        Scenario(
            "delete-move",
            "A path is moved and deleted at the same time. The delete reads the lock but does not take it.",
            _STAGED,
            (_delete(locks=False), _move()),
            lake.view,
            expected=kinds(Kind.STAGED_LOST),
            documented="5, Races and issues, 2",
            moral="A complete move fits between the read of the lock and the delete.",
        ),
        Scenario(
            "delete-move-locked",
            "As `delete-move`, but the delete also takes the lock.",
            _STAGED,
            (_delete(), _move()),
            lake.view,
            documented="5, Races and issues, 2",
            moral="Only one of the two operations gets the lock.",
        ),
        Scenario(
            "concurrent-move",
            "A path is moved to two other paths at the same time, and one of these is deleted.",
            _STAGED,
            (_move("b", checks_lock=False), _move("c", checks_lock=False), _delete("b")),
            lake.view,
            expected=kinds(Kind.STAGED_LOST),
            documented="5, Races and issues, 3",
            moral="Two entries point to one object, and the removal of one entry deletes it.",
        ),
        Scenario(
            "concurrent-move-locked",
            "As `concurrent-move`, but a move begins only if the entry is not locked.",
            _STAGED,
            (_move("b"), _move("c"), _delete("b")),
            lake.view,
            documented="5, Races and issues, 3",
            moral="The path no longer exists when the second move begins.",
        ),
        Scenario(
            "stale-lock",
            "A move stops in the middle; then the path is deleted.",
            _STAGED,
            (_move(), _delete()),
            lake.view,
            crashes=1,
            expected=kinds(Kind.BLOCKED, Kind.LEAKED),
            documented="5, Races and issues, 4",
            moral="No operation releases the lock, so all later operations wait for it.",
        ),
        Scenario(
            "stale-lock-reset",
            "A move stops in the middle; then the branch is reset.",
            _STAGED,
            (_move(), _reset()),
            lake.view,
            crashes=1,
            expected=kinds(Kind.LEAKED),
            moral="The reset keeps the object of a locked entry, and drops the entry.",
        ),
        Scenario(
            "timed-lock",
            "The lock expires after a day, and the move takes longer. The path is deleted meanwhile.",
            _STAGED,
            (_move(lock_ticks=1), _delete(lock_ticks=1), clock(2)),
            lake.view,
            expected=kinds(Kind.STAGED_LOST),
            documented="5, Races and issues, 4",
            moral="A lock that expires does not prove that no operation is running, so Delete-Move happens again.",
        ),
        Scenario(
            "timed-lock-crash",
            "The lock expires after a day. The move crashes.",
            _STAGED,
            (replace(_move(lock_ticks=1), at_most_ticks=0), replace(_delete(lock_ticks=1), at_most_ticks=0), clock(2)),
            lake.view,
            crashes=1,
            expected=kinds(Kind.STAGED_LOST, Kind.LEAKED),
            documented="5, Races and issues, 4",
            moral="The delete is no longer blocked. But the move had written its second entry before it crashed, and "
            "the delete removes the object of both entries.",
        ),
        Scenario(
            "upload-delete",
            "A path is uploaded again and deleted at the same time.",
            _STAGED,
            (_operation("upload a", lambda: upload("main", "a", "B", "new data")), _delete()),
            lake.view,
        ),
        Scenario(
            "upload-commit",
            "A path is uploaded again while its branch is committed.",
            _STAGED,
            (_operation("upload a", lambda: upload("main", "a", "B", "new data")), _commit()),
            lake.view,
            expected=kinds(Kind.LEAKED),
            documented="5, Upload",
            moral="As the document requires, the old object is kept if the staging token changed, because it may be "
            "committed. In this trace it is not.",
        ),
        Scenario(
            "upload-delete-branch",
            "A branch is deleted while an object is uploaded to it.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (
                _operation("upload a", lambda: upload("main", "a", "B", "new data")),
                _operation("delete branch", lambda: reset("main", None), BRANCHES),
            ),
            lake.view,
            expected=kinds(Kind.LEAKED),
            moral="The object exists before its entry.",
        ),
        Scenario(
            "copy-delete",
            "A path is copied and deleted at the same time.",
            _STAGED,
            (_operation("copy a to b", lambda: copy("main", "a", "b", "B")), _delete()),
            lake.view,
        ),
        Scenario(
            "link-again",
            "A client links its object, deletes the path, and links the object again.",
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
            lake.view,
            expected=kinds(Kind.STAGED_LOST),
            moral="The signature limits where an address may be used, but not how often.",
        ),
    ),
)
