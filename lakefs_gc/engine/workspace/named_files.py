"""Reads ranges and metaranges, and compares each with its name: that is a digest of its content (rule 12).

A checksum inside a file shows that it is whole, but not that it is the one that was asked for. Where an answer arrives
twice on a connection, the next request takes it for its own. The objects of a range that is not read look like garbage,
and the cache would keep the wrong content for the next runs, and for the second look.

Every release of lakeFS with such files computes their names in the same way (``pkg/graveler/sstable/writer.go``, since
January 2021), so no other name is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lakefs_gc.errors import CorruptFileError, CorruptRangeError
from lakefs_gc.storage.base import ObjectStore

Refusal = Callable[[CorruptRangeError], None]


def read_named(
    store: ObjectStore, keys: Iterable[str], *, concurrency: int, refused: Refusal | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield each key and content, as ``ObjectStore.read_many``. The last part of a key is the name.

    A file whose content has another name is read again, over a connection of another kind where the store has one.
    Raises ``CorruptRangeError`` if its content still has another name, or calls ``refused`` with it and omits the file.
    Yields damaged content that was the same twice: whoever parses it says what is wrong with it.
    """
    for key, data in store.read_many(keys, concurrency=concurrency):
        try:
            content = data if _name_of(data, key) == _stated_name(key) else _read_again(store, key, data)
        except CorruptRangeError as error:
            if refused is None:
                raise
            refused(error)
            continue
        yield key, content


def read_named_file(store: ObjectStore, key: str) -> bytes:
    """Return the content of one file, as ``read_named``. Raises ``ObjectNotFoundError`` and ``CorruptRangeError``."""
    [(_, content)] = read_named(store, [key], concurrency=1)
    return content


def _read_again(store: ObjectStore, key: str, data: bytes) -> bytes:
    with store.open_read(key) as stream:
        again = stream.read()
    name = _name_of(again, key)
    if name == _stated_name(key) or (not name and again == data):
        return again
    raise CorruptRangeError(
        key,
        f"it was read twice, and has the content of another file, {name}"
        if name
        else "it was read twice, with different content that is damaged",
        remedy="Check the proxies and caches between this machine and the store, and compare the file with a backup. "
        "Then start a new run. Nothing was deleted",
    )


def _stated_name(key: str) -> str:
    return key.rpartition("/")[2]


def _name_of(data: bytes, key: str) -> str:
    """Return the name of this content; empty if it is damaged."""
    # At the first file: numba takes 0.3 s, and commands that only show marks import this module.
    from lakefs_gc.formats.sstable.reader import Table

    try:
        return Table(data, key).name()
    except CorruptFileError:
        return ""
