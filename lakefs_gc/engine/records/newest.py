"""The file that names the newest record of a folder, for everyone to whom a list may hide it.

Restores and sweeps announce themselves by records that only a list shows. A list may be of an earlier time: a cache or
a proxy answers, or a store that is behind. A read of a file with a known name shows that.
"""

from __future__ import annotations

from collections.abc import Collection

from lakefs_gc.errors import ObjectNotFoundError, OldListError
from lakefs_gc.storage.base import ObjectStore

NEWEST = "last"


def put_newest(store: ObjectStore, folder: str, name: str, content: bytes) -> None:
    """Write a record to a folder, then its name to the file that names the newest one."""
    store.put(folder + name, content)
    store.put(folder + NEWEST, name.encode())


def newest_in(store: ObjectStore, folder: str) -> frozenset[str]:
    """Return the key of the newest record of a folder; nothing if it has none, or if an earlier version wrote it."""
    try:
        return frozenset({folder + store.read(folder + NEWEST).decode(errors="replace")})
    except ObjectNotFoundError:
        return frozenset()


def refuse_old_list(store: ObjectStore, newest: Collection[str], listed: Collection[str], again: str) -> None:
    """Raise ``OldListError`` for a list without the ``newest`` record, of before it. ``again`` says what to repeat."""
    for key in newest:
        if key not in listed:
            raise OldListError(
                f"A list of {store.location.folder_url}{key.rpartition('/')[0]}/ lacks {key.rpartition('/')[2]}, which "
                "was written before: it is of an earlier time",
                remedy="Find out what answers for the store, such as a proxy or a cache, and wait until it lists this "
                f"file. Then {again}. If somebody deleted the file, delete {NEWEST} beside it",
            )
