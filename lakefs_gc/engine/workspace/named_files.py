"""Reads ranges and metaranges, and compares each with its name: that is a digest of its content (rule 12).

A checksum inside a file shows that it is whole, but not that it is the one that was asked for. Where an answer arrives
twice on a connection, the next request takes it for its own. The objects of a range that is not read look like garbage,
and the cache would keep the wrong content for the next runs, and for the second look.

Every release of lakeFS with such files computes their names in the same way (``pkg/graveler/sstable/writer.go``, since
January 2021), so no other name is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from lakefs_gc.errors import CorruptFileError, CorruptRangeError
from lakefs_gc.storage.base import ObjectStore

if TYPE_CHECKING:
    from lakefs_gc.formats.sstable.reader import Table, TableData

Refusal = Callable[[CorruptRangeError], None]


def read_named(
    store: ObjectStore, keys: Iterable[str], *, concurrency: int, refused: Refusal | None = None
) -> Iterator[tuple[str, TableData]]:
    """Yield each key and its table, in any order. The last part of a key is the name.

    A file whose content has another name is read again, over a connection of another kind where the store has one.
    Raises ``CorruptRangeError`` if its content still has another name, or calls ``refused`` with it and omits the file.
    Yields damaged content that was the same twice, as bytes: whoever opens it says what is wrong with it.
    """
    for key, data in store.read_many(keys, concurrency=concurrency):
        try:
            table, name = _named(data, key)
            content = table if table is not None and name == _stated_name(key) else _read_again(store, key, data)
        except CorruptRangeError as error:
            if refused is None:
                raise
            refused(error)
            continue
        yield key, content


def read_named_file(store: ObjectStore, key: str) -> TableData:
    """Return the table of one file, as ``read_named``. Raises ``ObjectNotFoundError`` and ``CorruptRangeError``."""
    [(_, content)] = read_named(store, [key], concurrency=1)
    return content


def _read_again(store: ObjectStore, key: str, data: bytes) -> TableData:
    with store.open_read(key) as stream:
        again = stream.read()
    table, name = _named(again, key)
    if table is not None and name == _stated_name(key):
        return table
    if table is None and again == data:
        return again
    raise CorruptRangeError(
        key,
        f"it was read twice, and has the content of another file, {name}"
        if table is not None
        else "it was read twice, with different content that is damaged",
        remedy="Check the proxies and caches between this machine and the store, and compare the file with a backup. "
        "Then start a new run. Nothing was deleted",
    )


def _stated_name(key: str) -> str:
    return key.rpartition("/")[2]


def _named(data: bytes, key: str) -> tuple[Table | None, str]:
    """Return the table with this content, and its name; None and an empty name if it is damaged."""
    # At the first file: numba takes 0.3 s, and commands that only show marks import this module.
    from lakefs_gc.formats.sstable.reader import Table

    try:
        table = Table(data, key)
        return table, table.name()
    except CorruptFileError:
        return None, ""
