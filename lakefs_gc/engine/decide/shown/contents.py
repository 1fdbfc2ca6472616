"""The MD5s of unreferenced objects, as far as they are certain: two different ones show that two objects differ.

The store states them (``ObjectStore.content_md5``). Whether what a store states is an MD5 cannot be told from it: a
store, or a proxy before it, that stores something else than the content may state a digest of that, which looks alike.
So some of the objects are read, and one that has another MD5 makes all of them unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame

from lakefs_gc.engine.decide.shown.lookups import CONTENTS, TwinSearch
from lakefs_gc.engine.spark.local_rows import rows_with, rows_without
from lakefs_gc.engine.spark.scale import in_arrow, spread
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.errors import ObjectNotFoundError
from lakefs_gc.storage.base import ObjectStore, md5_of
from lakefs_gc.storage.location import StoreLocation

_FEW_OBJECTS = 3_000  # by as many HEAD requests a small run is slower in its one process than by workers
_TASKS_PER_CORE = 4
_OBJECTS_READ = 32
"""Of each batch, to see that the MD5s are those of the content."""
_LARGEST_READ_BYTES = 4 * 1024**2
"""Of the objects that are read; if all are larger, the smallest one is read."""


def with_md5(unreferenced: DataFrame, search: TwinSearch) -> DataFrame:
    """Return each object with the MD5 of its content; empty if the store does not know it. Columns: ``CONTENTS``."""
    earlier, unknown = list(search.contents), unreferenced.select("address", "size")
    for known in earlier:
        unknown = rows_without(unknown, known.dataframe, "address")
    new = search.keep("contents", md5s_of(unknown, search), CONTENTS)
    search.contents.append(new)
    # What an earlier search asked for may be more than these objects.
    known_ones = (rows_with(known.dataframe, unreferenced, "address") for known in earlier)
    return reduce(DataFrame.unionByName, known_ones, new.dataframe)


def md5s_of(objects: DataFrame, search: TwinSearch) -> DataFrame:
    """Return ``with_md5`` of objects (columns ``address`` and ``size``) without remembering it."""
    tasks = search.context.cores * _TASKS_PER_CORE
    ask = _ask_for_md5(search.run.store, search.asks_twice)
    return in_arrow(spread(objects, tasks), ask, CONTENTS, fits=_few, tasks=tasks)


def _few(asked: pa.Table) -> bool:
    return bool(asked.num_rows <= _FEW_OBJECTS)


@worker
def _ask_for_md5(batches: Batches, store: StoreLocation, twice: bool) -> Batches:
    for batch in batches:
        addresses, source = batch.column("address").to_pylist(), worker_store(store)
        known = source.content_md5(addresses)
        # In another order: if each answer is the one to the request before, some differ. Others may be equal and wrong,
        # for an object between two of one content.
        if twice and known != source.content_md5(addresses[::-1]):
            known = {}
        sizes = dict(zip(addresses, batch.column("size").to_pylist(), strict=True))
        if not _are_of_content(source, known, sizes):
            known = {}
        md5 = pa.array([known.get(address, "") for address in addresses], pa.string())
        yield pa.record_batch([batch.column("address"), batch.column("size"), md5], names=CONTENTS.names)


def _are_of_content(store: ObjectStore, md5s: Mapping[str, str], sizes: Mapping[str, int]) -> bool:
    """Return whether the objects of a sample have the MD5s that the store states; False if none could be read.

    ``sizes`` in bytes are those of all objects, by address.
    """
    small = sorted(address for address in md5s if 0 < sizes[address] <= _LARGEST_READ_BYTES)
    sample = small[:: -(-len(small) // _OBJECTS_READ) or 1]
    has_been_read = False
    for address in sample or sorted(md5s, key=lambda address: (sizes[address], address))[:1]:
        with suppress(ObjectNotFoundError), store.open_read(address) as content:
            if md5_of(content) != md5s[address]:
                return False
            has_been_read = True
    return has_been_read
