"""Whether a store shows objects that must exist. If it does not, the absence of others proves nothing."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.engine.explain.history import History
from lakefs_gc.engine.explain.stored import look_up
from lakefs_gc.formats.ranges import read_range
from lakefs_gc.formats.sstable.reader import TableData
from lakefs_gc.storage.base import ObjectStore

_MOST_RANGES, _MOST_OF_A_RANGE = 4, 8
_DATA_FOLDER = "data/"


def why_blind(store: ObjectStore, history: History, asked: Collection[str]) -> str:
    """Return why the store's lack of ``asked`` proves nothing; empty if it shows another object of a branch.

    The folder ``data/`` may be a file system of its own. If it is not mounted, every object seems to be gone, although
    the metadata can be read. Raises the errors of the store.
    """
    without = pa.array(sorted(asked), pa.string())

    def addresses_of(data: TableData, key: str) -> list[str]:
        inside = history.known.entries(read_range(data, key)).column("address")
        others: list[str] = inside.filter(pc.invert(pc.is_in(inside, without)))[:_MOST_OF_A_RANGE].to_pylist()
        return others

    ranges = sorted(history.branches_of_ranges())
    few = ranges[:: max(1, len(ranges) // _MOST_RANGES)][:_MOST_RANGES]
    read = dict(history.each(few, addresses_of))
    of_branches = list(
        dict.fromkeys(chain.from_iterable(found for found in read.values() if not isinstance(found, str)))
    )
    unread = [f"{range_id}: {why}" for range_id, why in read.items() if isinstance(why, str)]
    shown = look_up(store, of_branches)
    if shown.objects:
        return ""
    if absent := [address for address in of_branches if address not in shown.not_asked]:
        why = f"it shows none of {len(absent)} objects that branches have, e.g. {absent[0]}"
    elif unread:
        why = f"which objects branches have is unknown, because ranges cannot be read, e.g. {min(unread)}"
    else:
        # No branch has an object here. A bucket without one is empty, and so is a folder that is not mounted.
        folders, files = store.list_level(_DATA_FOLDER)
        if folders or files.num_rows or not store.location.url.startswith("file://"):
            return ""
        why = f"{_DATA_FOLDER} is empty, and no branch has an object that it must show (upload any object to see it)"
    return f"whether objects exist in {store.location.url}: {why}. Is its file system mounted?"
