"""Whether a store shows objects that must exist. If it does not, the absence of others proves nothing."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.engine.explain.mark_records import find_markings
from lakefs_gc.engine.explain.sources import Sources
from lakefs_gc.engine.explain.stored import look_up
from lakefs_gc.formats.address_readings import LOCAL_STORE
from lakefs_gc.formats.ranges import read_range
from lakefs_gc.formats.sstable.reader import TableData
from lakefs_gc.storage.base import written_at

_MOST_RANGES, _MOST_OF_A_RANGE = 8, 8
_DATA_FOLDER = "data/"

Readings = tuple[str, ...]
"""The keys that an entry of a branch may mean. Its object has one of them."""


def why_blind(sources: Sources, asked: Collection[str]) -> str:
    """Return why the store's lack of ``asked`` proves nothing; empty if it shows the other objects of branches.

    The folder ``data/`` may be a file system of its own. If it is not mounted, every object seems to be gone, although
    the metadata can be read. lakeFS does not notice it either, and puts new objects there. So one object that is shown
    proves nothing about older ones: each of the sample must be shown, or a sweep has recorded its delete. Raises the
    errors of the store.
    """
    store, history = sources.store, sources.history
    without = pa.array(sorted(asked), pa.string())

    def sample_of(data: TableData, key: str) -> list[Readings]:
        return _sample(history.known.entries(read_range(data, key, keys=True)), without)

    ranges = sorted(history.branches_of_ranges())
    few = ranges[:: max(1, len(ranges) // _MOST_RANGES)][:_MOST_RANGES]
    read = dict(history.each(few, sample_of))
    of_branches = list(
        dict.fromkeys(chain.from_iterable(found for found in read.values() if not isinstance(found, str)))
    )
    unread = [f"{range_id}: {why}" for range_id, why in read.items() if isinstance(why, str)]
    looked_up = look_up(store, list(dict.fromkeys(chain.from_iterable(of_branches))))
    shown = [readings for readings in of_branches if any(key in looked_up.objects for key in readings)]
    absent = [
        readings
        for readings in of_branches
        if not any(key in looked_up.objects or key in looked_up.not_asked for key in readings)
    ]
    missing = _not_swept(sources, absent) if shown else absent
    if missing:
        of_all = f"{len(of_branches):,} objects that branches have, e.g. {missing[0][0]}"
        why = f"it does not show {len(missing):,} of {of_all}" if shown else f"it shows none of {of_all}"
        command = shlex.join(["lakefs-gc", "explain", sources.repository, missing[0][0]])
        what_else = f" If so, a live object is missing: see `{command}`"
    elif shown:
        return ""
    elif unread:
        why = f"which objects branches have is unknown, because ranges cannot be read, e.g. {min(unread)}"
        what_else = ""
    else:
        # No branch has an object here. A bucket without one is empty, and so is a folder that is not mounted.
        folders, files = store.list_level(_DATA_FOLDER)
        if folders or files.num_rows or not store.location.url.startswith(LOCAL_STORE):
            return ""
        why = f"{_DATA_FOLDER} is empty, and no branch has an object that it must show (upload any object to see it)"
        what_else = ""
    return f"whether objects exist in {store.location.url}: {why}. Is its file system mounted?{what_else}"


def why_no_witness(sources: Sources, ranges_of: Mapping[str, Collection[str]]) -> str:
    """Return why the store's lack of objects without a record of their delete proves nothing; empty if it does.

    Only in a local folder: its ``data/`` may be another file system than the one to which the objects were written. An
    object that is shown, and is older than all of them, shows that it is not. A newer one does not: lakeFS may have
    written all of them to the folder where the disk is not mounted. That lakeFS cannot read the objects proves nothing,
    either: it looks there, too. A sweep that recorded the delete of an object had found it there.

    ``ranges_of`` maps each object to the ranges that have it. The times are those of their entries: the time of a file
    can be set, and a new file may look old. Raises the errors of the store.
    """
    store, history = sources.store, sources.history
    doubted = sorted(address for address in ranges_of if address.startswith(_DATA_FOLDER))
    if not doubted or not store.location.url.startswith(LOCAL_STORE):
        return ""
    wanted = pa.array(doubted, pa.string())
    times: dict[str, datetime] = {}

    def times_of(data: TableData, key: str) -> list[tuple[str, datetime]]:
        entries = history.known.entries(read_range(data, key, keys=True))
        found = entries.filter(pc.is_in(entries.column("address"), wanted))
        # The oldest last: of two entries with an address, that one counts.
        newest_first = found.take(pc.sort_indices(found, sort_keys=[("last_modified", "descending")]))
        return list(written_at(newest_first).items())

    for _, found in history.each(sorted(set(chain.from_iterable(ranges_of.values()))), times_of):
        for address, at in () if isinstance(found, str) else found:
            times[address] = min(at, times.get(address, at))

    def older(data: TableData, key: str) -> list[str]:
        entries = history.known.entries(read_range(data, key, keys=True))
        before = entries.filter(pc.less(entries.column("last_modified"), pa.scalar(since)))
        addresses = before.filter(pc.invert(pc.is_in(before.column("address"), wanted))).column("address")
        in_data = addresses.filter(pc.starts_with(addresses, _DATA_FOLDER))
        keys: list[str] = in_data.to_pylist()
        return keys[:: max(1, len(keys) // _MOST_OF_A_RANGE)]

    # Without an entry, only a branch or a mark tells of it, and not its age.
    if all(address in times for address in doubted):
        since = min(times.values())
        heads = history.branches_of_ranges()
        for _, keys in history.each([*sorted(heads), *(each for each in history.ranges if each not in heads)], older):
            if not isinstance(keys, str) and look_up(store, keys).objects:
                return ""
    one = f"{doubted[0]} is gone" if len(doubted) == 1 else f"{len(doubted):,} objects are gone, e.g. {doubted[0]}"
    return (
        f"whether objects exist in {store.location.url}: {one}, and no sweep has recorded it. {_DATA_FOLDER} shows no "
        "committed object that is older, so it may be another file system than the one that had it. Is its file system "
        "mounted?"
    )


def _sample(entries: pa.RecordBatch, without: pa.StringArray) -> list[Readings]:
    """Return a few entries of a range, each with its readings, except those that may mean a key of ``without``.

    They are spread over the ages of the entries, beginning with the oldest: new ones may all be on another disk.
    """
    paths = entries.column("key")
    asked = paths.filter(pc.is_in(entries.column("address"), without))
    others = entries.filter(pc.invert(pc.is_in(paths, asked)))
    by_age = others.take(pc.sort_indices(others, sort_keys=[("last_modified", "ascending"), ("key", "ascending")]))
    rows, step = others.num_rows, max(1, others.num_rows // _MOST_OF_A_RANGE)
    few = by_age.column("key").take(pa.array(range(0, rows, step)[:_MOST_OF_A_RANGE], pa.int64()))
    of_few = others.filter(pc.is_in(others.column("key"), few))
    readings: dict[bytes, list[str]] = {}
    for path, address in zip(of_few.column("key").to_pylist(), of_few.column("address").to_pylist(), strict=True):
        readings.setdefault(path, []).append(address)
    return [tuple(each) for each in readings.values()]


def _not_swept(sources: Sources, absent: Iterable[Readings]) -> list[Readings]:
    """Return the entries of which no sweep recorded a delete. A branch may be of an old commit, without its objects."""
    addresses = sorted(set(chain.from_iterable(absent)))
    if not addresses:
        return []
    of = find_markings(sources.store, sources.repository, sources.namespace, addresses).of
    return [readings for readings in absent if not any(marking.is_deleted for key in readings for marking in of[key])]
