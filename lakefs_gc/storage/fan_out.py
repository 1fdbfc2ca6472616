"""Listings of many prefixes in parallel."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator

import pyarrow as pa

from lakefs_gc.storage.base import ObjectStore

BATCH_ROWS = 32_000
"""Rows from which small batches are merged into one: large enough that Arrow's cost per batch is negligible."""


def list_concurrently(store: ObjectStore, prefixes: Iterable[str], concurrency: int = 16) -> Iterator[pa.RecordBatch]:
    """Yield the objects below each prefix in batches of about ``BATCH_ROWS`` rows, listing prefixes in parallel.

    The order is arbitrary. A prefix is taken when a thread is free for it; at most 2 × ``concurrency`` batches wait for
    the caller. The first error, of the store or of ``prefixes``, is raised as soon as it is known. After an error, or
    when the iterator is closed, the threads stop after their current page.
    """
    return merged(_list_all(store, prefixes, max(1, concurrency)))


def merged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of about ``BATCH_ROWS``."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= BATCH_ROWS:
            yield pa.concat_batches(held)
            held, rows = [], 0
    if held:
        yield pa.concat_batches(held)


def _list_all(store: ObjectStore, prefixes: Iterable[str], concurrency: int) -> Iterator[pa.RecordBatch]:
    source = iter(prefixes)
    taking = threading.Lock()
    stop = threading.Event()
    failures: list[BaseException] = []
    results: queue.Queue[pa.RecordBatch | None] = queue.Queue(maxsize=2 * concurrency)

    def take() -> str | None:
        with taking:
            return None if stop.is_set() else next(source, None)

    def hand_over(result: pa.RecordBatch | None) -> None:
        while not stop.is_set():
            try:
                results.put(result, timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            while (prefix := take()) is not None:
                for batch in store.list(prefix):
                    hand_over(batch)
                    if stop.is_set():
                        return
        except BaseException as error:  # raised again in the caller's thread
            failures.append(error)
            stop.set()
        finally:
            hand_over(None)

    threads = [threading.Thread(target=work, name="store-list", daemon=True) for _ in range(concurrency)]
    for thread in threads:
        thread.start()
    working = concurrency
    try:
        while working:
            if failures:
                raise failures[0]
            try:
                result = results.get(timeout=0.1)
            except queue.Empty:
                continue
            if result is None:
                working -= 1
            else:
                yield result
        if failures:
            raise failures[0]
    finally:
        stop.set()
