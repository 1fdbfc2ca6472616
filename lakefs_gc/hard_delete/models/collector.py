"""The collector of the accepted design: list, subtract used objects, mark, take a second look, sweep.

It follows one round of a sweep in lakefs-gc's engine: a second look, then the deletes. The store is asked about each
object just before its deletion, and the object is kept if it was written since it was listed. A run lists every slice,
and each object is compared with the cutoff, because a missing object is data loss at any age. lakeFS's
own design skips young slices, which marks the same objects: no object is older than its slice.
"""

from __future__ import annotations

from collections.abc import Hashable

from lakefs_gc.hard_delete.models.offline_server import Ingredients, active_addresses, prepare_uncommitted
from lakefs_gc.hard_delete.steps import Await, Head, ListObjects, Now, Recap, Remove, Set, Sleep, Steps
from lakefs_gc.hard_delete.world import Object

MIN_AGE_TICKS = 1
"""At least the lifetime of a link token."""
DATA = "data/"
MARKS = "marks/"
APPROVAL = "approval"


def referenced(with_: Ingredients, caller: Hashable) -> Steps[frozenset[str]]:
    """Reply: all addresses in use, first the staged, then the committed ones.

    ``caller``: everything that the caller remembers.
    """
    if with_.order:
        staged = yield from prepare_uncommitted(with_, caller)
        yield Recap("staged", (caller, staged))
        return staged | (yield from active_addresses())
    committed = yield from active_addresses()
    yield Recap("committed", (caller, committed))
    return committed | (yield from prepare_uncommitted(with_, (caller, committed)))


def mark(with_: Ingredients, name: str = "mark") -> Steps[tuple[tuple[str, Object], ...]]:
    """Reply: the objects that may be deleted, as they were listed."""
    now = yield Now(text="starts: reads the clock")
    addresses = yield ListObjects(DATA, text="lists the slices")
    listed: list[tuple[str, Object]] = []
    for name_of_slice in sorted({address.split("/")[1] for address, _ in addresses}):
        for address, stored in (yield ListObjects(f"{DATA}{name_of_slice}/", text=f"lists slice {name_of_slice}")):
            if not with_.cutoff or stored.modified + MIN_AGE_TICKS < now:
                listed.append((address, stored))
    yield Recap("listed", tuple(listed))
    used = (yield from referenced(with_, tuple(listed))) if listed else frozenset()
    marked = tuple((address, stored) for address, stored in listed if address not in used)
    yield Recap("marked", marked)
    names = tuple(address for address, _ in marked)
    if marked:
        yield Set(MARKS + name, names, text=f"marks {' '.join(names)}")
    return marked


def sweep(marked: tuple[tuple[str, Object], ...], with_: Ingredients) -> Steps[None]:
    """Delete the marked objects that are not in use again."""
    used = (yield from referenced(with_, (marked,))) if marked and with_.second_look else frozenset()
    deletions = [(address, listed) for address, listed in marked if address not in used]
    for number, (address, listed) in enumerate(deletions):
        yield Recap("deletions", tuple(deletions[number:]))
        stored = yield Head(address, text=f"sweep: checks {address} in the store")
        if stored is not None and stored.modified <= listed.modified:
            yield Remove(address, text=f"sweep: deletes {address}")


def collect(
    with_: Ingredients, *, name: str = "mark", waits_for_approval: bool = False, waits_ticks: int = 0
) -> Steps[None]:
    """One run: mark, wait for an approval or for some time if required, and sweep."""
    marked = yield from mark(with_, name)
    if marked and waits_for_approval:
        yield Await(APPROVAL, lambda approval: approval is not None, text="waits until the mark is approved")
    if marked and waits_ticks:
        now = yield Now(text="reads the clock")
        yield Sleep(now + waits_ticks, text="waits before the sweep")
    yield Recap("sweep", marked)
    yield from sweep(marked, with_)
