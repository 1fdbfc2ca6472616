"""Check which of many objects exist, with few requests, before they are deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import groupby

import pyarrow as pa

from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.errors import NamespaceError
from lakefs_gc.storage.base import LISTING_SCHEMA, ListingPage, ObjectInfo, ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.units import EPOCH

_MIN_KEYS_PER_PAGE = 20
"""A page of a listing costs as much as about 12 HEAD requests (AWS prices of 2024), and takes as long as 5 to 20."""


def existing_objects(store: ObjectStore, addresses: Sequence[str], *, concurrency: int) -> dict[str, ObjectInfo]:
    """Return the facts of the objects that exist, as ``stat_many`` does (without the ETag if a listing showed them).

    ``addresses`` are sorted by their bytes. If they lie close together, a page of a listing shows many of them. Each
    address that no page shows is requested separately, so a listing that omits a key only costs a request.
    """
    existing: dict[str, ObjectInfo] = {}
    if store.lists_by_page:
        for folder, keys in groupby(addresses, lambda address: address[: address.rfind("/") + 1]):
            existing.update(_listed(store, folder, list(keys)))
    left = [address for address in addresses if address not in existing]
    return existing | store.stat_many(left, concurrency=concurrency)


def _listed(store: ObjectStore, folder: str, keys: list[str]) -> dict[str, ObjectInfo]:
    """Return the objects that pages of the listing of a folder show, until a page shows too few."""
    listed: dict[str, ObjectInfo] = {}
    wanted = set(keys)
    if len(wanted) < _MIN_KEYS_PER_PAGE:
        return listed
    last = keys[-1].encode()
    # Listing starts after this text: a key without its last character sorts shortly before the key.
    for page in _pages(store, folder, keys[0][:-1]):
        rows = page.objects
        names: list[str] = rows.column("address").to_pylist()
        before = len(listed)
        sizes: list[int] = rows.column("size").to_pylist()
        # As integers: converting each value with Arrow makes a page take 12 ms instead of 5 ms.
        times: list[int] = rows.column("last_modified").view(pa.int64()).to_pylist()
        for name, size_bytes, microseconds in zip(names, sizes, times, strict=True):
            if name in wanted:
                listed[name] = ObjectInfo(size_bytes, EPOCH + timedelta(microseconds=microseconds), "")
        if (
            len(listed) == len(wanted)
            or len(listed) - before < _MIN_KEYS_PER_PAGE
            or (names and names[-1].encode() >= last)
        ):
            break
    return listed


def _pages(store: ObjectStore, folder: str, start_after: str) -> Iterator[ListingPage]:
    return store.pages(folder, start_after=start_after if start_after > folder else "")


@worker
def only_absent(batches: Batches, store: StoreLocation) -> Batches:
    """Yield the rows (column ``address``) whose object does not exist."""
    for batch in batches:
        addresses = batch.column("address").to_pylist()
        existing = existing_keys(worker_store(store), addresses)
        yield batch.filter(pa.array([address not in existing for address in addresses], pa.bool_()))


@worker
def only_existing(batches: Batches, store: StoreLocation) -> Batches:
    """Yield the objects of the addresses (column ``address``) that exist, as ``LISTING_SCHEMA``."""
    for batch in batches:
        found = existing_keys(worker_store(store), batch.column("address").to_pylist())
        rows = [
            {"address": key, "size": info.size_bytes, "last_modified": info.last_modified}
            for key, info in found.items()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=LISTING_SCHEMA)


def existing_keys(store: ObjectStore, addresses: list[str]) -> dict[str, ObjectInfo]:
    """Return the objects that exist. An address that cannot be a key of this store does not exist."""
    try:
        return store.stat_many(addresses)
    except NamespaceError:
        if len(addresses) == 1:
            return {}
        return {key: info for address in addresses for key, info in existing_keys(store, [address]).items()}
