"""Remembers which metadata files of other repositories refer to nothing outside their own namespace.

Nearly all of them do: their entries have only relative addresses, without a ``..``. That is a property of the file's
content alone, and a file of this name never has another content. So a small run need not look through it again,
whatever repository it collects. It still lists the files, and still looks for the ranges that a metarange names.

Layout, beside the range cache (``range_cache.py``): ``_range_cache/v1/plain/<SHA-256 of its content>`` (Parquet,
``PLAIN_FILE``). Like the range cache, this can only save work: what is missing or damaged is not remembered.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.engine.workspace.range_cache import CACHE_FOLDER, RangeCache
from lakefs_gc.errors import CorruptFileError, StorageError
from lakefs_gc.formats.parquet import parquet_bytes, read_columns
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

_FOLDER = CACHE_FOLDER + "plain/"
_MOST_OBJECTS = 8
_MOST_FILES = 300_000
_MOST_NAMES = 1_000_000
"""The most files that are remembered, and ranges that they name; with more, all are forgotten. Looking through a file
again takes 0.4 ms."""


def read_plain_files(cache: RangeCache) -> pa.Table:
    """Return what earlier runs remembered. Columns: ``PLAIN_FILE``."""
    if not cache.max_bytes:
        return PLAIN_FILE.empty_table()
    store = open_store(cache.location)
    keys = [key for batch in store.list(_FOLDER) for key in batch.column("address").to_pylist()]
    tables = [_read(store, key) for key in keys]
    table = pa.concat_tables([PLAIN_FILE.empty_table(), *tables])
    names = pc.sum(pc.list_value_length(table["names"]), min_count=0).as_py()
    is_too_much = table.num_rows > _MOST_FILES or names > _MOST_NAMES
    if is_too_much or len(keys) > _MOST_OBJECTS:
        if not is_too_much:
            _write(store, table)
        store.delete_many(keys)
    return table


def remember_plain_files(cache: RangeCache, found: Mapping[FileName, Iterable[str]]) -> None:
    """Remember files, each with the ranges that it names."""
    if not (found and cache.max_bytes):
        return
    columns = zip(*((*file, list(names)) for file, names in found.items()), strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, PLAIN_FILE, strict=True)]
    try:
        _write(open_store(cache.location), pa.table(arrays, schema=PLAIN_FILE))
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


def _read(store: ObjectStore, key: str) -> pa.Table:
    try:
        data = store.read(key)
        if key.removeprefix(_FOLDER) == hashlib.sha256(data).hexdigest():
            return read_columns(data, PLAIN_FILE, key)
    except (StorageError, CorruptFileError) as error:
        logger.warning("range cache: what was found in other repositories cannot be read: %s", error)
        return PLAIN_FILE.empty_table()
    logger.warning("range cache: %s is damaged, so files of other repositories are read again", key)
    store.delete_many([key])
    return PLAIN_FILE.empty_table()


def _write(store: ObjectStore, table: pa.Table) -> None:
    data = parquet_bytes(table.combine_chunks().to_batches()[0])
    store.put(_FOLDER + hashlib.sha256(data).hexdigest(), data)
