"""The accepted design, on the side of lakeFS: slices, link tokens, tracked copies, and the two lists of what is in use.

Objects lie in slices, ``data/s<tick>/<name>``. ``links/<address>`` says until when an address can be linked,
``copies/<address>`` that a copy was made of it. No flow deletes an object: upload, delete, commit and reset are
``lake``'s, as lakeFS has them today.
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
"""The uploads that a client of the store remembers; lakeFS does not know them."""
TOKEN_LIFETIME_TICKS = 1
_PAGES = ((1, "", "n"), (2, "n", ""))
"""A listing of what is staged takes two pages: number, first path, end."""


@dataclass(frozen=True)
class Ingredients:
    """The ingredients of the design, each of which can be removed.

    ``cutoff``: what is younger than a token's lifetime is never a candidate. ``order``: what is committed is read
    after what is staged. ``tracked_copies``: a copy that shares its object is noted. ``copies_last``: the notes are
    read after what is staged. ``token_expiry``: an address can only be linked for its lifetime.
    ``source_read_again``: a copy makes sure, after it was noted, that its source is still staged (or does all in one
    transaction). ``second_look``: everything in use is read again before the sweep. ``identical_listed``: what is
    staged is listed even if it looks like what is committed at its path; lakeFS leaves it out.
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
        """The design with some taken out."""
        return replace(self, **dict.fromkeys(names, False))


# -- what users do


def get_physical_address(address: str, *, expires: bool) -> Steps[None]:
    """GetPhysicalAddress: the token is single-use, and valid for a time."""
    now = yield Now(says="looks at the clock")
    until = now + TOKEN_LIFETIME_TICKS if expires else 10**9
    yield Set(LINKS + address, until, says=f"gets address {address}" + (f", valid to day {until}" if expires else ""))


def upload_to_address(address: str, content: str, *, expires: bool) -> Steps[None]:
    """A client gets an address, and uploads to the store itself."""
    yield from get_physical_address(address, expires=expires)
    yield Put(address, content, says=f"uploads to {address}")
    yield Set(UPLOADS + address, "uploaded", says="has uploaded")


def link_uploaded(branch: str, path: str, address: str, content: str) -> Steps[bool]:
    """The same client requests to link its upload, at any later time."""
    yield Await(UPLOADS + address, lambda done: done is not None, says="asks to link what was uploaded")
    return (yield from link(branch, path, address, content))


def link(branch: str, path: str, address: str, content: str) -> Steps[bool]:
    """LinkPhysicalAddress. Reply: whether the token was valid."""
    until = yield Get(LINKS + address, says=f"link: looks up the token of {address}")
    now = yield Now(says="link: looks at the clock")
    if until is None or now > until:
        return False
    yield Drop(LINKS + address, says=f"link: uses up the token of {address}")
    return (yield from lake.write_entry(branch, path, Entry(address, content)))


def copy(branch: str, source: str, path: str, with_: Ingredients) -> Steps[bool]:
    """CopyObject of a staged object within its branch: a shallow copy. Reply: whether it was made."""
    current = yield Get(branch_key(branch), says=f"reads branch {branch}")
    if current is None:
        return False
    key = staged_key(current.token, source)
    entry = yield Get(key, says=f"reads entry {source} in {current.token}")
    if not isinstance(entry, Entry):
        return False
    if with_.tracked_copies:
        yield Set(COPIES + entry.address, "copied", says=f"notes that {entry.address} is copied")
        if with_.source_read_again:
            again = yield Get(branch_key(branch), says=f"looks whether {branch} still has {current.token}")
            if again is None or current.token not in again.tokens:
                return False
            if (yield Get(key, says=f"looks whether {source} is still staged")) != entry:
                return False
    yield Recap(f"{path} is {source}", entry)
    return (yield from lake.write_entry(branch, path, entry))


def rename(branch: str, source: str, path: str, with_: Ingredients) -> Steps[None]:
    """CopyObject and DeleteObject."""
    copied = yield from copy(branch, source, path, with_)
    yield Recap(f"{path} was {source}", copied)
    if copied:
        yield from lake.delete_path(branch, source)


# -- what the collector asks for


def prepare_uncommitted(with_: Ingredients, caller: Hashable = None) -> Steps[frozenset[str]]:
    """PrepareUncommittedForGC. Reply: the addresses that are staged, or were copied.

    A branch is read once, its staging areas page by page after that, so both can be out of date. Of a path that is in
    several of them the newest counts: what a commit under way has read, and somebody changes meanwhile, is not listed.
    ``caller``: all that the caller remembers.
    """
    found: frozenset[str] = frozenset()
    if with_.tracked_copies and not with_.copies_last:
        found |= yield from _copies()
    names = [key for key, _ in (yield Scan(BRANCHES, says="prepare: lists the branches"))]
    for place, key in enumerate(names):
        yield Recap("branch", (caller, tuple(names[place:]), found))
        name = key.removeprefix(BRANCHES)
        branch = yield Get(key, says=f"prepare: reads branch {name}")
        if branch is None:
            continue
        for number, first, end in _PAGES:
            yield Recap(f"page {number}", (caller, tuple(names[place:]), branch, found))
            entries: dict[str, Any] = {}
            for token in branch.tokens:
                folder = f"{STAGING}{token}/"
                says = f"prepare: reads page {number} of {token} of {name}"
                for path, entry in (yield Scan(folder, first, end, says=says)):
                    entries.setdefault(path.removeprefix(folder), entry)
            committed: Entries = ()
            if not with_.identical_listed:
                read = f"prepare: reads commit {branch.commit}"
                committed = (yield Get(COMMITS + branch.commit, says=read)).entries
            same = {(path, entry.content) for path, entry in committed}
            listed = {path: entry for path, entry in entries.items() if isinstance(entry, Entry)}
            found |= {entry.address for path, entry in listed.items() if (path, entry.content) not in same}
    yield Recap("pages", (caller, found))
    if with_.tracked_copies and with_.copies_last:
        found |= yield from _copies()
    return found


def _copies() -> Steps[set[str]]:
    rows = yield Scan(COPIES, says="prepare: reads the tracked copies")
    return {key.removeprefix(COPIES) for key, _ in rows}


def active_addresses() -> Steps[frozenset[str]]:
    """The addresses of all active commits: with retention rules those that branches point to, without all there are."""
    rule = yield Get(RETENTION, says="reads the retention rules")
    if rule != HEADS_ONLY:
        commits = [commit for _, commit in (yield Scan(COMMITS, says="reads all commits"))]
    else:
        heads = {branch.commit for _, branch in (yield Scan(BRANCHES, says="lists the active commits"))}
        commits = []
        for head in sorted(heads):
            commits.append((yield Get(COMMITS + head, says=f"reads commit {head}")))
    return frozenset(entry.address for commit in commits for _, entry in commit.entries)
