"""The model of lakeFS that the designs share: branches with staging tokens, entries, commits, asynchronous drop.

It works like lakeFS (pkg/graveler). A write goes to the branch's staging token and reads the branch again afterwards.
If the token changed meanwhile, the write is repeated. A commit first gives the branch a new token and seals the old
one. It then reads the sealed entries, writes the commit, moves the branch, and drops the sealed tokens.

Keys: ``branches/<name>``, ``staging/<token>/<path>``, ``commits/<id>`` and ``settings/retention``. The retention key is
``heads`` if only the commits that branches point to are kept, and is absent if all commits are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lakefs_gc.hard_delete.model import Operation, Part, View
from lakefs_gc.hard_delete.steps import Drop, DropIf, Get, Program, Put, Recap, Scan, Set, SetIf, Steps
from lakefs_gc.hard_delete.world import Object, Table, World

TOMBSTONE = "tombstone"
RETENTION = "settings/retention"
HEADS_ONLY = "heads"
STAGING = "staging/"
COMMITS = "commits/"
BRANCHES = "branches/"
_TRIES = 2


@dataclass(frozen=True)
class Branch:
    """A branch. ``sealed``: tokens that a running or failed commit took from the branch, newest first."""

    commit: str
    token: str
    sealed: tuple[str, ...] = ()

    @property
    def tokens(self) -> tuple[str, ...]:
        return (self.token, *self.sealed)

    def __str__(self) -> str:
        sealed = f", sealed {' '.join(self.sealed)}" if self.sealed else ""
        return f"at {self.commit}, staging {self.token}{sealed}"


@dataclass(frozen=True)
class Entry:
    """An entry. ``locked_until`` in ticks: only design 5 (no copies) locks entries."""

    address: str
    content: str
    locked_until: int | None = None

    def __str__(self) -> str:
        return self.address + (" (locked)" if self.locked_until is not None else "")


Entries = tuple[tuple[str, Entry], ...]
"""The content of a commit: path and entry, by path."""


@dataclass(frozen=True)
class Commit:
    """A commit. ``parent``: the commit before it, or empty."""

    parent: str
    entries: Entries

    def __str__(self) -> str:
        return listed(self.entries)


def branch_key(branch: str) -> str:
    return BRANCHES + branch


def staged_key(token: str, path: str) -> str:
    return f"{STAGING}{token}/{path}"


def lake(
    objects: Mapping[str, Object | str],
    branches: Mapping[str, tuple[str, str, Mapping[str, str]]],
    commits: Mapping[str, tuple[str, Mapping[str, str]]] | None = None,
    more: Mapping[str, Any] | None = None,
) -> World:
    """Return an initial world.

    ``objects`` maps an address to its content. ``branches`` maps a name to (commit, staging token, path to address).
    ``commits`` maps an id to (parent, path to address); an empty ``c0`` is added. ``more``: further keys of the store.
    """
    stored = {address: Object(o) if isinstance(o, str) else o for address, o in objects.items()}

    def entry(address: str) -> Entry:
        return Entry(address, stored[address].content if address in stored else "?")

    kv: dict[str, Any] = dict(more or {})
    for commit_id, (parent, paths) in {"c0": ("", {}), **(commits or {})}.items():
        entries = tuple((path, entry(address)) for path, address in sorted(paths.items()))
        kv[COMMITS + commit_id] = Commit(parent, entries)
    for name, (commit_id, token, staged) in branches.items():
        kv[branch_key(name)] = Branch(commit_id, token)
        for path, address in staged.items():
            kv[staged_key(token, path)] = entry(address)
    return World(Table(kv), Table(stored))


def view(world: World) -> View:
    """Return what users see: each branch's staged entries, and the entries of its retained commits."""
    staged: dict[str, str] = {}
    committed: dict[str, tuple[str, str]] = {}
    heads_only = world.kv.get(RETENTION) == HEADS_ONLY
    for key, branch in world.kv.scan(BRANCHES):
        commit_id = branch.commit
        while commit_id:
            commit: Any = world.kv.get(COMMITS + commit_id)
            committed |= {f"{commit_id}/{path}": (entry.address, entry.content) for path, entry in commit.entries}
            commit_id = "" if heads_only else commit.parent
        changes: dict[str, Any] = {}
        for token in reversed(branch.tokens):
            folder = f"{STAGING}{token}/"
            changes |= {name.removeprefix(folder): value for name, value in world.kv.scan(folder)}
        name = key.removeprefix(BRANCHES)
        staged |= {f"{name}/{path}": e.address for path, e in changes.items() if e != TOMBSTONE}
    commits = () if heads_only else world.kv.scan(COMMITS)
    return View(staged, committed, frozenset(entry.address for _, commit in commits for _, entry in commit.entries))


