"""Remembers which metadata files of other repositories refer to nothing outside their own namespace.

Nearly all of them do: their entries have only relative addresses, without a ``..``. That is a property of the file's
content alone, and a file of this name never has another content. So a small run need not look through it again,
whatever repository it collects. It still lists the files, and still looks for the ranges that a metarange names.

Layout, beside the range cache (``range_cache.py``): ``_range_cache/v1/plain-<how addresses are read>-<layout>/<SHA-256
of its content>`` (Parquet, ``PLAIN_FILE``). Like the range cache, this can only save work: what is missing or damaged
is not remembered.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakefs_gc.engine.workspace.packs import CACHE_FOLDER
from lakefs_gc.engine.workspace.range_cache import RangeCache
from lakefs_gc.errors import CorruptFileError, ObjectNotFoundError, StorageError
from lakefs_gc.formats.addresses import ADDRESS_READING
from lakefs_gc.formats.parquet import read_columns, refusing
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.open import open_store

logger = logging.getLogger(__name__)

FileName = tuple[str, str]
"""The URL of a store's folder, with a final slash, and the name of a file below ``_lakefs/``."""

PLAIN_FILE = pa.schema(
    [
        pa.field("store_url", pa.string(), nullable=False),
        pa.field("range_id", pa.string(), nullable=False),
        pa.field("names", pa.list_(pa.string()), nullable=False),
    ]
)
"""Columns: a file, and the ranges that it names if it is a metarange."""

_LAYOUT = "2"
"""Of ``PLAIN_FILE``. A column may limit what the others mean, so a file with other columns is not read. What has the
number 1 is of versions that did not compare files with their names."""
_FOLDER = f"{CACHE_FOLDER}plain-{ADDRESS_READING}-{_LAYOUT}/"
"""A version that reads addresses otherwise, or writes other columns, looks through all files again."""
_MOST_OBJECTS = 8
_MOST_FILES = 300_000
_MOST_NAMES = 1_000_000
"""The most files that are remembered, and ranges that they name: 150 MB. Looking through a file again takes 0.4 ms."""


def read_plain_files(cache: RangeCache) -> pa.Table:
    """Return what earlier runs remembered, each file once. Columns: ``PLAIN_FILE``. At most ``_MOST_FILES`` and names.

    What cannot be read is not remembered.
    """
    if not cache.max_bytes:
        return PLAIN_FILE.empty_table()
    store = open_store(cache.location)
    try:
        keys = [key for batch in store.list(_FOLDER) for key in batch.column("address").to_pylist()]
        table = _distinct(pa.concat_tables([PLAIN_FILE.empty_table(), *_read_all(store, sorted(keys))]))
        if len(keys) > _MOST_OBJECTS:
            _write(store, table)
            store.delete_many([key for key in keys if key != _key_of(table)])
    except StorageError as error:
        logger.warning("range cache: what was found in other repositories cannot be read: %s", error)
        return PLAIN_FILE.empty_table()
    return table


class PlainFiles:
    """Collects, in a task, files that are plain. Remembers no more than there is room for."""

    def __init__(self, cache: RangeCache, known: pa.Table, tasks: int) -> None:
        self._cache = cache
        self._files = max(0, _MOST_FILES - known.num_rows) // tasks
        self._names = max(0, _MOST_NAMES - _count_names(known)) // tasks
        self._found: dict[FileName, list[str]] = {}

    def add(self, file: FileName, names: list[str]) -> None:
        """Remember a file, and the ranges that it names."""
        if self._files and len(names) <= self._names and self._cache.max_bytes:
            self._files -= 1
            self._names -= len(names)
            self._found[file] = names

    def write(self) -> None:
        """Write what was added. A failure is only logged: the next run looks through these files again."""
        if not self._found:
            return
        columns = zip(*((*file, names) for file, names in self._found.items()), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, PLAIN_FILE, strict=True)]
        try:
            _write(open_store(self._cache.location), pa.table(arrays, schema=PLAIN_FILE))
        except StorageError as error:
            logger.warning("range cache: what was found in other repositories cannot be remembered: %s", error)


