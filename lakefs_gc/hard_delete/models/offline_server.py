"""The lakeFS side of the accepted design: slices, link tokens, tracked copies, and the two lists of used addresses.

Objects are in slices, ``data/s<tick>/<name>``. ``links/<address>`` contains the tick until which an address can be
linked. ``copies/<address>`` records that an object was copied. No flow deletes an object. Upload, delete, commit and
reset are those of ``lake``, as in lakeFS today.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from lakefs_gc.hard_delete.models import lake
from lakefs_gc.hard_delete.models.lake import (
    BRANCHES,
    COMMITS,
    HEADS_ONLY,
    RETENTION,
    STAGING,
    Entries,
    Entry,
    branch_key,
    staged_key,
)
from lakefs_gc.hard_delete.steps import Await, Drop, Get, Now, Put, Recap, Scan, Set, Steps

LINKS = "links/"
COPIES = "copies/"
UPLOADS = "uploads/"
"""The uploads that a client of the store remembers. lakeFS does not know them."""
TOKEN_LIFETIME_TICKS = 1
_PAGES = ((1, "", "n"), (2, "n", ""))
"""The two pages of a listing of staged entries: number, first path, end."""


@dataclass(frozen=True)
class Ingredients:
    """The ingredients of the design, each of which can be removed.

    ``cutoff``: an object that is newer than a token's lifetime is never a candidate.
    ``order``: committed entries are read after staged entries.
    ``tracked_copies``: a copy that shares its object is recorded.
    ``copies_last``: the recorded copies are read after the staged entries.
    ``token_expiry``: an address can be linked only during its token's lifetime.
    ``source_read_again``: after a copy is recorded, it checks that its source is still staged (or the copy is one
    transaction).
    ``second_look``: everything in use is read again before the sweep.
    ``identical_listed``: a staged entry is listed even if its content equals the committed entry at its path. lakeFS
    omits such entries.
    """

    cutoff: bool = True
    order: bool = True
    tracked_copies: bool = True
    copies_last: bool = True
    token_expiry: bool = True
    source_read_again: bool = True
    second_look: bool = True
    identical_listed: bool = True

    def without(self, *names: str) -> Ingredients:
        """Return the design without some ingredients."""
        return replace(self, **dict.fromkeys(names, False))


# -- what users do


def get_physical_address(address: str, *, expires: bool) -> Steps[None]:
    """GetPhysicalAddress: the token can be used once, within its lifetime."""
    now = yield Now(text="reads the clock")
    until = now + TOKEN_LIFETIME_TICKS if expires else 10**9
    yield Set(LINKS + address, until, text=f"gets address {address}" + (f", valid to day {until}" if expires else ""))


def upload_to_address(address: str, content: str, *, expires: bool) -> Steps[None]:
    """A client gets an address and uploads directly to the store."""
    yield from get_physical_address(address, expires=expires)
    yield Put(address, content, text=f"uploads to {address}")
    yield Set(UPLOADS + address, "uploaded", text="has uploaded")


def link_uploaded(branch: str, path: str, address: str, content: str) -> Steps[bool]:
    """The same client requests to link its upload at any later time."""
    yield Await(UPLOADS + address, lambda done: done is not None, text="asks to link what was uploaded")
    return (yield from link(branch, path, address, content))


def link(branch: str, path: str, address: str, content: str) -> Steps[bool]:
    """LinkPhysicalAddress. Reply: whether the token was valid."""
    until = yield Get(LINKS + address, text=f"link: looks up the token of {address}")
    now = yield Now(text="link: reads the clock")
    if until is None or now > until:
        return False
    yield Drop(LINKS + address, text=f"link: uses up the token of {address}")
    return (yield from lake.write_entry(branch, path, Entry(address, content)))


def copy(branch: str, source: str, path: str, with_: Ingredients) -> Steps[bool]:
    """CopyObject of a staged object within its branch: a shallow copy. Reply: whether the copy was staged."""
    current = yield Get(branch_key(branch), text=f"reads branch {branch}")
    if current is None:
        return False
    key = staged_key(current.token, source)
    entry = yield Get(key, text=f"reads entry {source} in {current.token}")
    if not isinstance(entry, Entry):
        return False
    if with_.tracked_copies:
        yield Set(COPIES + entry.address, "copied", text=f"records that {entry.address} is copied")
        if with_.source_read_again:
            again = yield Get(branch_key(branch), text=f"checks whether {branch} still has {current.token}")
            if again is None or current.token not in again.tokens:
                return False
            if (yield Get(key, text=f"checks whether {source} is still staged")) != entry:
                return False
    yield Recap(f"{path} is {source}", entry)
    return (yield from lake.write_entry(branch, path, entry))


def rename(branch: str, source: str, path: str, with_: Ingredients) -> Steps[None]:
    """CopyObject and DeleteObject."""
    copied = yield from copy(branch, source, path, with_)
    yield Recap(f"{path} was {source}", copied)
    if copied:
        yield from lake.delete_path(branch, source)


# -- the requests of the collector


def prepare_uncommitted(with_: Ingredients, caller: Hashable = None) -> Steps[frozenset[str]]:
    """PrepareUncommittedForGC. Reply: the addresses that are staged, or were copied.

    A branch is read once, and then its staging areas page by page, so both can be out of date. If several staging areas
    contain a path, the newest counts. An entry that a running commit has read, and that is changed meanwhile, is
    therefore not listed. ``caller``: everything that the caller remembers.
    """
    addresses: frozenset[str] = frozenset()
    if with_.tracked_copies and not with_.copies_last:
        addresses |= yield from _copies()
    names = [key for key, _ in (yield Scan(BRANCHES, text="prepare: lists the branches"))]
    for number, key in enumerate(names):
        yield Recap("branch", (caller, tuple(names[number:]), addresses))
        name = key.removeprefix(BRANCHES)
        branch = yield Get(key, text=f"prepare: reads branch {name}")
        if branch is None:
            continue
        for page, first, end in _PAGES:
            yield Recap(f"page {page}", (caller, tuple(names[number:]), branch, addresses))
            entries: dict[str, Any] = {}
            for token in branch.tokens:
                folder = f"{STAGING}{token}/"
                text = f"prepare: reads page {page} of {token} of {name}"
                for path, entry in (yield Scan(folder, first, end, text=text)):
                    entries.setdefault(path.removeprefix(folder), entry)
            committed: Entries = ()
            if not with_.identical_listed:
                read = f"prepare: reads commit {branch.commit}"
                committed = (yield Get(COMMITS + branch.commit, text=read)).entries
            same = {(path, entry.content) for path, entry in committed}
            listed = {path: entry for path, entry in entries.items() if isinstance(entry, Entry)}
            addresses |= {entry.address for path, entry in listed.items() if (path, entry.content) not in same}
    yield Recap("pages", (caller, addresses))
    if with_.tracked_copies and with_.copies_last:
        addresses |= yield from _copies()
    return addresses


def _copies() -> Steps[set[str]]:
    rows = yield Scan(COPIES, text="prepare: reads the tracked copies")
    return {key.removeprefix(COPIES) for key, _ in rows}


def active_addresses() -> Steps[frozenset[str]]:
    """Reply: the addresses of all active commits: the heads of branches with retention rules, otherwise all commits."""
    rule = yield Get(RETENTION, text="reads the retention rules")
    if rule != HEADS_ONLY:
        commits = [commit for _, commit in (yield Scan(COMMITS, text="reads all commits"))]
    else:
        heads = {branch.commit for _, branch in (yield Scan(BRANCHES, text="lists the active commits"))}
        commits = []
        for head in sorted(heads):
            commits.append((yield Get(COMMITS + head, text=f"reads commit {head}")))
    return frozenset(entry.address for commit in commits for _, entry in commit.entries)