# -- writing to a branch


def write_entry(branch: str, path: str, value: Any, before: Callable[[str], Steps[Any]] | None = None) -> Steps[bool]:
    """Stage an entry, or a tombstone. Reply: whether it was staged.

    ``before``: the steps that a design takes first, with the staging token, at each attempt.
    """
    for _ in range(_TRIES):
        current = yield Get(branch_key(branch), text=f"reads branch {branch}")
        if current is None:
            return False
        if before is not None and (yield from before(current.token)) is False:
            return False
        yield Set(staged_key(current.token, path), value, text=f"stages {path} = {value} in {current.token}")
        again = yield Get(branch_key(branch), text=f"checks whether {branch} still has {current.token}")
        if again is not None and again.token == current.token:
            return True
    return False


def upload(branch: str, path: str, address: str, content: str) -> Steps[bool]:
    """Write an object, then its entry."""
    yield Put(address, content, text=f"writes object {address}")
    return (yield from write_entry(branch, path, Entry(address, content)))


def unstage(branch: str, path: str, before: Callable[[Entry], Steps[Any]] | None = None) -> Steps[Entry | None]:
    """Replace a staged entry by a tombstone if no other operation changed it meanwhile.

    Reply: the entry if it was in the branch's staging token and the branch still had this token afterwards, because
    then no commit can contain the entry. Otherwise None. ``before``: the steps that a design takes first.
    """
    for _ in range(_TRIES):
        current = yield Get(branch_key(branch), text=f"reads branch {branch}")
        if current is None:
            return None
        key = staged_key(current.token, path)
        entry = yield Get(key, text=f"reads entry {path} in {current.token}")
        if entry is None or entry == TOMBSTONE:
            return None
        if before is not None and (yield from before(entry)) is False:
            return None
        if not (yield SetIf(key, TOMBSTONE, entry, text=f"stages a tombstone for {path} in {current.token}")):
            continue
        again = yield Get(branch_key(branch), text=f"checks whether {branch} still has {current.token}")
        if again is not None and again.token == current.token:
            return entry if isinstance(entry, Entry) else None
    return None


def delete_path(branch: str, path: str) -> Steps[None]:
    """Delete a staged or committed path from a branch, as lakeFS does today."""
    yield from write_entry(branch, path, TOMBSTONE)


# -- commit, reset, new branches


def new_token(branch: str, token: str, *, seal: bool) -> Steps[Branch | None]:
    """Give a branch another staging token. Reply: the branch before the change, or None if the change failed."""
    for _ in range(_TRIES):
        current = yield Get(branch_key(branch), text=f"reads branch {branch}")
        if current is None:
            return None
        changed = replace(current, token=token, sealed=current.tokens if seal else ())
        what = f"changes the staging token to {token}"
        if (yield SetIf(branch_key(branch), changed, current, text=what + (", seals the old one" if seal else ""))):
            return current if isinstance(current, Branch) else None
    return None


