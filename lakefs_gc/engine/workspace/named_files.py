"""Reads ranges and metaranges, and compares each with its name: that is a digest of its content (rule 12).

A checksum inside a file shows that it is whole, but not that it is the one that was asked for. Where an answer arrives
twice on a connection, the next request takes it for its own. The objects of a range that is not read look like garbage,
and the cache would keep the wrong content for the next runs, and for the second look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lakefs_gc.errors import CorruptFileError, CorruptRangeError
from lakefs_gc.storage.base import ObjectStore


def read_named(store: ObjectStore, keys: Iterable[str], *, concurrency: int) -> Iterator[tuple[str, bytes]]:
    """Yield each key and content, as ``ObjectStore.read_many``. The last part of a key is the name.

    A file whose content has another name is read again: it may be of a version of lakeFS that names files in another
    way, or damaged. Raises ``CorruptRangeError`` if its content is another one then.
    """
    for key, data in store.read_many(keys, concurrency=concurrency):
        yield key, data if _has_name(data, key) else _read_again(store, key, data)


def _has_name(data: bytes, key: str) -> bool:
    # At the first file: numba takes 0.3 s, and commands that only show marks import this module.
    from lakefs_gc.formats.sstable.reader import Table

    try:
        return Table(data, key).name() == key.rpartition("/")[2]
    except CorruptFileError:
        return False


def _read_again(store: ObjectStore, key: str, data: bytes) -> bytes:
    again = store.read(key)
    if again != data and not _has_name(again, key):
        raise CorruptRangeError(
            key,
            "it was read twice, with different content each time, and neither has this name",
            remedy="Check the proxies between this machine and the store, then start a new run. Nothing was deleted",
        )
    return again
