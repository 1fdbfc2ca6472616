"""The collector of the accepted design: list, subtract used objects, mark, take a second look, sweep.

It goes as lakefs-gc's own engine does in one of the rounds of a sweep: a look, then the deletes; each object
is looked at in the store just before it is deleted, and kept if it was written since it was listed.
"""

from __future__ import annotations

from collections.abc import Hashable

from lakefs_gc.hard_delete.models.offline_server import Ingredients, active_addresses, prepare_uncommitted
from lakefs_gc.hard_delete.steps import Await, Head, ListObjects, Now, Recap, Remove, Set, Sleep, Steps
from lakefs_gc.hard_delete.world import Object

MIN_AGE_TICKS = 1
"""Not below the lifetime of a link token."""
DATA = "data/"
MARKS = "marks/"
APPROVAL = "approval"


def referenced(with_: Ingredients, caller: Hashable) -> Steps[frozenset[str]]:
    """Everything in use: first what is staged, then what is committed. ``caller``: all that the caller remembers."""
    if with_.order:
        staged = yield from prepare_uncommitted(with_, caller)
        yield Recap("staged", (caller, staged))
        return staged | (yield from active_addresses())
    committed = yield from active_addresses()
    yield Recap("committed", (caller, committed))
    return committed | (yield from prepare_uncommitted(with_, (caller, committed)))


def mark(with_: Ingredients, name: str = "mark") -> Steps[tuple[tuple[str, Object], ...]]:
    """Reply: what may be deleted, as it was listed."""
    now = yield Now(says="starts: looks at the clock")
    slices = yield ListObjects(DATA, says="lists the slices")
    listed: list[tuple[str, Object]] = []
    for place in sorted({address.split("/")[1] for address, _ in slices}):
        if with_.cutoff and int(place[1:]) + MIN_AGE_TICKS >= now:
            continue  # a slice is older than what it holds
        for address, stored in (yield ListObjects(f"{DATA}{place}/", says=f"lists slice {place}")):
            if not with_.cutoff or stored.modified + MIN_AGE_TICKS < now:
                listed.append((address, stored))
    yield Recap("listed", tuple(listed))
    used = (yield from referenced(with_, tuple(listed))) if listed else frozenset()
    marked = tuple((address, stored) for address, stored in listed if address not in used)
    yield Recap("marked", marked)
    names = tuple(address for address, _ in marked)
    if marked:
        yield Set(MARKS + name, names, says=f"marks {' '.join(names)}")
    return marked


def sweep(marked: tuple[tuple[str, Object], ...], with_: Ingredients) -> Steps[None]:
    """Delete what is marked and not in use again."""
    used = (yield from referenced(with_, (marked,))) if marked and with_.second_look else frozenset()
    doomed = [(address, listed) for address, listed in marked if address not in used]
    for place, (address, listed) in enumerate(doomed):
        yield Recap("doomed", tuple(doomed[place:]))
        stored = yield Head(address, says=f"sweep: looks at {address}")
        if stored is not None and stored.modified <= listed.modified:
            yield Remove(address, says=f"sweep: deletes {address}")


def collect(
    with_: Ingredients, *, name: str = "mark", waits_for_approval: bool = False, waits_ticks: int = 0
) -> Steps[None]:
    """One run: mark, perhaps wait for an approval or for some time, and sweep."""
    marked = yield from mark(with_, name)
    if marked and waits_for_approval:
        yield Await(APPROVAL, lambda approval: approval is not None, says="waits until the mark is approved")
    if marked and waits_ticks:
        now = yield Now(says="looks at the clock")
        yield Sleep(now + waits_ticks, says="waits with the sweep")
    yield Recap("sweep", marked)
    yield from sweep(marked, with_)