def write_commit(branch: str, commit_id: str) -> Steps[tuple[Branch, Entries] | None]:
    """Commit the sealed entries and move the branch. Reply: the branch before the move, and the committed entries."""
    for _ in range(_TRIES):
        current = yield Get(branch_key(branch), text=f"reads branch {branch}")
        if current is None:
            return None
        base = yield Get(COMMITS + current.commit, text=f"reads commit {current.commit}")
        entries: dict[str, Any] = dict(base.entries)
        for token in reversed(current.sealed):
            folder = f"{STAGING}{token}/"
            rows = yield Scan(folder, text=f"reads what is staged in {token}")
            entries |= {key.removeprefix(folder): value for key, value in rows}
        content = tuple((path, value) for path, value in sorted(entries.items()) if value != TOMBSTONE)
        written = Commit(current.commit, content)
        yield Set(COMMITS + commit_id, written, text=f"writes commit {commit_id}: {listed(content)}")
        moved = Branch(commit_id, current.token)
        if (yield SetIf(branch_key(branch), moved, current, text=f"moves {branch} to commit {commit_id}")):
            return current, content
    return None


def commit(branch: str, commit_id: str, token: str) -> Steps[tuple[Branch, Entries] | None]:
    """Commit a branch. Reply: what ``write_commit`` replies."""
    if (yield from new_token(branch, token, seal=True)) is None:
        return None
    yield Recap(f"{commit_id}: sealed", None)
    done = yield from write_commit(branch, commit_id)
    yield Recap(f"{commit_id}: committed", done)
    if done is not None:
        for sealed in done[0].sealed:
            yield Drop(f"{STAGING}{sealed}/", text=f"drops the sealed staging token {sealed}")
    return done


def take_branch_away(branch: str, *, conditional: bool = True) -> Steps[Branch | None]:
    """Delete a branch. Reply: the branch as it was read, or None.

    Without ``conditional`` it is deleted even if a commit has changed it meanwhile.
    """
    for _ in range(_TRIES):
        before = yield Get(branch_key(branch), text=f"reads branch {branch}")
        if not isinstance(before, Branch):
            return None
        if not conditional:
            yield Drop(branch_key(branch), text=f"deletes branch {branch}")
            return before
        if (yield DropIf(branch_key(branch), before, text=f"deletes branch {branch}, if it did not change")):
            return before
    return None


def take_staging_away(branch: str, token: str | None, *, conditional: bool = True) -> Steps[tuple[str, ...]]:
    """Reset a branch to a new token, or delete it if ``token`` is None. Reply: the tokens to drop."""
    if token is not None:
        before = yield from new_token(branch, token, seal=False)
    else:
        before = yield from take_branch_away(branch, conditional=conditional)
    return before.tokens if before else ()


def reset(branch: str, token: str | None) -> Steps[None]:
    """Reset or delete a branch as lakeFS does today: drop the entries, keep the objects."""
    tokens = yield from take_staging_away(branch, token, conditional=False)
    yield Recap(f"{branch} has {token}", tokens)
    for dropped in tokens:
        yield Drop(f"{STAGING}{dropped}/", text=f"drops staging token {dropped}")


def create_branch(branch: str, commit_id: str, token: str) -> Steps[None]:
    """Create a branch at a commit. lakeFS does not check whether the commit has expired."""
    yield SetIf(
        branch_key(branch), Branch(commit_id, token), None, text=f"creates branch {branch} at commit {commit_id}"
    )


def branch_from(source: str, branch: str, token: str) -> Steps[None]:
    """Create a branch at the head of another branch."""
    current = yield Get(branch_key(source), text=f"reads branch {source}")
    if current is not None:
        yield from create_branch(branch, current.commit, token)


# -- parts of combinations


def part(name: str, program: Callable[[int], Program], *may_write: str, at_most_ticks: int | None = None) -> Part:
    """Return a part. ``program`` returns the program of its run with a number."""
    return Part(name, lambda number: (Operation(name, program(number), may_write, at_most_ticks),))


def part_branch_from_main(at_most_ticks: int | None = None) -> Part:
    """Return the creation of a branch at the head of main, which keeps the head's entries visible without main."""
    return part(
        "branch",
        lambda number: lambda: branch_from("main", f"new{number}", f"n{number}"),
        BRANCHES,
        at_most_ticks=at_most_ticks,
    )


def listed(entries: Entries) -> str:
    """Return the content of a commit as text for a trace."""
    return ", ".join(f"{path} = {entry.address}" for path, entry in entries) or "nothing"