def without_plain_files(files: pa.Table, plain: pa.Table) -> tuple[pa.Table, dict[FileName, str]]:
    """Return the rows of ``files`` that are not ``plain``, and the ranges that the others name, with their repository.

    ``files`` has the columns ``repository``, ``store_url`` and ``range_id``.
    """
    row_of = {file: row for row, file in enumerate(_names_of(plain))}
    rows = [row_of.get(file) for file in _names_of(files)]
    repositories = dict(zip(files["store_url"].to_pylist(), files["repository"].to_pylist(), strict=True))
    is_plain = pa.array([row is not None for row in rows], pa.bool_())
    listed = plain.take(pa.array([row for row in rows if row is not None], pa.int64()))
    named: dict[FileName, str] = {}
    for store_url in listed["store_url"].unique().to_pylist():
        names = pc.list_flatten(listed.filter(pc.equal(listed["store_url"], store_url))["names"]).unique().to_pylist()
        named.update(dict.fromkeys(((store_url, name) for name in names), repositories[store_url]))
    return files.filter(pc.invert(is_plain)), named


def _names_of(files: pa.Table) -> Iterable[FileName]:
    return zip(files["store_url"].to_pylist(), files["range_id"].to_pylist(), strict=True)


def _read_all(store: ObjectStore, keys: Iterable[str]) -> Iterator[pa.Table]:
    """Yield what objects hold, as long as it is not too much. Removes what is damaged."""
    files = names = 0
    for key in keys:
        try:
            data = store.read(key)
        except ObjectNotFoundError:  # another run has merged it with others
            continue
        try:
            if key.removeprefix(_FOLDER) != hashlib.sha256(data).hexdigest():
                raise CorruptFileError(key, "it has another content than it was written with")
            in_file = _check(data, key)
            files, names = files + in_file[0], names + in_file[1]
            if files > _MOST_FILES or names > _MOST_NAMES + _MOST_FILES:  # a file without names counts as one value
                logger.info("range cache: more is remembered of other repositories than fits, and %s is not read", key)
                return
            table = read_columns(data, PLAIN_FILE, key)
            if pc.list_flatten(table["names"]).null_count:
                raise CorruptFileError(key, "a name is missing")
            yield table
        except CorruptFileError as error:
            logger.warning("range cache: files of other repositories are read again: %s", error)
            store.delete_many([key])


def _check(data: bytes, key: str) -> tuple[int, int]:
    """Return the numbers of files and of names that an object holds. Raise ``CorruptFileError`` for another layout."""
    with refusing(key):
        parquet = pq.ParquetFile(pa.BufferReader(data))
        if parquet.schema_arrow.remove_metadata() != PLAIN_FILE:
            raise CorruptFileError(key, f"it has other columns: {parquet.schema_arrow.names}")
        groups = [parquet.metadata.row_group(number) for number in range(parquet.metadata.num_row_groups)]
        return parquet.metadata.num_rows, sum(group.column(2).num_values for group in groups)


def _distinct(table: pa.Table) -> pa.Table:
    """Return each file once: runs that merge the same objects at once write the same rows."""
    row_of = {file: row for row, file in enumerate(_names_of(table))}
    return table if len(row_of) == table.num_rows else table.take(pa.array(sorted(row_of.values()), pa.int64()))


def _count_names(table: pa.Table) -> int:
    return int(pc.sum(pc.list_value_length(table["names"]), min_count=0).as_py())


def _write(store: ObjectStore, table: pa.Table) -> None:
    store.put(_key_of(table), _bytes_of(table))


def _key_of(table: pa.Table) -> str:
    return _FOLDER + hashlib.sha256(_bytes_of(table)).hexdigest()


def _bytes_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table.combine_chunks(), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content
